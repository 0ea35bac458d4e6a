"""Programs as plain lists of the fields that the simulator reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from han.model.opcodes import COMBINATIONS, FLAG_OPERATIONS
from han.model.program import Area, Base, Code, Program
from han.tasks.plan import Plan
from han.tasks.verify.places import Ring


@dataclass(frozen=True)
class Loaded:
    """One rank's program by columns; `what` is the number of a flag, a request or a stream."""

    code: list[int]
    n: list[int]  # bytes, or the value of a flag, or a position
    what: list[int]
    peer: list[int]
    task: list[int]
    bounds: list[tuple[int, int]]
    tags: list[int]
    program: Program


class Loader:
    """Loads programs; a flag has the same number on all ranks that share its channel."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.channels = [k for k, g in enumerate(plan.geometries) if g is not None]
        self.flags: dict[tuple[int, int, int], int] = {}

    def load(self, program: Program) -> Loaded:
        """Return the columns of a program."""
        code = program.code
        codes = code["code"]
        n = code["n"].astype(np.int64)
        n[np.isin(codes, COMBINATIONS)] *= self.plan.signature.element
        what = code["slot"].astype(np.int64)
        awaits = codes == Code.AWAIT
        what[awaits] = code["peer"][awaits]
        flags = np.isin(codes, FLAG_OPERATIONS)
        what[flags] = self._flags(program.rank, code["base"][flags, 0], code["off"][flags, 0])
        return Loaded(
            codes.tolist(),
            n.tolist(),
            what.tolist(),
            code["peer"].tolist(),
            code["task"].tolist(),
            [(s.start, s.stop) for s in program.streams],
            code["stream"].tolist(),
            program,
        )

    def _flags(self, rank: int, bases: Sequence[int], offsets: Sequence[int]) -> list[int]:
        numbers, topology = self.flags, self.plan.topology
        homes = [topology.home(level, rank)[0] for level in self.channels]
        found = []
        for base, offset in zip(bases, offsets, strict=True):
            home = homes[(int(base) - Base.CHANNEL) // len(Area)]
            key = (int(base), home, int(offset))
            found.append(numbers.setdefault(key, len(numbers)))
        return found


def gates(plan: Plan, runs: int) -> list[tuple[int, ...]]:
    """Return, for each run and channel, how many runs must end before its cells are free."""
    rings = [Ring(g.ring) for g in plan.geometries if g is not None]
    footprint = plan.footprint()
    found = []
    for run in range(runs):
        for ring, nbytes in zip(rings, footprint, strict=True):
            ring.take(run, nbytes)
        found.append(tuple(ring.needed for ring in rings))
    return found
