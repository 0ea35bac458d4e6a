"""Exchanges that make and gather the shares of lanes: proofs, and what is refused."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import draw_factors, on_nodes, topology_of
from plans import objection, planned, rules_of
from test_composition_sweep import draw_machine
from test_exchange_halves import combined_in, signature_of
from test_planner import quick

from han.submodules.registry import plan_of_choice
from han.tasks.choice import Choice, level_choice
from han.tasks.compositions import as_called
from han.tasks.lanes import inner_levels, outer_levels
from han.tasks.signature import Signature
from han.tasks.size_classes import class_of
from han.tasks.verify import verify
from han.tuning.search.space import space_of

KiB = 1024
many = settings(quick, max_examples=25)
LANES = ("bcast", "reduce", "allreduce")
BOTH = ("shares", "cyclic_shares")


def lanes(*levels, **choice):
    return Choice(tuple(levels), composition="lanes", **choice)


def between(collective):
    return level_choice("adapt", "by_rank" if collective == "reduce" else "knomial")


@pytest.mark.parametrize("ranks", range(2, 10))
@pytest.mark.parametrize("algorithm", BOTH)
def test_nodes_of_two_to_nine_ranks(algorithm, ranks):
    """Several pieces of every share, so that banks of cells are used again."""
    own = level_choice("exchange", algorithm, chunk=64 * ranks)
    for collective in LANES:
        for nbytes, root in ((8, 1), (1000, 2 * ranks - 1), (7000, 0)):
            root = root if collective != "allreduce" else 0
            signature = signature_of(collective, nbytes, root, ordered=algorithm == "shares")
            choice = lanes(own, between(collective))
            plan = planned(on_nodes(ranks, ranks), signature, choice)
            verify([plan] * 3, in_place=root % 2 == 0)


@pytest.mark.parametrize("algorithm", BOTH)
@pytest.mark.parametrize("sizes", [(1, 3), (3, 1, 1)])
def test_nodes_of_one_rank(algorithm, sizes):
    """A group of one member makes no shares; where all nodes have one rank, lanes are refused."""
    own = level_choice("exchange", algorithm)
    for collective in LANES:
        signature = signature_of(collective, 1000, 0, ordered=algorithm == "shares")
        verify([planned(on_nodes(*sizes), signature, lanes(own, between(collective)))] * 2)


@many
@given(st.integers(0, 1 << 30))
def test_lanes_of_any_machine(number):
    """Up to 64 ranks on 2 to 4 levels, uneven and interleaved; small nodes carry several lanes."""
    draw = Random(number)
    collective, algorithm = draw.choice(LANES), draw.choice(BOTH)
    nbytes = draw.choice([8, 56, 1000, 4 * KiB, 20_000, 100_000])
    signature = signature_of(
        collective, nbytes, 0, ordered=algorithm == "shares" and draw.random() < 0.5
    )
    while True:
        topology = draw_machine(draw, draw.randint(2, 4))
        view = as_called(topology, signature, "lanes")
        if inner_levels(view) and outer_levels(view):
            break
    if collective != "allreduce":
        signature = replace(signature, root=draw.randrange(topology.size))
    inner = inner_levels(view)
    levels = [between(collective)] * topology.depth
    for level in inner:
        sizes = {*map(len, view.units[level].values())}
        most = max(sizes) if level == inner[-1] else min(sizes)
        own = {"chunk": draw.choice([1 << 8, 1 << 10, 1 << 17]), "lanes": draw.randint(0, most)}
        if len(sizes) == 1 and draw.random() < 0.5:
            own |= draw_factors(draw, algorithm, *sizes)
        levels[level] = level_choice("exchange", algorithm, **own)
    choice = lanes(
        *levels,
        segment=draw.choice([None, nbytes // 2 // 8 * 8 or 8]),
        schedule=draw.choice(["dataflow", "lockstep"]),
    )
    plan = planned(topology, signature, choice, draw.choice([1 << 16, 1 << 20]))
    verify([plan] * 3, in_place=draw.random() < 0.5)


@pytest.mark.parametrize("algorithm", BOTH)
def test_members_without_a_lane(algorithm):
    """They combine for others, in cells that are used again, and show nothing of their own."""
    for lane_count in (1, 2, 5):
        own = level_choice("exchange", algorithm, lanes=lane_count, chunk=128)
        choice = lanes(own, level_choice("adapt", "knomial"), segment=1000)
        verify(
            [planned(on_nodes(5, 3, 5), signature_of("allreduce", 3000, ordered=False), choice)] * 3
        )


def test_groups_of_members_inside_others():
    """Banks of cells are used again; finished blocks of a member come after those of others."""
    for algorithm, inner, ports in (
        ("shares", 4, 1),
        ("cyclic_shares", 4, 1),
        ("cyclic_shares", 3, 0),
    ):
        ranks = 2 * inner
        own = level_choice("exchange", algorithm, chunk=64 * ranks, inner=inner, ports=ports)
        for collective in LANES:
            choice = lanes(own, between(collective))
            plan = planned(
                on_nodes(ranks, ranks), signature_of(collective, 3000, ordered=False), choice
            )
            verify([plan] * 3)


def test_every_member_combines_the_same_and_copies_what_it_lacks():
    own = level_choice("exchange", "shares", factors=(-4, -2, 2, 4))
    plan = planned(on_nodes(8, 8), signature_of("allreduce", 64 * KiB), lanes(own, between("")))
    combined = combined_in(plan, "reduce_scatter@level0", 8)
    # Four operands of a quarter, then two of an eighth.
    assert {8 * n for n in combined} == {3 * 16 * KiB + 8 * KiB}


def test_classes_of_sizes_have_one_program():
    call = class_of(Signature("allreduce", 2048, 8, "sum", "f8"), 16 * KiB)
    for algorithm in BOTH:
        own = level_choice("exchange", algorithm, chunk=1000)
        choice = lanes(own, level_choice("adapt", "knomial"))
        plan = plan_of_choice(on_nodes(3, 4), call, choice, 1 << 20)
        for nbytes in (8, 72, 1000, 8200, 16 * KiB):
            verify([plan.of_size(nbytes)] * 2)


def test_reproducible_lanes_combine_in_the_canonical_order():
    call = Signature("allreduce", 100, 8, "op", "f8", canonical=True)
    for factors in ((-4, -2, 2, 4), (-2, -2, -2, 2, 2, 2), (-8, 8)):
        own = level_choice("exchange", "shares", factors=factors)
        choice = lanes(own, level_choice("exchange", "recursive_doubling"))
        verify([planned(on_nodes(8, 8), call, choice)] * 2)
    own = level_choice("exchange", "cyclic_shares")
    assert "combines in another order" in objection(
        on_nodes(4, 4), call, replace(choice, levels=(own, choice.levels[1]))
    )


def test_why_an_exchange_does_not_serve_lanes():
    call, adapt = signature_of("allreduce", 1000, ordered=False), level_choice("adapt", "knomial")
    for sizes, own, expected in (
        ((4, 3), level_choice("exchange", "shares", factors=(-2, -2, 2, 2)),
         "do not fit all groups of the level, which have 3, 4 members: leave factors out"),
        ((4, 4), level_choice("exchange", "shares", factors=(-2, 2, 2)),
         "would combine without splitting"),
        ((4, 4), level_choice("exchange", "shares", lanes=5), "the largest node has 4 ranks"),
        ((4, 4), level_choice("exchange", "recursive"), "exchange shares, exchange cyclic_shares"),
    ):  # fmt: skip
        assert expected in objection(on_nodes(*sizes), call, lanes(own, adapt))
    tree = Choice((level_choice("exchange", "shares"), adapt))
    assert "serves compositions other than tree and flat" in objection(on_nodes(4, 4), call, tree)
    matrix = signature_of("allreduce", 1000)
    cyclic = lanes(level_choice("exchange", "cyclic_shares"), adapt)
    assert "does not keep the order of operands" in objection(on_nodes(4, 4), matrix, cyclic)
    large = Signature("allreduce", 4, 1 << 14, "op", "u8")
    reason = objection(on_nodes(4, 4), large, lanes(level_choice("exchange", "shares"), adapt))
    assert "of cells for elements of 16384 bytes; the smallest ring has 65536" in reason


def test_a_tuner_tries_exchanges_in_lanes():
    rules = rules_of(on_nodes(4, 4))
    found = space_of(rules, Signature("allreduce", 1 << 15, 8, "sum", "f8")).candidates
    inside = [one.levels[0] for one in found if one.composition == "lanes"]
    tried = {one.algorithm for one in inside if one.submodule == "exchange"}
    assert tried == set(BOTH)
    assert {"factors", "ports", "chunk"} <= {key for one in inside for key, _ in one.parameters}


# ---- small slots ---------------------------------------------------------------------------------


@pytest.mark.parametrize("nodes", [[0, 0, 1, 1], [0, 1] * 3], ids=str)
def test_lanes_of_small_slots_combine_their_own_part(nodes):
    call = class_of(Signature("allreduce", 16, 8, "sum", "f8"), 128)
    levels = level_choice("sm", "shares", chunk=64), level_choice("sm", "direct")
    topology = topology_of([nodes, [0] * len(nodes)], 1)
    plan = plan_of_choice(topology, call, Choice(levels, composition="lanes"), 1 << 20)
    for nbytes in (8, 72, 128):
        verify([plan.of_size(nbytes)] * 2)
