"""Exchanges inside a node: factors, patterns, layouts, results and proofs."""

from itertools import product
from math import prod
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import draw_factors, taken, topology_of
from plans import MEMORY, planned, prove
from plans import objection as objection_to
from test_exchange_halves import combined_in
from test_planner import OPERATIONS, quick

from han.common.errors import ConfigError
from han.config.config import load_config
from han.model.program import Code
from han.submodules.exchange.layout import Layout, Partition
from han.submodules.names import validate_names
from han.submodules.parts.factors import (
    both_ways,
    cyclic_factors,
    lists_of,
    misfit,
    phases_of,
    primes,
    recursive_factors,
)
from han.submodules.registry import plan_of_choice, submodule
from han.tasks.choice import Choice, level_choice
from han.tasks.files.store import PlanFileError, from_json, to_json
from han.tasks.lower import lower
from han.tasks.signature import Signature
from han.tasks.verify import verify

IN_NODE = ("recursive", "cyclic", "tree", "copyin")
ORDERED = ("recursive", "tree")


def plan_of(
    members,
    algorithm,
    nbytes,
    op="sum",
    segment=None,
    schedule="dataflow",
    mapped=False,
    **parameters,
):
    element = OPERATIONS[op]
    signature = Signature(
        "allreduce", nbytes // element, element, op, "uint64", op == "sum", op == "sum", 0, mapped
    )
    choice = Choice((level_choice("exchange", algorithm, **parameters),), segment, schedule)
    return planned(topology_of([[0] * members], 0), signature, choice, MEMORY)


def objection(members, algorithm, shared=0, element=8, **parameters):
    signature = Signature("allreduce", 100, element, "sum", "uint64")
    choice = Choice((level_choice("exchange", algorithm, **parameters),))
    return objection_to(topology_of([[0] * members], shared), signature, choice)


# ---- factors ------------------------------------------------------------------------------------


def test_factors_by_default():
    sizes = (2, 3, 4, 6, 7, 8, 9, 12, 16, 64)
    assert [recursive_factors(n) for n in sizes] == [
        (2,), (3,), (4,), (3, 2), (7,), (4, 2), (3, 3), (4, 3), (4, 4), (4, 4, 4),
    ]  # fmt: skip
    assert [cyclic_factors(n) for n in sizes] == [
        (2,), (3,), (4,), (3, 2), (3, 3), (3, 3), (3, 3), (4, 3), (4, 4), (4, 4, 4),
    ]  # fmt: skip
    for members in range(1, 300):
        assert prod(recursive_factors(members)) == prod(primes(members)) == members
        factors = cyclic_factors(members)
        assert prod(factors[:-1]) < members <= prod(factors) or members == 1


def test_the_cyclic_shift_takes_the_papers_factors_of_eight():
    """Jocksch et al., section 2.2.2: there are ten sets of factors."""
    sets = [(2, 2, 2), (2, 3, 2), (2, 4), (3, 2, 2), (3, 3), (4, 2), (5, 2), (6, 2), (7, 2), (8,)]
    signed = {gather: (*(-f for f in reversed(gather)), *gather) for gather in sets}
    for gather in sets:
        assert objection(8, "cyclic", factors=signed[gather]) is None
    exact = [gather for gather in sets if objection(8, "recursive", factors=signed[gather]) is None]
    assert exact == [(2, 2, 2), (2, 4), (4, 2), (8,)]


def test_signs_tell_the_phases_of_an_exchange():
    """Jocksch et al., section 2.1.2, figure 3."""
    for signed, phases in {
        (-2, 2, 2): ((2,), (2,), (2,)),
        (-2, -2, 2, 2): ((2, 2), (), (2, 2)),
        (-4, 2, 2): ((4,), (), (2, 2)),
        (-2, -2, 3, 4): ((2, 2), (3,), (4,)),
        (2, 2): ((), (2, 2), ()),
    }.items():
        assert phases_of("recursive", signed) == phases
    assert phases_of("recursive", both_ways((4, 2))) == ((4, 2), (), (2, 4))
    assert phases_of("cyclic", (-2, -3, 5)) == ((2, 3), (), (5,))


def test_factors_that_a_tuner_tries_are_valid():
    part = submodule("exchange")
    for algorithm, members in product(part.algorithms, range(1, 40)):
        lists = part.factor_lists(algorithm, members)
        assert len(set(lists)) == len(lists) <= 16
        assert all(misfit(algorithm, members, factors) is None for factors in lists)
    assert part.factor_lists("halving", 8) == []
    assert {(8,), (-8, 8), (-2, -2, -2, 2, 2, 2), (-4, 2, 4)} <= {*lists_of("recursive", 8)}
    assert (-4, -2, 2, 4) not in lists_of("recursive", 8)


