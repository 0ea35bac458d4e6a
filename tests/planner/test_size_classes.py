"""Size classes: the bounds, and programs that serve every size of a class."""

from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import rules_of
from random_plans import example

from han._native import Operations, joined
from han.config.config import Config, load_config
from han.model.channel_layout import INLINE, LINE
from han.model.opcodes import COMBINATIONS
from han.model.program import TERMS, Base, Ref, positions
from han.model.topology import virtual
from han.submodules.registry import plan_of_choice
from han.tasks.choice import Choice, level_choice
from han.tasks.contract import Algorithm, Submodule
from han.tasks.lower import lower
from han.tasks.plan import Plan, make_plan
from han.tasks.signature import Signature
from han.tasks.size_classes import (
    GRAINS,
    SMALL,
    bound_of,
    bounds_of,
    class_around,
    class_of,
    exact,
    largest_of,
)
from han.tasks.verify import verify
from han.tuning.built_in.choosing import NodeTraits
from han.tuning.planner import Planner

BOUNDS = bounds_of()
MEMORY = 1 << 18
sizes = st.one_of(st.integers(1, 5000), st.integers(1, BOUNDS[-1]), st.sampled_from(BOUNDS))
elements = st.sampled_from([1, 2, 3, 4, 8, 12, 16, 24, 32, 48, 64, 80, 128, 4096])


