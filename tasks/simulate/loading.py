"""Programs of all ranks as flat records, with numbers for flags, messages and collectives.

The numbers are those of one run; the simulator adds the run. The k-th send of a sender, receiver
and tag is the same message as the k-th receive, because MPI keeps their order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from han.model.opcodes import FLAG_OPERATIONS, MESSAGES
from han.model.program import Area, Base, Code, Coll, Program
from han.tasks.equal_roles import Role
from han.tasks.plan import Plan
from han.tasks.simulate.places import Places
from han.tasks.simulate.shapes import OPERATION, Shape, wrong

Numbers = npt.NDArray[np.int64]
Ranks = tuple[int, ...]


@dataclass(frozen=True)
class Meeting:
    """A collective of the MPI library: its members, kind and bytes."""

    ranks: Ranks
    kind: int
    nbytes: int


@dataclass(frozen=True)
class Loaded:
    """All operations, where each rank's streams, operations and requests begin, and the counts."""

    operations: npt.NDArray[np.void]
    streams: Numbers  # start and stop of each stream
    first_stream: Numbers  # by rank
    first_request: Numbers
    flags: int
    messages: int
    meetings: list[Meeting]


class Loader:
    """Loads programs, one after the other, and joins them."""

    def __init__(self, plan: Plan, places: Places) -> None:
        self.plan, self.places = plan, places
        self.size = plan.topology.size
        self.pieces = [np.zeros(0, OPERATION)]
        self.streams: list[tuple[int, int]] = []
        self.first_stream, self.first_request, self.first_operation = [0], [0], [0]
        self.flags: list[Numbers] = []
        self.meetings: dict[tuple[object, int], int] = {}
        self.met: list[Meeting] = []
        self.written: list[tuple[int, ...]] = []
        self.shapes: dict[int, Shape] = {}  # by identity of the program, which the shape holds
        self.labels: list[tuple[tuple[str, ...], Sequence[str]]] = []  # of streams and tasks

    def load(self, role: Role) -> None:
        """Add the program of the next rank."""
        shape, rank, first = self._shape(role), role.rank, self.first_operation[-1]
        program, code, found = shape.program, shape.program.code, shape.operations.copy()
        found["n"][shape.awaits] += first
        if role.peers is not None:
            found["peer"][role.rows] = role.peers
            code = role.moved(code) if self.places.has_rates else code
        peers = found["peer"][shape.talks]
        if len(peers) and not 0 <= int(peers.min()) <= int(peers.max()) < self.size:
            raise wrong(program)
        found["level"] = self.places.rates(rank, code) if self.places.has_rates else 0
        found["level"][shape.talks] = self.places.levels(rank, peers)
        self.flags.append(self._lines(rank, *shape.lines))
        if shape.collectives:
            self._meet(program, found)
        self.pieces.append(found)
        self.streams += [(s.start + first, s.stop + first) for s in program.streams]
        self.first_operation.append(first + len(code))
        self.first_stream.append(len(self.streams))
        self.first_request.append(self.first_request[-1] + shape.requests)
        self.written.append(program.writes[: len(self.places.channels)])
        self.labels.append(shape.labels)

    def _shape(self, role: Role) -> Shape:
        """Return the shape of a rank's program; those of several ranks are kept."""
        element, key = self.plan.signature.element, id(role.first)
        if role.alone:
            return Shape.of(role.first, element)
        if key not in self.shapes:
            self.shapes[key] = Shape.of(role.first, element)
        return self.shapes[key]

    def _lines(self, rank: int, bases: Numbers, offsets: Numbers) -> Numbers:
        """Return one number for each flag, the same on all ranks that share its channel."""
        channel, area = np.divmod(bases.astype(np.int64) - Base.CHANNEL, len(Area))
        home = np.array([h[rank] for h in self.places.homes] or [0])[channel]
        lines: Numbers = ((home * len(Area) + area) << 48) + offsets.astype(np.int64)
        return lines

    def _meet(self, program: Program, found: npt.NDArray[np.void]) -> None:
        """Number the collectives of the MPI library: the k-th calls on a communicator meet."""
        calls: dict[object, int] = defaultdict(int)
        for row in np.flatnonzero(found["code"] == Code.COLL).tolist():
            _, ranks = comm = program.comms[int(program.code["off"][row, 3])]
            kind = int(program.code["off"][row, 2])
            key = comm, calls[comm]
            calls[comm] += 1
            if key not in self.meetings and not 0 <= min(ranks) <= max(ranks) < self.size:
                raise ValueError(f"rank {program.rank}: a communicator of ranks {ranks}")
            if key not in self.meetings:
                self.meetings[key] = len(self.met)
                self.met.append(Meeting(ranks, kind % Coll.BLOCKING, int(found["n"][row])))
            found["what"][row] = self.meetings[key]
            found["blocking"][row] = kind >= Coll.BLOCKING

    def writes(self) -> npt.NDArray[np.uint8]:
        """Return the bits of ``Program.writes``, by rank and channel."""
        found = np.zeros((self.size, len(self.places.channels)), np.uint8)
        for rank, writes in enumerate(self.written):
            found[rank, : len(writes)] = writes
        return found

    def loaded(self) -> Loaded:
        """Join the programs."""
        operations = np.concatenate(self.pieces)
        self.pieces.clear()
        lines, flags = np.unique(np.concatenate(self.flags), return_inverse=True)
        operations["what"][np.isin(operations["code"], FLAG_OPERATIONS)] = flags
        return Loaded(
            operations,
            np.array(self.streams, np.int64).reshape(-1, 2),
            np.array(self.first_stream),
            np.array(self.first_request),
            len(lines),
            self._number_messages(operations),
            self.met,
        )

    def _number_messages(self, operations: npt.NDArray[np.void]) -> int:
        """Give each message a number, the same in its send and its receive; return how many."""
        sides = []
        for code in MESSAGES:
            where = np.flatnonzero(operations["code"] == code)
            rank = np.searchsorted(self.first_operation, where, "right") - 1
            peer, tag = (operations[name][where].astype(np.int64) for name in ("peer", "what"))
            ends = (rank, peer) if code == Code.ISEND else (peer, rank)
            key = ((ends[0] * self.size + ends[1]) << 16) + tag
            order = np.argsort(key, kind="stable")
            sides.append((where[order], key[order]))
        keys = np.union1d(sides[0][1], sides[1][1])
        first = [np.searchsorted(key, keys) for _, key in sides]
        counts = [
            np.searchsorted(key, keys, "right") - k
            for (_, key), k in zip(sides, first, strict=True)
        ]
        most = np.maximum(*counts)
        starts = np.cumsum(most) - most
        for (where, key), k in zip(sides, first, strict=True):
            pair = np.searchsorted(keys, key)
            operations["what"][where] = starts[pair] + np.arange(len(where)) - k[pair]
        return int(most.sum())
