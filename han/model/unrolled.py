"""Programs without their loops, as the executor carries them out."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from han.model.loops import STRIDES
from han.model.program import LOOP, Code, Program, StreamInfo

Array = npt.NDArray[Any]

_OF_CODE = ("off", "n", "task", "peer", "base")
_OF_TERMS = {"offset": "offset", "start": "start", "stop": "start", "origin": "origin",
             "block": "block", "blocks": "blocks"}  # fmt: skip


def unroll(program: Program) -> Program:
    """Return the program without loops, as the executor carries it out."""
    if program.strides is None:
        return program
    parts = [_unrolled(program.code, stream) for stream in program.streams]
    ends = np.cumsum([0, *(len(rows) for rows, _, _ in parts)]).tolist()
    rows, turns, strides = (np.concatenate(column) for column in zip(*parts, strict=True))
    added = np.append(program.strides, np.zeros(1, STRIDES))[strides]  # stride -1: none
    code = program.code[rows].copy()
    for name in _OF_CODE:
        code[name] += _times(added[name], turns).astype(code[name].dtype)
    terms = None
    if program.terms is not None:
        terms = program.terms[rows].copy()
        for name, stride in _OF_TERMS.items():
            terms[name] += _times(added[stride], turns).astype(terms[name].dtype)
    bounds = tuple(pairwise(ends))
    awaits = np.flatnonzero(code["code"] == Code.AWAIT)
    shifts = np.array([end - s.start for end, s in zip(ends, program.streams, strict=False)])
    code["n"][awaits] += shifts[code["peer"][awaits]].astype("u8")
    streams = tuple(
        replace(s, start=start, stop=stop)
        for s, (start, stop) in zip(program.streams, bounds, strict=True)
    )
    return replace(program, code=code, terms=terms, strides=None, streams=streams)


def _times(stride: Array, turns: Array) -> Array:
    """Return strides times turns, modulo the width of the strides."""
    factors = turns.reshape(-1, *[1] * (stride.ndim - 1)).astype(stride.dtype)
    return np.asarray(stride * factors)


def _unrolled(code: Array, stream: StreamInfo) -> tuple[Array, Array, Array]:
    """Return the record of each operation of a stream, its turn in a loop, and its stride or -1."""
    rows, turns, strides = list[Array](), list[Array](), list[Array]()
    at = stream.start
    ends = np.flatnonzero(code["code"][stream.start : stream.stop] == LOOP) + stream.start
    for end in [*ends.tolist(), stream.stop]:
        length, times, first = 0, 0, 0
        if end < stream.stop:
            length, times = int(code["n"][end]), int(code["off"][end, 0])
            first = int(code["off"][end, 1])
        before = np.arange(at, end - length)
        inside = np.arange(end - length, end)
        rows += [before, np.tile(inside, times)]
        turns += [np.zeros(len(before), np.intp), np.repeat(np.arange(times), length)]
        strides += [np.full(len(before), -1), np.tile(np.arange(first, first + length), times)]
        at = end + 1
    return np.concatenate(rows), np.concatenate(turns), np.concatenate(strides)