@pytest.mark.parametrize("shared", [0, -1])
@pytest.mark.parametrize(
    ("members", "algorithm", "factors", "expected"),
    [
        (8, "recursive", (-4, -3, 3, 4), "-4x-3x3x4 bring 12 members together, not the 8 of the"),
        (8, "recursive", (4, 3), "take -4x-2x2x4 or 4x2, or leave factors out, or take cyclic"),
        (8, "recursive", (-4, 2, -2, 2), "the negative ones, which reduce-scatter, come first"),
        (8, "recursive", (-4, 2), "so their product must be 4; take -4x2x4, for instance"),
        (8, "tree", (-4, 4), "-4x4 bring 4 members together, not the 8 of the level"),
        (8, "tree", (-2, 4, 2), "4 would combine without splitting, which is for recursive"),
        (6, "recursive", (4,), "4 bring 4 members together, not the 6 of the level"),
        (6, "cyclic", (2, 3), "product of the negative ones, none, is 1, less than the 6 members"),
        (7, "cyclic", (-2, -3, 7), "negative ones, 3x2, is 6, less than the 7 members; take 3x3"),
        (7, "cyclic", (-7, 7, 2), "of the positive ones, 7 reaches the 7 members without 2"),
        (7, "copyin", (-7, 7), "copyin combines one member at a time; its factors allgather"),
        (8, "recursive", (), "2 or more, or -2 or less, expected, not none"),
        (8, "halving", (2, 2, 2), "halving has factors of its own: leave factors out"),
        (8, "ring", (2, 2, 2), "ring has factors of its own: leave factors out"),
    ],
)
def test_factors_that_do_not_fit_are_refused_with_numbers_and_a_way_out(
    members, algorithm, factors, expected, shared
):
    assert expected in objection(members, algorithm, shared, factors=factors)


def test_cells_need_room_for_an_element_and_messages_do_not():
    for algorithm in IN_NODE:
        assert "bytes of cells for elements" in objection(4, algorithm, element=1 << 20)
        assert objection(4, algorithm, shared=-1, element=1 << 20) is None
        too_large = objection(4, algorithm, shared=-1, element=1 << 31)
        assert f"elements of {1 << 31} bytes do not fit into a message" in too_large


def test_configurations_give_factors_as_lists_or_as_text():
    for written, read in (
        ([-2, 2, 2], (-2, 2, 2)), ("-2x2x2", (-2, 2, 2)), (8, (8,)), ("8", (8,)),
    ):  # fmt: skip
        config = validate_names(load_config(rule(factors=written), {}))
        assert config.rules[0].use.levels["node"].parameters["factors"] == read
    for written in ([], [4, 1], [-1, 4], 0, "4x", "4,2", "--4", True, [4, "2"]):
        with pytest.raises(ConfigError, match=r"node\.factors"):
            validate_names(load_config(rule(factors=written), {}))
    with pytest.raises(ConfigError, match="must be 2 or more, or -2 or less"):
        validate_names(load_config(rule(factors=[-2, 0]), {}))


def rule(**parameters):
    level = {"submodule": "exchange", "algorithm": "recursive", **parameters}
    levels = [{"name": "node", "scope": "all"}]
    return {"levels": levels, "rules": [{"use": {"levels": {"node": level}}}]}


# ---- patterns and partitions --------------------------------------------------------------------


@st.composite
def exchanges(draw, most=32):
    members, algorithm = draw(st.integers(2, most)), draw(st.sampled_from(IN_NODE))
    factors = draw_factors(Random(draw(st.integers(0, 1 << 30))), algorithm, members)
    return members, level_choice("exchange", algorithm, **factors)


@quick
@given(st.integers(0, 9000), st.integers(1, 33), st.sampled_from([1, 8, 24, 100]),
       st.sampled_from([0, 64, 100, 1000]), st.sampled_from(IN_NODE))  # fmt: skip
def test_partitions_cover_a_piece_in_whole_elements(count, blocks, element, size, algorithm):
    nbytes = count // 10 * element
    bounds = Partition(algorithm, blocks, element, size).bounds(nbytes)
    assert len(bounds) == blocks
    assert [a for a, _ in bounds] == [0, *(b for _, b in bounds[:-1])]
    assert bounds[-1][1] == nbytes
    assert all(a % element == 0 and a <= b for a, b in bounds)
    if size and algorithm != "tree":
        assert len({b - a for a, b in bounds if b < nbytes}) <= 1


def test_a_partition_of_cache_lines_gives_each_member_whole_ones():
    bounds = Partition("cyclic", 8, 8, 64).bounds(200)
    assert bounds == [(0, 64), (64, 128), (128, 192), (192, 200), *[(200, 200)] * 4]
    assert Partition("cyclic", 2, 8, 64).bounds(200) == [(0, 128), (128, 200)]


