"""Programs of all ranks as flat records, with numbers for flags, messages and collectives.

The numbers are those of one run; the simulator adds the run. The k-th send of a sender, receiver
and tag is the same message as the k-th receive, because MPI keeps their order.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from han.model.opcodes import COMBINATIONS, FLAG_OPERATIONS, MESSAGES, REQUESTS
from han.model.program import Area, Base, Code, Coll, Program
from han.tasks.plan import Plan
from han.tasks.simulate.places import Places

Numbers = npt.NDArray[np.int64]
Ranks = tuple[int, ...]

# The layout of `sim_op` (native/simulate/world.h).
OPERATION = np.dtype(
    [
        ("code", "u1"), ("level", "u1"), ("blocking", "u1"), ("what", "i4"), ("slot", "i4"),
        ("peer", "i4"), ("task", "u4"), ("n", "i8"),
    ],
    align=True,
)  # fmt: skip


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
        self.labels: list[tuple[tuple[str, ...], tuple[str, ...]]] = []  # of streams and tasks

    def load(self, program: Program) -> None:
        """Add the program of the next rank."""
        code, rank, first = program.code, program.rank, self.first_operation[-1]
        found = np.zeros(len(code), OPERATION)
        codes = code["code"]
        for name in ("code", "peer", "task", "slot", "n"):
            found[name] = code[name]
        found["n"][np.isin(codes, COMBINATIONS)] *= self.plan.signature.element
        awaits = codes == Code.AWAIT
        found["what"][awaits] = code["peer"][awaits]
        found["n"][awaits] += first
        talks = np.isin(codes, MESSAGES)
        found["what"][talks] = code["stream"][talks]  # the tag, until messages have numbers
        self._check(program, found)
        found["level"] = self.places.rates(rank, code)
        found["level"][talks] = self.places.levels(rank, code["peer"][talks])
        flags = np.isin(codes, FLAG_OPERATIONS)
        self.flags.append(self._lines(rank, code["base"][flags, 0], code["off"][flags, 0]))
        self._meet(program, found)
        self.pieces.append(found)
        self.streams += [(s.start + first, s.stop + first) for s in program.streams]
        self.first_operation.append(first + len(code))
        self.first_stream.append(len(self.streams))
        slots = found["slot"][np.isin(codes, REQUESTS)]
        self.first_request.append(self.first_request[-1] + int(slots.max(initial=-1)) + 1)
        self.written.append(program.writes[: len(self.places.channels)])
        self.labels.append((tuple(s.name for s in program.streams), program.tasks))

    def _check(self, program: Program, found: npt.NDArray[np.void]) -> None:
        """Raise ValueError if an operation names a rank, stream or place that does not exist."""
        codes = found["code"]
        peers = found["peer"][np.isin(codes, MESSAGES)]
        streams = found["what"][codes == Code.AWAIT]
        stops = [(s.start, s.stop) for s in program.streams]
        if (
            (codes >= len(Code)).any()
            or ((peers < 0) | (peers >= self.size)).any()
            or ((streams < 0) | (streams >= len(stops))).any()
            or (found["slot"] < 0).any()
            or any(not 0 <= start <= stop <= len(codes) for start, stop in stops)
        ):
            raise ValueError(f"rank {program.rank}: its program names things that do not exist")

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
