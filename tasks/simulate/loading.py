"""Programs of all ranks as flat records, with numbers for flags, messages and collectives.

The operations of ranks whose programs are alike are there once (:mod:`han.tasks.simulate.shapes`);
each rank has a table of what they name. The numbers are those of one run; the simulator adds the
run. The k-th send of a sender, receiver and tag is the same message as the k-th receive, because
MPI keeps their order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from han.model.program import Area, Base, Code, Coll
from han.tasks.equal_roles import Role
from han.tasks.plan import Plan
from han.tasks.simulate.placement import Placement
from han.tasks.simulate.shapes import OPERATION, Shape, wrong

Numbers = npt.NDArray[np.int64]
Ranks = tuple[int, ...]

# The layout of `sim_name` (native/simulate/world.h).
NAME = np.dtype([("what", "i4"), ("peer", "i4"), ("level", "i4")])
# What messages of a rank have in common: the sender, the receiver, the tag, and how many they are.
TALK = np.dtype([("source", "i8"), ("target", "i8"), ("tag", "i8"), ("count", "i8")])


@dataclass(frozen=True)
class Meeting:
    """A collective of the MPI library: its members with the root first, kind and bytes."""

    ranks: Ranks
    kind: int
    nbytes: int


class Loader:
    """Loads programs, one after the other, and joins them.

    `pieces` are the operations, and `streams` where each stream starts and stops in them. `shapes`
    are those that earlier simulations of the same programs found, and serve later ones.
    """

    def __init__(
        self, plan: Plan, places: Placement, shapes: dict[int, Shape] | None = None
    ) -> None:
        self.plan, self.places = plan, places
        self.size = plan.topology.size
        self.pieces = [np.zeros(0, OPERATION)]
        self.streams: list[tuple[int, int]] = []
        self.first_stream, self.first_operation = [0], [0]
        self.requests: list[int] = []
        self.numbers: list[int] = []  # of the ranks' shapes
        self.names: list[npt.NDArray[np.void]] = [np.zeros(0, NAME)]
        self.first_name = [0]
        self.flags: list[Numbers] = [np.zeros(0, np.int64)]
        self.talks: list[npt.NDArray[np.void]] = [np.zeros(0, TALK)]
        self.meetings: dict[tuple[object, int], int] = {}
        self.met: list[Meeting] = []
        self.written: list[tuple[int, ...]] = []
        self.keeps_all = shapes is not None
        # By identity of the program, which the shape holds.
        self.shapes: dict[int, Shape] = {} if shapes is None else shapes
        self.known: dict[Hashable, int] = {}  # the number of a shape, by all that it says
        self.labels: list[tuple[tuple[str, ...], Sequence[str]]] = []  # of streams and tasks

    def load(self, role: Role) -> None:
        """Add the program of the next rank."""
        shape, rank = self._shape(role), role.rank
        peers = role.peers_at(shape.talks)
        if len(peers) and not 0 <= int(peers.min()) <= int(peers.max()) < self.size:
            raise wrong(shape.program)
        self.numbers.append(self._number(role, shape))
        lines = self._lines(rank, *shape.lines)
        names = np.zeros(len(lines) + len(peers) + len(shape.calls), NAME)
        talks = names[len(lines) : len(lines) + len(peers)]
        levels = self.places.levels(rank, peers)
        talks["peer"] = peers
        talks["level"] = np.where(self._offloaded(shape), self.places.outside(levels), levels)
        names["what"][len(lines) + len(peers) :] = self._meet(shape)
        self.flags.append(lines)
        self.talks.append(self._talks(rank, shape, peers))
        self.names.append(names)
        self.first_name.append(self.first_name[-1] + len(names))
        self.written.append(shape.program.writes[: len(self.places.channels)])
        self.labels.append(shape.labels)

    def _offloaded(self, shape: Shape) -> npt.NDArray[np.bool_]:
        """Return which messages adapters carry although their level works in memory."""
        found = np.zeros(len(shape.talks), np.bool_)
        for stream in shape.program.streams:
            if self.plan.parts[stream.level].in_memory:
                found |= (stream.start <= shape.talks) & (shape.talks < stream.stop)
        return found

    def _shape(self, role: Role) -> Shape:
        """Return the shape of a rank's program; those of several ranks are kept."""
        element, key = self.plan.signature.element, id(role.first)
        if role.alone and not self.keeps_all:
            return Shape.of(role.first, element)
        if key not in self.shapes:
            self.shapes[key] = Shape.of(role.first, element)
        return self.shapes[key]

    def _number(self, role: Role, shape: Shape) -> int:
        """Return the number of a rank's shape: another rank of the same shape has it too."""
        rates = self.places.rates(role) if self.places.has_rates else None
        kept = id(shape), None if rates is None else rates.tobytes()
        found = None if role.alone else self.known.get(kept)
        if found is None:
            found = self._add(shape, rates)
            if not role.alone:
                self.known[kept] = found
        return found

    def _add(self, shape: Shape, rates: Numbers | None) -> int:
        """Add the operations of a shape, unless they are there; return its number."""
        operations, streams = shape.operations, shape.program.streams
        if rates is not None:
            operations = operations.copy()
            operations["row"] = rates
        spans = tuple((s.start, s.stop) for s in streams)
        key = operations.tobytes(), spans, shape.requests
        if key in self.known:
            return self.known[key]
        found = self.known[key] = len(self.requests)
        first = self.first_operation[-1]
        operations = operations.copy()
        operations["n"][shape.awaits] += first
        self.pieces.append(operations)
        self.streams += [(start + first, stop + first) for start, stop in spans]
        self.first_operation.append(first + len(operations))
        self.first_stream.append(len(self.streams))
        self.requests.append(shape.requests)
        return found

    def _lines(self, rank: int, bases: Numbers, offsets: Numbers) -> Numbers:
        """Return one number for each flag, the same on all ranks that share its channel."""
        channel, area = np.divmod(bases - Base.CHANNEL, len(Area))
        home = np.array([h[rank] for h in self.places.homes] or [0])[channel]
        lines: Numbers = ((home * len(Area) + area) << 48) + offsets
        return lines

    def _talks(self, rank: int, shape: Shape, peers: Numbers) -> npt.NDArray[np.void]:
        found = np.zeros(len(peers), TALK)
        sends = shape.program.code["code"][shape.talks] == Code.ISEND
        found["source"], found["target"] = (
            np.where(sends, rank, peers),
            np.where(sends, peers, rank),
        )
        found["tag"], found["count"] = shape.tags, shape.counts
        return found

    def _meet(self, shape: Shape) -> list[int]:
        """Number the collectives of the MPI library: the k-th calls on a communicator meet."""
        program, numbers = shape.program, list[int]()
        calls: dict[object, int] = defaultdict(int)
        for row in shape.calls.tolist():
            _, ranks = comm = program.comms[int(program.code["off"][row, 3])]
            kind = int(program.code["off"][row, 2])
            key = comm, calls[comm]
            calls[comm] += 1
            if key not in self.meetings and not 0 <= min(ranks) <= max(ranks) < self.size:
                raise ValueError(f"rank {program.rank}: a communicator of ranks {ranks}")
            if key not in self.meetings:
                self.meetings[key] = len(self.met)
                nbytes, root = int(shape.operations["n"][row]), int(program.code["peer"][row])
                members = (*ranks[root:], *ranks[:root])
                self.met.append(Meeting(members, kind % Coll.BLOCKING, nbytes))
            numbers.append(self.meetings[key])
        return numbers

    def writes(self) -> npt.NDArray[np.uint8]:
        """Return the bits of ``Program.writes``, by rank and channel."""
        found = np.zeros((self.size, len(self.places.channels)), np.uint8)
        for rank, writes in enumerate(self.written):
            found[rank, : len(writes)] = writes
        return found

    def named(self) -> tuple[npt.NDArray[np.void], int, int]:
        """Return the names of all ranks, and the numbers of flags and of messages."""
        names, firsts = np.concatenate(self.names), self.first_name
        lines, flags = np.unique(np.concatenate(self.flags), return_inverse=True)
        starts, messages = _message_numbers(np.concatenate(self.talks), self.size)
        for parts, numbers, skipped in (
            (self.flags, flags, [0] * len(firsts)),
            (self.talks, starts, [len(one) for one in self.flags[1:]]),
        ):
            lengths = [len(one) for one in parts[1:]]
            begins = np.repeat(np.add(firsts[:-1], skipped[: len(lengths)]), lengths)
            within = np.arange(len(numbers)) - np.repeat(
                np.cumsum(lengths, dtype=np.int64) - lengths, lengths
            )
            names["what"][begins + within] = numbers
        return names, len(lines), messages


def _message_numbers(talks: npt.NDArray[np.void], size: int) -> tuple[Numbers, int]:
    """Return the number of the first message of each name, the same on both sides; and how many.

    A name has a number for each message that one of the sides sends or receives.
    """
    keys = ((talks["source"] * size + talks["target"]) << 16) + talks["tag"]
    found, pairs = np.unique(keys, return_inverse=True)
    most = np.zeros(len(found), np.int64)
    np.maximum.at(most, pairs, talks["count"])
    starts = np.cumsum(most) - most
    return starts[pairs], int(most.sum())