@pytest.mark.parametrize("algorithm", IN_NODE)
def test_cells_and_counts_stay_within_what_there_is(algorithm):
    for members, nbytes in product((2, 9, 64), (0, 8, 4096, 5000, 1 << 20, 1 << 30)):
        plan = plan_of(members, algorithm, nbytes, chunk=64)
        (footprint,) = plan.footprint()
        assert footprint <= plan.geometries[0].area
        layout = Layout.of(plan, 0, plan.streams["allreduce", 0], plan.topology.size)
        assert layout.pieces * layout.values < 1 << 24
        assert footprint == 0 or not layout.small


# ---- results ------------------------------------------------------------------------------------


@settings(quick, max_examples=60)
@given(exchanges(), st.integers(0, 60_000), st.data())
def test_exchanges_are_proved(exchange, nbytes, data):
    """With factors of all kinds; members may write into each other's cells, or read arrays."""
    members, choice = exchange
    op = "matrix product" if choice.algorithm in ORDERED else "sum"
    more = {
        "partition": data.draw(st.sampled_from([0, 64, 1000])),
        "chunk": max(1000, nbytes // 4),
        "writes": data.draw(st.booleans()),
    }
    parameters = dict(choice.parameters) | taken("exchange", choice.algorithm, more)
    mapped, segment = data.draw(st.booleans()), data.draw(st.sampled_from([None, 20_000]))
    plan = plan_of(members, choice.algorithm, nbytes, op, segment, mapped=mapped, **parameters)
    prove(plan)


def test_all_members_of_a_tree_combine_as_much():
    for factors in ((-4, -2, 2, 4), (-2, -2, -2, 8), (-8, 8)):
        plan = plan_of(8, "tree", 64 << 10, factors=factors)
        combined = combined_in(plan, "allreduce@network", 8)
        assert len(set(combined)) == 1
        assert combined[0] > 0


def test_a_small_message_is_exchanged_whole_in_as_many_steps_as_factors():
    for factors, waits in (((8,), 7), ((4, 2), 4), ((2, 2, 2), 3), ((-4, 2, 4), 4)):
        plan = plan_of(8, "recursive", 8, factors=factors)
        codes = lower(plan, 3).code["code"].tolist()
        assert codes.count(Code.WAIT) == codes.count(Code.REDUCE) == waits
        steps = phases_of("recursive", factors)
        assert codes.count(Code.POST) == len(steps.scatter + steps.middle)
        assert plan.footprint() == (0,)


@pytest.mark.parametrize(
    ("members", "parameters", "segment"),
    [
        (2, {"factors": (2,)}, None),  # both members combine the whole piece
        (8, {"factors": (-2, 4, 2)}, None),
        (3, {}, 10_000),  # a short piece between long ones
    ],
)
@pytest.mark.parametrize("schedule", ["dataflow", "lockstep"])
def test_cells_are_written_again_when_their_readers_are_done(
    members, parameters, segment, schedule
):
    more = {**parameters, "chunk": 1666}
    plan = plan_of(members, "recursive", 20_000, "sum", segment, schedule, **more)
    verify([plan] * 2)


# ---- stored plans -------------------------------------------------------------------------------


def test_factors_are_kept_in_stored_plans_and_checked():
    plan = plan_of(8, "recursive", 5000, factors=(-4, -2, 2, 2, 2))
    text = to_json(plan, MEMORY)
    again, programs = from_json(text, submodule)
    assert again.choice == plan.choice
    assert len(programs) == 8
    assert again.choice.levels[0].describe() == "exchange recursive (factors -4x-2x2x2x2)"
    hash(again.choice)
    with pytest.raises(PlanFileError, match="bring 12 members together, not the 8 of the level"):
        from_json(text.replace("[-4, -2, 2, 2, 2]", "[-4, -3, 3, 2, 2]"), submodule)


def test_operations_of_a_copy_in_reduction_grow_with_the_members():
    """Blocks in their round share memory, so that pieces do not shrink as members are more."""
    found = []
    for members in (16, 64):
        topology = topology_of([[0] * members], 0)
        signature = Signature("allreduce", 1 << 17, 8, "sum", "uint64")
        choice = Choice((level_choice("exchange", "copyin"),))
        plan = plan_of_choice(topology, signature, choice, 1 << 24)
        found.append(len(lower(plan, 1).code))
    assert found[1] < 5 * found[0]


@pytest.mark.parametrize("members", [6, 9, 13])
def test_blocks_wait_for_the_memory_of_an_earlier_stage(members):
    for nbytes in (8, 8 * members, 4096):  # fewer blocks than members, a line each, and more
        plan = plan_of(members, "copyin", nbytes, chunk=1024)
        verify([plan] * 3)
