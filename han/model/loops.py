"""Loops of a program: groups of operations that repeat with constant strides are stored once.

A large program is mostly repetition: pieces of a message that go through the same cells, or what a
rank does with each of its peers. Where a group of records repeats, each of which differs from that
before it by the same stride, the records of the first time stay, followed by a mark (``LOOP``): how
many records, how often, and which strides. The executor adds the strides after each time
(``han/native/engine/loops.h``), so it carries out the same operations. Everything else reads
programs without loops.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from han import _native
from han.model.channel_layout import LINE
from han.model.program import INSTRUCTION, LOOP, TERMS, Code, Program, StreamInfo
from han.model.task_names import TaskNames

if TYPE_CHECKING:
    Indices = npt.NDArray[np.intp]

# What changes in an operation and its term from one time to the next, modulo the width of each
# field; `start` is that of the term's `stop` too. native/program.h: han_stride.
STRIDES = np.dtype(
    [
        ("off", "u8", 4),
        ("offset", "u8", 4),
        ("n", "u8"),
        ("start", "u4"),
        ("origin", "u4", 4),
        ("block", "u4"),
        ("task", "u4"),
        ("peer", "i4"),
        ("base", "u2", 4),
        ("blocks", "u2", 4),
    ]
)
LEAST = 2048  # records; fewer fit into a second-level cache, and loops would only take time


def roll(program: Program) -> Program:
    """Return the program with loops.

    It is the same one if it has fewer than LEAST records, or loops would save less than half. In
    one for own sizes each record depends on a block of its own.
    """
    if program.own or len(program.code) < LEAST:
        return program
    found = _native.rolled(*_records(program))
    return program if found is None else replace(program, **_fields(program, found))


def period(program: Program) -> int:
    """Return after how many grains of the message all streams repeat; 0: none was found."""
    return _native.period(*_records(program))


def repeated(shorter: Program, longer: Program, times: int) -> Program | None:
    """Return the program of a longer message than those of two samples, with loops.

    It is longer than that of the shorter one by `times` times what the samples differ by. In each
    stream the longer sample repeats a group of operations once more, and so does the program again
    and again. None if the samples do not show this, or differ in what they need besides memory.
    The footprint is that of the shorter one.
    """
    tasks = _more_tasks(shorter, longer, times)
    if tasks is None or any(getattr(shorter, name) != getattr(longer, name) for name in _ALIKE):
        return None
    grains, scratch = longer.grains - shorter.grains, longer.scratch - shorter.scratch
    if scratch < 0 or (longer.scratch and grains * longer.grain % LINE):
        return None  # scratch memory is in whole lines, so it might grow without being seen
    found = _native.repeated(_records(shorter), _records(longer), grains, scratch, times)
    if found is None:
        return None
    return replace(
        shorter,
        tasks=tasks,
        scratch=shorter.scratch + times * scratch,
        grains=shorter.grains + times * grains,
        **_fields(shorter, found),
    )


_ALIKE = ("rank", "requests", "operand", "writes", "sync", "comms", "grain", "blocks")


def _more_tasks(shorter: Program, longer: Program, times: int) -> TaskNames | None:
    a, b = shorter.tasks, longer.tasks
    return a.repeated(b, times) if isinstance(a, TaskNames) and isinstance(b, TaskNames) else None


def _records(program: Program) -> tuple[Any, ...]:
    return tuple([program.records[name] for name in ("code", "terms", "streams")])


def _fields(program: Program, found: tuple[Any, ...]) -> dict[str, Any]:
    """Return the fields of a program that records with loops change."""
    code, terms, strides, bounds = found
    return {
        "code": np.frombuffer(code, INSTRUCTION),
        "terms": None if program.terms is None else np.frombuffer(terms, TERMS),
        "strides": np.frombuffer(strides, STRIDES),
        "streams": _moved(program.streams, bounds),
    }


def _moved(
    streams: tuple[StreamInfo, ...], bounds: tuple[tuple[int, int], ...]
) -> tuple[StreamInfo, ...]:
    """Return streams whose operations are elsewhere in the code."""
    return tuple(
        replace(s, start=start, stop=stop) for s, (start, stop) in zip(streams, bounds, strict=True)
    )


Array = npt.NDArray[Any]

_OF_CODE = ("off", "n", "task", "peer", "base")
_OF_TERMS = {"offset": "offset", "start": "start", "stop": "start", "origin": "origin",
             "block": "block", "blocks": "blocks"}  # fmt: skip


def unroll(program: Program) -> Program:
    """Return the program without loops, as the executor carries it out."""
    if program.strides is None:
        return program
    rows, turns, strides = _unrolled(program.code)
    # where each record is afterwards
    starts = np.append(0, np.cumsum(program.times, dtype=np.int64)).tolist()
    added = np.append(program.strides, np.zeros(1, STRIDES))[strides]  # stride -1: none
    code = program.code[rows].copy()
    for name in _OF_CODE:
        code[name] += _times(added[name], turns).astype(code[name].dtype)
    terms = None
    if program.terms is not None:
        terms = program.terms[rows].copy()
        for name, stride in _OF_TERMS.items():
            terms[name] += _times(added[stride], turns).astype(terms[name].dtype)
    awaits = np.flatnonzero(code["code"] == Code.AWAIT)
    shifts = np.array([starts[s.start] - s.start for s in program.streams])
    code["n"][awaits] += shifts[code["peer"][awaits]].astype("u8")
    bounds = tuple((starts[s.start], starts[s.stop]) for s in program.streams)
    streams = _moved(program.streams, bounds)
    return replace(program, code=code, terms=terms, strides=None, streams=streams)


def _times(stride: Array, turns: Array) -> Array:
    """Return strides times turns, modulo the width of the strides."""
    factors = turns.reshape(-1, *[1] * (stride.ndim - 1)).astype(stride.dtype)
    return np.asarray(stride * factors)


def _unrolled(code: Array) -> tuple[Array, Array, Array]:
    """Return the record of each operation, its turn in a loop, and its stride or -1."""
    rows, turns, strides = list[Array](), list[Array](), list[Array]()
    at = 0
    for end in [*np.flatnonzero(code["code"] == LOOP).tolist(), len(code)]:
        length, times, first = 0, 0, 0
        if end < len(code):
            length, times = int(code["n"][end]), int(code["off"][end, 0])
            first = int(code["off"][end, 1])
        before = np.arange(at, end - length)
        inside = np.arange(end - length, end)
        rows += [before, np.tile(inside, times)]
        turns += [np.zeros(len(before), np.intp), np.repeat(np.arange(times), length)]
        strides += [np.full(len(before), -1), np.tile(np.arange(first, first + length), times)]
        at = end + 1
    return np.concatenate(rows), np.concatenate(turns), np.concatenate(strides)
