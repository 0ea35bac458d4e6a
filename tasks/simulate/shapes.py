"""A program as records of the simulator, apart from what differs between ranks of one shape.

Ranks have one shape if their operations are alike but for the numbers of flags and peers. What an
operation names is then a number among the names of its rank: flags, then messages to or from a peer
with some tag, then collectives of the MPI library, each in the order in which they first appear.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from han.model.opcodes import COMBINATIONS, FLAG_OPERATIONS, MESSAGES, REQUESTS
from han.model.program import Code, Coll, Program

Numbers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def _one_of(codes: Sequence[Code]) -> Mask:
    """Return which codes are among some: an index into it is much faster than ``np.isin``."""
    return np.isin(np.arange(256), codes)


COMBINE, FLAG, MESSAGE, REQUEST = map(_one_of, (COMBINATIONS, FLAG_OPERATIONS, MESSAGES, REQUESTS))

# The layout of `sim_op` (native/simulate/world.h).
OPERATION = np.dtype(
    [
        ("code", "u1"), ("row", "u1"), ("blocking", "u1"), ("name", "i4"), ("number", "i4"),
        ("slot", "i4"), ("task", "u4"), ("n", "i8"),
    ],
    align=True,
)  # fmt: skip


@dataclass(frozen=True)
class Shape:
    """A program and its operations, and where it has its names.

    `awaits` count from the first of its operations. `lines` are the bases and offsets of flags;
    `talks` are the operations that first send to a peer or receive from it, with their tags and
    how many messages there are; `calls` are collectives.
    """

    program: Program
    operations: npt.NDArray[np.void]
    awaits: Numbers
    lines: tuple[Numbers, Numbers]
    talks: Numbers
    tags: Numbers
    counts: Numbers
    calls: Numbers
    requests: int
    labels: tuple[tuple[str, ...], Sequence[str]]  # of streams and tasks

    @classmethod
    def of(cls, program: Program, element: int) -> Shape:
        """Return the shape of a program that combines elements of `element` bytes.

        Raises ValueError if an operation names a stream or place that does not exist.
        """
        code = program.code
        codes, found = code["code"], np.zeros(len(code), OPERATION)
        for name in ("code", "task", "slot", "n"):
            found[name] = code[name]
        found["n"][COMBINE[codes]] *= element
        awaits = np.flatnonzero(codes == Code.AWAIT)
        found["name"][awaits] = code["peer"][awaits]
        _check(program, found)
        flags = np.flatnonzero(FLAG[codes])
        bases, offsets = (code[name][flags, 0].astype(np.int64) for name in ("base", "off"))
        first, found["name"][flags] = _numbered((bases << 48) + offsets)
        bases, offsets = bases[first], offsets[first]
        talks, counts = _messages(code, found, len(first))
        calls = np.flatnonzero(codes == Code.COLL)
        found["name"][calls] = len(first) + len(talks) + np.arange(len(calls))
        kinds = code["off"][calls, 2]
        found["blocking"][calls] = kinds >= Coll.BLOCKING
        found["n"][calls[kinds % Coll.BLOCKING != Coll.BCAST]] *= element
        slots = found["slot"][REQUEST[codes]]
        return cls(
            program,
            found,
            awaits,
            (bases, offsets),
            talks,
            code["stream"][talks].astype(np.int64),
            counts,
            calls,
            int(slots.max(initial=-1)) + 1,
            (tuple(s.name for s in program.streams), program.tasks),
        )


def _numbered(keys: Numbers) -> tuple[Numbers, Numbers]:
    """Number keys as they appear; return where each one is first, and all numbers."""
    _, first, found = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first)
    numbers = np.empty_like(order)
    numbers[order] = np.arange(len(order))
    return first[order], numbers[found]


def _messages(
    code: npt.NDArray[np.void], found: npt.NDArray[np.void], names: int
) -> tuple[Numbers, Numbers]:
    """Name messages by peer, tag and direction, and count those of each name in their order.

    Return the first operations of the names, and the counts.
    """
    where = np.flatnonzero(MESSAGE[code["code"]])
    peers, tags = (code[name][where].astype(np.int64) for name in ("peer", "stream"))
    sends = code["code"][where] == Code.ISEND
    first, numbers = _numbered((peers << 17) + (tags << 1) + sends)
    counts = np.bincount(numbers, minlength=len(first))
    order = np.argsort(numbers, kind="stable")
    found["name"][where] = names + numbers
    found["number"][where[order]] = np.arange(len(where)) - np.repeat(
        np.cumsum(counts) - counts, counts
    )
    return where[first], counts


def wrong(program: Program) -> ValueError:
    """Return the error of a program that names what does not exist."""
    return ValueError(f"rank {program.rank}: its program names things that do not exist")


def _check(program: Program, found: npt.NDArray[np.void]) -> None:
    codes, stops = found["code"], [(s.start, s.stop) for s in program.streams]
    streams = found["name"][codes == Code.AWAIT]
    if (
        (codes >= len(Code)).any()
        or ((streams < 0) | (streams >= len(stops))).any()
        or (found["slot"] < 0).any()
        or any(not 0 <= start <= stop <= len(codes) for start, stop in stops)
    ):
        raise wrong(program)