def allreduce(nbytes: int, element: int = 1) -> Signature:
    return Signature("allreduce", nbytes // element, element, "sum", "f8")


# ---- bounds -------------------------------------------------------------------------------------


def test_a_class_holds_the_sizes_between_two_bounds():
    assert class_around(BOUNDS[0], BOUNDS) == (0, BOUNDS[0])
    for below, bound in pairwise(BOUNDS):
        assert class_around(bound, BOUNDS) == (below, bound)


def test_bounds_double_and_later_grow_by_a_half_and_by_a_third():
    few = BOUNDS.index(SMALL) + 1
    assert BOUNDS[:few] == (INLINE, 128, 256, 512, 1024, 2048, 4096)
    ratios = np.array(BOUNDS[few:]) / np.array(BOUNDS[few - 1 : -1])
    assert set(ratios.round(3)) <= {1.333, 1.5, 1.0}  # 1.0: what MPI's counts allow, and a power
    assert len(BOUNDS) < 65


def test_counts_of_a_class_fit_where_those_of_its_largest_call_do():
    for element in (1, 2, 4, 8, 16):
        for bound in BOUNDS:
            whole = class_of(allreduce(bound, element), bound)
            assert (whole.count < 1 << 31) == (bound // element < 1 << 31)


def test_thresholds_of_rules_begin_classes():
    bounds = bounds_of([10_000, 1, 0, 4097, 1 << 60])
    assert set(bounds) - set(BOUNDS) == {9999}
    assert bound_of(allreduce(9999), bounds) == 9999
    assert bound_of(allreduce(10_000), bounds) == 12288


def test_different_classes_have_different_signatures():
    """Bounds may be in one cache line: rules tell their calls apart all the same."""
    near = [n for k in range(4, 30) for n in ((1 << k) - 1, 1 << k, (1 << k) + 1)]
    bounds = bounds_of([*near, 1000, 1001, 97])
    for element in (1, 4, 8, 24):
        found = {class_of(allreduce(bound, element), bound) for bound in bounds if bound >= element}
        assert len(found) == sum(bound >= element for bound in bounds)


def test_changed_signatures_are_those_that_are_made_anew():
    one = Signature("reduce", 100, 8, "sum", "float64", root=3, canonical=True)
    assert (one.nbytes, one.grain) == (800, 8)  # they are kept, and must not be taken over
    for values in ({}, {"count": 5}, {"count": 64, "grains": 8, "bound": 512}, {"counts": (1, 2)}):
        made = one.changed(**values)
        assert made == replace(one, **values)
        assert hash(made) == hash(replace(one, **values))
        assert made.nbytes == made.count * 8
    for wrong in ("size", "nbytes"):
        with pytest.raises(TypeError, match=wrong):
            one.changed(**{wrong: 1})


@pytest.mark.parametrize("traits", [NodeTraits(), NodeTraits(mesh=True), NodeTraits(True)])
def test_the_first_call_of_a_class_decides_nothing(traits):
    """Each size of a class gets the same plans, in particular an alternative or none."""
    rule = {"when": {"bytes": {"min": "64KiB"}}, "use": {"levels": {"node": {"submodule": "sm"}}}}
    for config in (Config(), load_config({"rules": [rule]})):
        for collective, ranks in product(("bcast", "reduce", "allreduce", "allgather"), (2, 8)):
            topology = replace(virtual(ranks), attach=True)
            planner = Planner(topology, config, traits, 0, True)
            for bound, below in zip(planner.bounds[1:60], planner.bounds, strict=False):
                counts = sorted({below // 8 + 1, (below + bound) // 16, bound // 8})
                calls = [replace(allreduce(8 * n, 8), collective=collective) for n in counts]
                fit = [c for c in calls if below < c.nbytes <= bound]
                plans = [planner.planned(c) for c in fit]
                seen = {(p.signature, p.decision.choice, repr(p.others)) for p in plans}
                assert len(seen) <= 1, (collective, below, bound)


@given(sizes, elements)
def test_a_class_holds_its_calls(nbytes, element):
    signature = allreduce(nbytes, element)
    bound = bound_of(signature, BOUNDS)
    if not bound:
        assert not signature.count or signature.count > GRAINS // 2
        return
    one = class_of(signature, bound)
    assert signature.count <= largest_of(class_of(signature, bound)).count <= one.count
    assert one.nbytes == one.grains * one.grain
    assert one.grain % element == 0
    assert one.nbytes < bound + LINE
    assert one.bound == bound
    assert exact(one, signature.nbytes) == signature
    assert class_of(replace(signature, count=bound // element), bound) == one


@pytest.mark.parametrize(
    "signature",
    [
        Signature("barrier"),
        Signature("bcast"),
        Signature("bcast", 8, device=True),
        Signature("bcast", BOUNDS[-1] + 1),
    ],
)
def test_calls_without_a_class(signature):
    assert bound_of(signature, BOUNDS) == 0


# ---- positions ----------------------------------------------------------------------------------


@given(st.integers(1, 1 << 20), st.sampled_from([1, 8, 24, LINE, 4096]), st.data())
def test_memory_for_grains_of_the_largest_message_holds_those_of_any(grains, grain, data):
    nbytes = data.draw(st.integers(0, grains * grain))
    cuts = sorted(data.draw(st.lists(st.integers(0, grains), max_size=6)))
    numbers = np.array([0, *cuts, grains], "u8")
    found = positions(numbers, grains, grain, nbytes)
    assert found[0] == 0
    assert found[-1] == nbytes
    inner = found[found < nbytes]
    assert (inner % grain == 0).all()
    assert (np.diff(found.astype("i8")) >= 0).all()
    for first in range(len(numbers)):
        parts = found[first:] - found[first]
        assert (parts <= (numbers[first:] - numbers[first]) * grain).all()
    assert (positions(numbers, grains, grain, grains * grain) == numbers * grain).all()


# ---- programs -----------------------------------------------------------------------------------


def of_class(plan: Plan, memory: int) -> Plan | None:
    """Return the plan of a call's class; None if its choice cannot serve the class."""
    bound = bound_of(plan.signature, BOUNDS)
    signature = class_of(plan.signature, bound) if bound else None
    table = rules_of(plan.topology)
    if signature is None or table.objection(signature, plan.choice) is not None:
        return None
    return plan_of_choice(plan.topology, signature, plan.choice, memory)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 4000))
def test_the_largest_message_is_planned_exactly(number):
    plan = of_class(example(number).plans[0], MEMORY)
    if plan is None:
        return
    for rank in range(plan.topology.size):
        program = lower(plan, rank)
        same = program.at(plan.signature.nbytes)
        assert (same.code == program.code).all()
        assert same.terms is None


def test_different_sizes_of_a_class_run_one_behind_the_other():
    choice = Choice((level_choice("sm", "split", chunk=4096),), None)
    plan = plan_of_choice(virtual(3), class_of(allreduce(24_000, 8), 24_576), choice, MEMORY)
    report = verify([plan.of_size(n) for n in (24_576, 16_392, 20_000, 24_568)])
    assert report.ranks == 3
    assert "20000B" in str(report)


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_one_plan_serves_blocks_of_all_sizes(data):
    """Offsets and lengths are those of each block, whichever blocks are long, short or empty."""
    size = data.draw(st.integers(2, 6))
    reduces, in_memory = data.draw(st.booleans()), data.draw(st.booleans())
    most = data.draw(st.integers(1, 4000))
    rows = [
        [data.draw(st.integers(0, most)) for _ in range(size - 1)] + [most]
        for _ in range(data.draw(st.integers(1, 3)))
    ]
    rows = [data.draw(st.permutations(row)) for row in rows]
    signature = Signature("allgather", most, counts=tuple(rows[0]))
    if reduces:
        signature = Signature("reduce_scatter", most, 8, "sum", "f8", counts=tuple(rows[0]))
    chunk = data.draw(st.sampled_from([64, 512, 1 << 16]))
    choice = Choice((level_choice("sm" if in_memory else "solo", "blocks", chunk=chunk),), None)
    topology = replace(virtual(size), attach=True)
    planned = class_of(signature, bound_of(signature, BOUNDS))
    plan = plan_of_choice(topology, planned, choice, MEMORY)
    calls = [plan.of_size(most * signature.element, tuple(row)) for row in rows]
    assert [call.signature.counts for call in calls] == [tuple(row) for row in rows]
    verify(calls)


def test_blocks_that_differ_are_in_the_class_of_the_largest():
    one, two = (Signature("allgather", 8, counts=counts) for counts in ((8, 3), (0, 8)))
    planned = class_of(one, bound_of(one, BOUNDS))
    assert planned == class_of(two, bound_of(two, BOUNDS))
    assert planned != class_of(Signature("allgather", 8), 48), "a table is filled in at each run"
    assert exact(planned, 8, (8, 3)) == one
    assert planned.describe() == "allgather of blocks of up to 48B"
    assert one.sizes == np.array([8, 3], "u8").tobytes()
    assert not Signature("allgather", 8).sizes


def test_an_operation_names_the_block_where_blocks_differ():
    stream = Operations(0, 64, 8, 8, 8, True)
    with pytest.raises(ValueError, match="name the block"):
        stream.copy(Ref(Base.RECV), Ref(Base.SEND), 64)
    stream.copy(Ref(Base.RECV), Ref(Base.SEND), 64, block=5)
    _, terms = joined((stream,))
    assert np.frombuffer(terms, TERMS)["block"].tolist() == [5]


def test_shares_are_in_proportion():
    """Members get equal shares of any size, up to a cache line."""
    choice = Choice((level_choice("sm", "split"),), None)
    plan = plan_of_choice(virtual(4), class_of(allreduce(100_000, 8), 131_072), choice, 1 << 20)
    tasks = plan.of_size(100_000).tasks
    assert [(t.start, t.stop) for t in tasks] == [(0, 100_000)] * len(tasks)
    combined = []
    for rank in range(4):
        code = lower(plan.of_size(100_000), rank).code
        combines = np.isin(code["code"], COMBINATIONS)
        combined.append(8 * int(code["n"][combines].sum()) // 3)
    assert sum(combined) == 100_000
    assert max(combined) - min(combined) <= 4 * LINE, "a line for each piece"


def test_a_description_names_the_class():
    assert class_of(allreduce(20_000, 8), 24_576).describe().startswith("allreduce of up to 24KiB")


class Shifted(Submodule):
    """Addresses the message by a constant offset, or cuts it anywhere."""

    name, about = "shifted", "wrong for all sizes but one"
    algorithms = {"offset": Algorithm("a constant offset"), "cut": Algorithm("a cut anywhere")}

    def supports(self, question):
        return None

    def lower(self, context):
        for task in context.tasks:
            if context.choice.algorithm == "offset":
                place = context.result + task.start
                context.stream.isend(place, task.nbytes, 0, 0)
            else:
                context.stream.isend(context.result.to(task.start), task.nbytes - 1, 0, 0)


@pytest.mark.parametrize(("algorithm", "said"), [("offset", "use Ref.to"), ("cut", "whole grains")])
def test_operations_that_are_right_for_one_size_only_are_refused(algorithm, said):
    choice = Choice((level_choice("shifted", algorithm),), segment=4096)
    signature = Signature("bcast", 10_000)
    assert lower(make_plan(virtual(2), signature, choice, MEMORY, (Shifted(),)), 0).terms is None
    sized = class_of(signature, bound_of(signature, BOUNDS))
    with pytest.raises(ValueError, match=said):
        lower(make_plan(virtual(2), sized, choice, MEMORY, (Shifted(),)), 0)
