"""Proofs for all sizes of a class where memory is used in turn, by one stream or by several."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from machines import topology_of
from plans import planned, programs_of

from han.model.program import Area, Base, Program
from han.tasks.choice import Choice, level_choice
from han.tasks.lower import lower
from han.tasks.plan import Plan
from han.tasks.signature import Signature
from han.tasks.size_classes import class_of
from han.tasks.verify import Refuted, Unproved, verify, verify_class

KiB = 1024
CELLS = Base.CHANNEL + Area.CELLS
COUNTS = (5, 7, 9, 11, 12)
Frame = tuple[int, int, int]  # offset, blocks and origin


def exchange(algorithm: str, nodes: int) -> Plan:
    """Return a plan for a class in which nodes of one rank exchange messages."""
    one = class_of(Signature("allreduce", 2 * KiB, 8, "sum", "f8"), 16 * KiB)
    levels = tuple(level_choice("exchange", name) for name in ("copyin", algorithm))
    return planned(topology_of([[*range(nodes)], [0] * nodes], 0), one, Choice(levels))


def broadcast(segment: int = 64 * KiB) -> Plan:
    """Return a plan for a class in which tasks of two nodes use the same cells in turn."""
    one = class_of(Signature("bcast", 1024 * KiB), 1024 * KiB)
    levels = level_choice("sm", "flat"), level_choice("adapt", "binary")
    return planned(topology_of([[0] * 4 + [1] * 4, [0] * 8], 0), one, Choice(levels, segment))


def in_frame(program: Program, base: int, frame: Frame) -> npt.NDArray[np.bool_]:
    """Return which references are to a frame."""
    there: npt.NDArray[np.bool_] = program.code["base"] == base
    for name, value in zip(("offset", "blocks", "origin"), frame, strict=True):
        there &= program.terms[name] == value
    return there & (program.terms["each"] != 0)[:, None]


def moved(programs: Sequence[Program], base: int, frame: Frame) -> list[Program]:
    """Let a frame begin earlier: in the largest message, its grains stay where they are."""
    found = []
    for program in programs:
        terms, there = program.terms.copy(), in_frame(program, base, frame)
        by = min(frame[0] // program.grain, frame[2])
        terms["offset"][there] -= by * program.grain
        terms["origin"][there] -= by
        found.append(replace(program, terms=terms))
    return found


def frames_of(program: Program, base: int) -> list[Frame]:
    """Return the frames of a program's references, but those that begin with the memory."""
    rows, refs = np.nonzero((program.code["base"] == base) & (program.terms["each"] != 0)[:, None])
    columns = [program.terms[name][rows, refs].tolist() for name in ("offset", "blocks", "origin")]
    found = sorted({*zip(*columns, strict=True)})
    return [one for one in found if one[0] >= program.grain and one[2] >= 1]


@pytest.mark.parametrize("algorithm", ["cyclic", "scatter", "bruck", "recursive"])
def test_exchanges_in_messages_of_any_number_of_nodes_are_proved(algorithm):
    for nodes in COUNTS:
        verify_class(exchange(algorithm, nodes), in_place=bool(nodes % 2))


def test_broadcasts_whose_tasks_use_cells_in_turn_are_proved():
    plan = broadcast()
    writer = lower(plan, 0)
    cells = frames_of(writer, CELLS)
    assert len(cells) > len({offset for offset, _, _ in cells})  # several frames at one place
    report = verify_class(plan)
    assert f"sizes: all up to {plan.signature.bound} bytes" in str(report)


def check_refused(plan: Plan, ranks: slice, base: int, frames: slice, lines: int) -> None:
    """Move frames of some ranks: programs that are right for the largest message are refused."""
    programs, wrong = programs_of(plan), 0
    for frame in frames_of(programs[ranks][0], base)[frames]:
        changed = programs.copy()
        changed[ranks] = moved(programs[ranks], base, frame)
        assert is_right(plan, changed, plan.signature.nbytes)
        with pytest.raises(Unproved, match="grains"):
            verify_class(plan, programs=changed)
        wrong += not all(is_right(plan, changed, nbytes) for nbytes in shorter(plan, lines))
    assert wrong


@pytest.mark.parametrize("algorithm", ["cyclic", "scatter", "bruck", "recursive"])
def test_messages_that_reach_into_others_if_they_are_shorter_are_refused(algorithm):
    check_refused(exchange(algorithm, 7), slice(-1, None), Base.SCRATCH, slice(None), 12)


def test_cells_that_reach_into_others_if_they_are_shorter_are_refused():
    check_refused(broadcast(), slice(None), CELLS, slice(1, 3), 60)


def shorter(plan: Plan, lines: int) -> range:
    """Return sizes of some cache lines less than the largest one of a class."""
    return range(plan.signature.nbytes - 64 * lines, plan.signature.nbytes, 64)


def is_right(plan: Plan, programs: Sequence[Program], nbytes: int) -> bool:
    """Return whether programs are right for one size."""
    runs = [[program.at(nbytes) for program in programs]]
    try:
        verify([plan.of_size(nbytes)], programs=runs)
    except Refuted:
        return False
    return True
