"""Programs of large messages from samples: the same operations as those lowered piece by piece."""

from dataclasses import replace
from random import Random
from types import SimpleNamespace

import numpy as np
import pytest
from machines import plan_of_class, planner_of
from plans import rules_of
from random_plans import example

from han.cli.plan import prove
from han.common.errors import HanError
from han.model.collectives import ROWS
from han.model.loops import period, repeated, unroll
from han.model.program import Code
from han.model.task_names import TaskNames
from han.model.topology import virtual
from han.submodules.registry import plan_of_choice, registered
from han.tasks import samples
from han.tasks.call import call_signature
from han.tasks.choice import Choice, level_choice
from han.tasks.lower import lower
from han.tasks.samples import lower_with_loops
from han.tasks.signature import Signature
from han.tasks.size_classes import class_of, largest_of

KiB = 1024
ALIKE = (
    "rank", "streams", "requests", "scratch", "operand", "footprint", "writes", "sync", "comms",
    "grains", "grain", "blocks",
)  # fmt: skip


def differs(found, plain):
    """Return in what a program with loops differs from one that was lowered piece by piece."""
    found = unroll(found)
    arrays = ("code", "terms")
    different = [k for k in arrays if not np.array_equal(getattr(found, k), getattr(plain, k))]
    different += [k for k in ALIKE if getattr(found, k) != getattr(plain, k)]
    return different + ["tasks"] * (list(found.tasks) != list(plain.tasks))


@pytest.fixture
def lowered(monkeypatch):
    """Record the bytes of the messages that are lowered piece by piece."""
    found = []

    def record(plan, rank):
        found.append(plan.signature.nbytes)
        return lower(plan, rank)

    monkeypatch.setattr(samples, "lower", record)
    return found


SHAPES = [(8, 4), (8, 8), (6, 2), (12, 3)]
CASES = [(c, *shape) for c in ("bcast", "reduce", "allreduce") for shape in SHAPES]
CASES += [(c, 8, 8) for c in ("gather", "scatter", "allgather", "alltoall", "reduce_scatter")]


@pytest.mark.parametrize("size", ["20000000", "64MiB"])
@pytest.mark.parametrize(("collective", "ranks", "ppn"), CASES)
def test_built_in_plans_of_large_messages(lowered, collective, size, ranks, ppn):
    for rank in {0, 1, ppn, ranks - 1} & set(range(ranks)):
        planner = planner_of(ranks, ppn, rank)
        plan = plan_of_class(collective, size, planner)
        del lowered[:]
        found = planner.program(plan)
        plain = lower(plan, rank)
        assert not differs(found, plain)
        if size == "64MiB" and len(plain.code) > 2000:
            assert sum(lowered) <= plan.signature.nbytes / 3, "the message itself is not lowered"


@pytest.fixture
def of_any_size(monkeypatch):
    """Make small samples, also of programs that are small themselves."""
    monkeypatch.setattr(samples, "MANY", 1)
    monkeypatch.setattr(samples, "UNIT", 16 * KiB)
    monkeypatch.setattr(samples, "SMALLEST", 1)


