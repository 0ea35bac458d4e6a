"""Loops of programs: what runs with loops is what was proved without."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from machines import plan_of_class, planner_of
from random_plans import example

from han import _native
from han.model import loops
from han.model.loops import LEAST, STRIDES, roll, unroll
from han.model.program import INSTRUCTION, LOOP, Code, Program, StreamInfo
from han.tasks.lower import lower

NOWHERE = (0,) * 8


def same(a: Program, b: Program) -> bool:
    """Return whether two programs have the same records."""
    terms = a.terms is b.terms is None or np.array_equal(a.terms, b.terms)
    return bool(terms and np.array_equal(a.code, b.code) and a.streams == b.streams)


def program_of(records: list[tuple[int, ...]], streams: int = 1) -> Program:
    """Return a program of records (code, peer, offset, n, task) in streams of equal length."""
    code = np.zeros(len(records), INSTRUCTION)
    each = len(records) // streams
    for row, (kind, peer, offset, n, task) in zip(code, records, strict=True):
        row["code"], row["peer"], row["off"][0], row["n"], row["task"] = kind, peer, offset, n, task
    found = tuple(StreamInfo(f"s{k}", "sr", 0, k * each, (k + 1) * each) for k in range(streams))
    return Program(0, code, found, (), 0, 0, 0, NOWHERE, NOWHERE, False, ())


@pytest.mark.parametrize(
    ("collective", "size", "ranks", "ppn", "most"),
    [
        ("allreduce", "1MiB", 128, 128, 0.06),  # with each of its peers the same
        ("bcast", "64MiB", 8, 4, 0.02),  # pieces of a message through cells and in messages
        ("allreduce", "64MiB", 8, 4, 0.02),
        ("reduce_scatter", "16MiB", 8, 8, 0.01),
        ("alltoall", "16MiB", 8, 8, 0.01),
    ],
)
def test_large_programs_are_small_with_loops(collective, size, ranks, ppn, most):
    plan = plan_of_class(collective, size, planner_of(ranks, ppn, 0))
    for rank in {0, 1, ppn - 1, ranks // 2, ranks - 1}:
        program = lower(plan, rank)
        assert len(program.code) > LEAST
        rolled = roll(program)
        assert len(rolled.code) <= most * len(program.code)
        assert rolled.nbytes < program.nbytes / 4
        assert same(unroll(rolled), program)
        assert int(rolled.times.sum()) == len(program.code)


@pytest.fixture
def all_sizes(monkeypatch):
    """Let small programs have loops, too."""
    monkeypatch.setattr(loops, "LEAST", 1)


CASES = settings(
    max_examples=75, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@CASES
@given(st.integers(0, 1 << 30))
def test_random_plans_are_the_same_without_their_loops(all_sizes, number):
    for plan in example(number).plans:
        for rank in range(plan.topology.size):
            program = lower(plan, rank)
            assert same(unroll(roll(program)), program)


@CASES
@given(st.data())
def test_records_with_few_values_are_the_same_without_their_loops(all_sizes, data):
    """Small numbers make many loops, also ones that end early, begin late or follow each other."""
    kinds, number = (Code.WAIT, Code.POST, Code.COPY), st.integers(0, 2)
    groups = st.lists(st.tuples(number, number, number, number, number), min_size=1, max_size=6)
    records: list[tuple[int, ...]] = []
    for _ in range(data.draw(st.integers(1, 5))):
        group, stride = data.draw(groups), data.draw(st.tuples(number, number, number))
        for k in range(data.draw(st.integers(1, 12))):
            peer, offset, n = (k * by for by in stride)
            records += [
                (kinds[c], p + peer, 64 * (o + offset), m + n, t + k) for c, p, o, m, t in group
            ]
    program = program_of([*records, *records], streams=2)
    assert same(unroll(roll(program)), program)


def test_positions_that_streams_await_count_each_time_of_a_loop(all_sizes):
    waits = [(Code.WAIT, 0, 0, k, k) for k in range(100)]
    awaits = [(Code.AWAIT, 0, 0, k + 1, k) for k in range(100)]
    program = program_of([*waits, *awaits], streams=2)
    rolled = roll(program)
    assert [s.stop - s.start for s in rolled.streams] == [2, 2]
    assert same(unroll(rolled), program)


def test_streams_that_are_awaited_in_turn_are_counted_each_from_its_own_beginning(all_sizes):
    waits = [(Code.WAIT, 0, 0, k, k) for stream in range(19) for k in range(30)]
    awaits = [(Code.AWAIT, peer, 0, 30 * (peer + 1), 0) for peer in range(19)]
    program = program_of([*waits, *awaits, *[(Code.COPY, 0, 0, 8, 0)] * 11], streams=20)
    assert same(unroll(roll(program)), program)


def test_small_programs_and_those_without_repetition_stay():
    few = program_of([(Code.WAIT, 0, 0, k, 0) for k in range(LEAST - 1)])
    assert roll(few) is few
    squares = program_of([(Code.WAIT, 0, 0, k * k, 0) for k in range(LEAST)])
    assert roll(squares) is squares


@pytest.mark.parametrize("streams", [((0, 2),), ((0, 1), (2, 3)), ((1, 3),)])
def test_streams_that_do_not_divide_the_code_are_an_error(streams):
    with pytest.raises(ValueError, match="do not divide 3 operations"):
        _native.rolled(np.zeros(3, INSTRUCTION), None, streams)


def looped(**fields: int) -> dict[str, object]:
    """Return the records of a loop of two operations, with some fields of its mark replaced."""
    code = np.zeros(3, INSTRUCTION)
    values = {"code": LOOP, "n": 2, "times": 5, "first": 0, **fields}
    code[2]["code"], code[2]["n"] = values["code"], values["n"]
    code[2]["off"][:2] = values["times"], values["first"]
    program = Program(
        0, code, (StreamInfo("s", "sr", 0, 0, 3),), (), 0, 0, 0, NOWHERE, NOWHERE, False, (),
        strides=np.zeros(2, STRIDES),
    )  # fmt: skip
    return program.records


@pytest.mark.parametrize(
    "fields", [{"n": 3}, {"n": 0}, {"times": 1}, {"first": 1}, {"times": 1 << 33}]
)
def test_a_loop_that_does_not_fit_its_records_is_an_error(fields):
    engine = _native.Engine.__new__(_native.Engine)
    rest = {
        "footprint": NOWHERE, "brief": False, "signature": 0, "kernel": (-1, -1), "element": 1,
        "op": 0, "dtype": 0, "operand": 0, "comms": (), "scratch": None,
        "keep": None,
    }  # fmt: skip
    engine.plan(**looped(), **rest)
    with pytest.raises(ValueError, match="the loop that ends at record 2 does not fit"):
        engine.plan(**looped(**fields), **rest)


def test_only_programs_that_run_have_loops():
    program = roll(lower(plan_of_class("alltoall", "16MiB", planner_of(8, 8, 0)), 0))
    assert program.strides is not None
    with pytest.raises(AssertionError, match="programs that run"):
        program.at(8)
    assert replace(unroll(program), strides=None).at(8).strides is None
