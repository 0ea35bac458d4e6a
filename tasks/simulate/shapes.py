"""A program as records of the simulator, without what differs between ranks of the same role."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from han.model.opcodes import COMBINATIONS, FLAG_OPERATIONS, MESSAGES, REQUESTS
from han.model.program import Code, Program

Numbers = npt.NDArray[np.int64]

# The layout of `sim_op` (native/simulate/world.h).
OPERATION = np.dtype(
    [
        ("code", "u1"), ("level", "u1"), ("blocking", "u1"), ("what", "i4"), ("slot", "i4"),
        ("peer", "i4"), ("task", "u4"), ("n", "i8"),
    ],
    align=True,
)  # fmt: skip


@dataclass(frozen=True)
class Shape:
    """A program, its operations, and which of them depend on the rank.

    `awaits` count from the first operation of all ranks; `talks` are messages, whose tag is in
    `what` until messages have numbers; `lines` are the bases and offsets of flags.
    """

    program: Program
    operations: npt.NDArray[np.void]
    awaits: Numbers
    talks: Numbers
    lines: tuple[Numbers, Numbers]
    requests: int
    collectives: bool
    labels: tuple[tuple[str, ...], Sequence[str]]  # of streams and tasks

    @classmethod
    def of(cls, program: Program, element: int) -> Shape:
        """Return the shape of a program that combines elements of `element` bytes.

        Raises ValueError if an operation names a stream or place that does not exist.
        """
        code = program.code
        codes, found = code["code"], np.zeros(len(code), OPERATION)
        for name in ("code", "peer", "task", "slot", "n"):
            found[name] = code[name]
        found["n"][np.isin(codes, COMBINATIONS)] *= element
        awaits = np.flatnonzero(codes == Code.AWAIT)
        found["what"][awaits] = code["peer"][awaits]
        talks = np.flatnonzero(np.isin(codes, MESSAGES))
        found["what"][talks] = code["stream"][talks]
        _check(program, found)
        flags = np.isin(codes, FLAG_OPERATIONS)
        slots = found["slot"][np.isin(codes, REQUESTS)]
        return cls(
            program,
            found,
            awaits,
            talks,
            (code["base"][flags, 0], code["off"][flags, 0]),
            int(slots.max(initial=-1)) + 1,
            bool((codes == Code.COLL).any()),
            (tuple(s.name for s in program.streams), program.tasks),
        )


def wrong(program: Program) -> ValueError:
    """Return the error of a program that names what does not exist."""
    return ValueError(f"rank {program.rank}: its program names things that do not exist")


def _check(program: Program, found: npt.NDArray[np.void]) -> None:
    codes, stops = found["code"], [(s.start, s.stop) for s in program.streams]
    streams = found["what"][codes == Code.AWAIT]
    if (
        (codes >= len(Code)).any()
        or ((streams < 0) | (streams >= len(stops))).any()
        or (found["slot"] < 0).any()
        or any(not 0 <= start <= stop <= len(codes) for start, stop in stops)
    ):
        raise wrong(program)