@pytest.mark.parametrize("part", range(3))
def test_random_plans_from_samples(of_any_size, part):
    """Pieces are small, so messages have many, and periods are long in some plans."""
    used = 0
    for number in range(part, 300, 3):
        draw = Random(number)
        for plan in example(number).plans:
            element = plan.signature.element
            if not ROWS[plan.signature.collective].recv:
                continue
            size = draw.choice([300, 1000, 1013]) * KiB // element * element
            whole = class_of(plan.signature.changed(count=size // element), size)
            large = plan.alike(whole)
            table = rules_of(plan.topology)
            if not samples._periodic(large) or len(large.tasks) > 500:
                continue
            if table.objection(largest_of(whole), plan.choice) is not None:
                continue
            rank = draw.randrange(plan.topology.size)
            found = lower_with_loops(large, rank)
            used += found.strides is not None and samples._of_samples(large, rank) is not None
            assert not differs(found, lower(large, rank)), (number, large, rank)
    assert used > 3


@pytest.mark.parametrize("element", [8, 4096, 5000, 1 << 19])
def test_footprints_of_large_elements_are_the_plans(element):
    inner = level_choice("sm", "flat", cells=64)
    choice = Choice((inner, level_choice("adapt", "chain")), 1 << 17)
    signature = Signature("bcast", (64 << 20) // element, element)
    topology = planner_of(8, 4, 0).topology
    plan = plan_of_choice(topology, class_of(signature, signature.nbytes), choice, 1 << 22)
    for rank in range(8):
        assert lower_with_loops(plan, rank).footprint == plan.footprint()


def test_programs_that_are_not_large_are_lowered_as_they_are(lowered):
    planner = planner_of(8, 8, 3)
    plan = plan_of_class("bcast", "64KiB", planner)
    assert planner.program(plan).strides is None
    assert lowered == [plan.signature.nbytes]


def test_a_submodule_says_that_larger_messages_repeat_operations(monkeypatch, lowered):
    plan = plan_of_class("allreduce", "64MiB", planner_of(8, 4, 0))
    monkeypatch.setattr(registered()["sm"], "periodic", False)
    assert not differs(lower_with_loops(plan, 0), lower(plan, 0))
    assert lowered == [plan.signature.nbytes]


def test_samples_that_show_no_group_tell_nothing():
    plan = plan_of_class("allreduce", "64MiB", planner_of(8, 4, 0))
    shorter, longer = (samples._sample(plan, 0, size) for size in (3 << 19, 4 << 19))
    assert period(shorter) * shorter.grain == 1 << 19
    assert repeated(shorter, longer, 5) is not None
    assert repeated(longer, shorter, 5) is None
    for size in (3 << 18, 5 << 17, 7 << 18):  # no whole period
        assert repeated(samples._sample(plan, 0, size), longer, 5) is None
    assert repeated(samples._sample(plan, 1, 3 << 19), longer, 5) is None  # another rank


@pytest.mark.parametrize("field", ["slot", "peer", "base", "task"])
def test_samples_that_differ_in_one_operation_tell_nothing(field):
    plan = plan_of_class("allreduce", "64MiB", planner_of(8, 4, 0))
    shorter, longer = (samples._sample(plan, 0, size) for size in (3 << 19, 4 << 19))
    code = longer.code.copy()
    code[field][len(code) // 2] += 1
    longer.__dict__["code"] = code
    assert repeated(shorter, longer, 5) is None


def test_scratch_memory_that_grows_is_seen():
    """Periods of 48 bytes: both samples need as many lines of scratch memory."""
    topology = virtual(15, 15)
    choice = Choice((level_choice("adapt", "by_rank", segment=64, window=1),))
    signature = Signature("reduce", 52607, 24, "op", "u8", False, False, 10)
    plan = plan_of_choice(topology, class_of(signature, signature.nbytes), choice, 1 << 22)
    shorter, longer = (samples._sample(plan, 0, size) for size in (51336, 51384))
    assert shorter.scratch == longer.scratch
    assert repeated(shorter, longer, 25232) is None


def test_sizes_of_parameters_that_samples_do_not_show(monkeypatch):
    """Of segments longer than a third of the first sample only a piece would be seen."""
    topology = planner_of(28, 17, 0).topology
    inner = level_choice("adapt", "chain", segment=4 * KiB + 8)
    for outer, of_samples in ((256, True), (768, False)):
        choice = Choice((inner, level_choice("adapt", "chain", segment=outer * KiB)))
        signature = class_of(Signature("bcast", 5 << 20), 5 << 20)
        plan = plan_of_choice(topology, signature, choice, 1 << 22)
        monkeypatch.setattr(samples, "MANY", 1)
        found = lower_with_loops(plan, 13)
        assert not differs(found, lower(plan, 13))
        assert (samples._of_samples(plan, 13) is not None) == of_samples


def test_names_of_tasks():
    names = TaskNames.of([("sr", 0), ("sr", 1), ("ir", 0), ("ir", 1), ("ir", 3)])
    assert list(names) == ["sr(0)", "sr(1)", "ir(0)", "ir(1)", "ir(3)"]
    assert (names[-1], names[1:3], len(names)) == ("ir(3)", ("sr(1)", "ir(0)"), 5)
    with pytest.raises(IndexError, match="task 5 of 5"):
        names[5]
    longer = TaskNames.of([("sr", k) for k in range(4)])
    assert TaskNames.of([("sr", 0), ("sr", 1)]).repeated(longer, 3) == TaskNames.of(
        [("sr", k) for k in range(8)]
    )
    assert names.repeated(longer, 3) is None


def _explained(size):
    plan = plan_of_class("bcast", size, planner_of(8, 4, 0))
    return SimpleNamespace(plan=plan.of_size(call_signature("bcast", size).nbytes)), plan


def test_proofs_are_of_the_programs_that_run():
    call, plan = _explained("8MiB")
    proof = prove(call, (plan, 0))
    told = sum(samples.from_samples(plan, rank) is not None for rank in range(8))
    assert told
    assert proof.of_class.sampled == told
    assert f"those that run; {told} are made from smaller messages" in str(proof)
    call, plan = _explained("64KiB")
    assert "the programs are those that run\n" in str(prove(call, (plan, 0)))


@pytest.mark.parametrize(("array", "field", "code"), [
    ("terms", "offset", Code.COPY), ("terms", "start", Code.IRECV), ("code", "n", Code.POST),
    ("strides", "start", None), ("strides", "n", None),
])  # fmt: skip
def test_proofs_find_a_wrong_record_of_a_program_from_samples(monkeypatch, array, field, code):
    changed = []

    def wrong(shorter, longer, times):
        program = repeated(shorter, longer, times)
        rows = None if program is None else _rows(program, array, field, code)
        if rows is None or not len(rows):
            return program
        records = getattr(program, array).copy()
        records[field][rows[-1]] += 1 if field in ("n", "start") else program.grain
        changed.append(program.rank)
        return replace(program, **{array: records})

    monkeypatch.setattr(samples, "repeated", wrong)
    call, plan = _explained("8MiB")
    with pytest.raises(HanError, match="refuted"):
        prove(call, (plan, 0))
    assert changed


def _rows(program, array, field, code):
    """Return the records of an operation, or the strides that are not 0."""
    if code is not None:
        return np.flatnonzero(program.code["code"] == code)
    values = program.strides[field]
    return np.flatnonzero(values.reshape(len(values), -1).any(axis=1))
