"""The events of collectives that run back to back: their numbers, and their data as columns.

An event is an operation of a rank's program, or the beginning or end of a run on a rank. A strand
is one stream of one rank in one run. A chain is a rank's stream through all runs, or the beginnings
and ends of its runs. Events are numbered strand by strand, with beginnings and ends last, so that
numbers rise along every chain. A blocking MPI collective has two events: a rank enters it, and
leaves it after all ranks have entered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from han.model.opcodes import ATTACHED
from han.model.program import INSTRUCTION, PEER, Code, Coll, PeerBase, Program, bytes_moved
from han.tasks.plan import Plan
from han.tasks.verify.address_spaces import AddressSpaces, Numbers
from han.tasks.verify.story import BEGIN, END, JOINT, place

FINISH = len(Code)  # the code of the end of a blocking collective
MOST = 1 << 40  # counts and offsets are cut to this: larger ones are refused anyway
Programs = Sequence[Sequence[Program]]


class Strand(NamedTuple):
    """Events `start` to `stop`: a stream of a rank in a run, or one event (stream -1)."""

    run: int
    rank: int
    stream: int
    start: int
    stop: int


class Events:
    """Columns by event (`run`, `rank`, `stream`, `row`, `code`, `nbytes` ...) and the strands.

    `rows` are the operations themselves, and `row` is the index of each in its program. `memory`
    and `at` are the memory and the offset of its four references. `peers` says which references are
    in mapped buffers of peers.
    """

    def __init__(self, plans: Sequence[Plan], programs: Programs, places: AddressSpaces) -> None:
        self.plans, self.programs, self.places = plans, programs, places
        self.topology, self.size = plans[0].topology, plans[0].topology.size
        self._number()
        self._expand()
        self.code: Numbers = self.rows["code"].astype(np.int64)
        self.run, self.rank, self.stream = self.owners[self.strand].T
        self.nbytes = self._bytes()
        self._look_at_peers()
        self.joints: list[tuple[int, int]] = []  # the run and rank that a joint is reported with
        self.strands = [
            Strand(run, rank, stream, start, stop)
            for (run, rank, stream), start, stop in zip(
                self.owners.tolist(), self.starts.tolist(), self.stops.tolist(), strict=True
            )
        ]

    def _number(self) -> None:
        owners: list[tuple[int, int, int]] = []
        pieces, first = [np.zeros(0, INSTRUCTION)], []
        self.first_strand: list[int] = []  # of run * size + rank
        for run, programs in enumerate(self.programs):
            for rank, program in enumerate(programs):
                self.first_strand.append(len(owners))
                for stream, info in enumerate(program.streams):
                    piece = program.code[info.start : info.stop]
                    if info.start < 0 or len(piece) != info.stop - info.start:
                        raise ValueError(f"stream {info} of {len(program.code)} operations")
                    owners.append((run, rank, stream))
                    first.append(info.start)
                    pieces.append(piece)
        self.owners: Numbers = np.array(owners, np.int64).reshape(-1, 3)
        self.first_row: Numbers = np.array(first, np.int64)
        lengths = np.array([len(p) for p in pieces[1:]], np.int64)
        self.rows = np.concatenate(pieces)
        if (self.rows["code"] >= FINISH).any():
            raise ValueError(f"an operation of code {self.rows['code'].max()}")
        self.starts: Numbers = np.cumsum(lengths) - lengths
        self.stops: Numbers = self.starts + lengths
        self.row: Numbers = np.arange(len(self.rows)) - np.repeat(
            self.starts - self.first_row, lengths
        )
        self.strand: Numbers = np.repeat(np.arange(len(owners)), lengths)

    def _expand(self) -> None:
        """Add an event for the end of each blocking collective; `last` is a row's last event."""
        blocking = (self.rows["code"] == Code.COLL) & (self.rows["off"][:, 2] >= Coll.BLOCKING)
        times = 1 + blocking
        self.last: Numbers = np.cumsum(times) - 1
        self.first_unexpanded = self.starts
        if blocking.any():
            ends = np.concatenate([[-1], self.last])
            self.rows, self.row = np.repeat(self.rows, times), np.repeat(self.row, times)
            self.strand = np.repeat(self.strand, times)
            self.starts, self.stops = ends[self.starts] + 1, ends[self.stops] + 1
            self.rows["code"][self.last[blocking]] = FINISH

    def _bytes(self) -> Numbers:
        """Return the bytes that each operation moves; 0 for those that move none."""
        elements = np.array([p.signature.element for p in self.plans], np.int64)
        nbytes = bytes_moved(self.rows, elements[self.run], MOST)
        barriers = self.rows["off"][:, 2] % Coll.BLOCKING == Coll.BARRIER
        nbytes[(self.code == Code.COLL) & barriers] = 0
        return nbytes

    def _look_at_peers(self) -> None:
        """Set `holder` and `base` of each reference: the rank whose memory it is in, and the base.

        The holder is -1 where no rank has the slot that a reference names.
        """
        self.base: Numbers = self.rows["base"].astype(np.int64)
        self.holder: Numbers = np.repeat(self.rank[:, None], 4, axis=1)
        for code, ref in ATTACHED.items():
            there = self.code == code
            self.holder[there, ref] = self.rows["peer"][there]
        self.peers: npt.NDArray[np.bool_] = self.base >= PEER
        if not self.peers.any():
            return
        for event, ref in np.argwhere(self.peers).tolist():
            peer = PeerBase.of(int(self.base[event, ref]))
            there = peer.channel < len(self.places.channels)
            level = self.places.channels[peer.channel] if there else 0
            home = self.topology.home(level, int(self.rank[event])) if there else ()
            self.holder[event, ref] = home[peer.slot] if peer.slot < len(home) else -1
            self.base[event, ref] = peer.buffer

    def resolve(self) -> None:
        """Set `memory` and `at` of all references, which must have been checked."""
        bases = np.minimum(self.base, self.places.bases - 1)
        tables = np.array([self.places.memories(run) for run in range(len(self.plans))])
        shifts = np.array([self.places.shifts(run) for run in range(len(self.plans))])
        run = self.run[:, None]
        self.memory: Numbers = tables[run, self.holder, bases]
        self.at: Numbers = shifts[run, bases]
        self.at += np.minimum(self.rows["off"], MOST).astype(np.int64)

    def event_of(self, strand: int, row: int) -> int:
        """Return the last event of a row of a strand's program."""
        at = self.first_unexpanded[strand] + row - self.first_row[strand]
        return int(self.last[at])

    # ---- beginnings, ends and joints ----------------------------------------------------------

    def begin(self, run: int, rank: int) -> int:
        """Return the event in which a rank enters a run."""
        return len(self.rows) + 2 * (run * self.size + rank)

    def end(self, run: int, rank: int) -> int:
        """Return the event in which a rank leaves a run."""
        return self.begin(run, rank) + 1

    def joint(self, run: int, rank: int) -> int:
        """Add an event of no strand, for which events wait in place of many others."""
        self.joints.append((run, rank))
        return self.number - 1

    @property
    def operations(self) -> int:
        """Number of events, without joints."""
        return len(self.rows) + 2 * len(self.plans) * self.size

    @property
    def number(self) -> int:
        """Number of events."""
        return self.operations + len(self.joints)

    def where(self, event: int) -> tuple[int, int, int]:
        """Return an event's run, rank and row (or BEGIN, END, JOINT)."""
        if event < len(self.rows):
            return int(self.run[event]), int(self.rank[event]), int(self.row[event])
        if event >= self.operations:
            return (*self.joints[event - self.operations], JOINT)
        turn, end = divmod(event - len(self.rows), 2)
        return turn // self.size, turn % self.size, END if end else BEGIN

    def story(self, event: int) -> str:
        """Return the description of an event for messages."""
        run, rank, row = self.where(int(event))
        return place(run, rank, row, self.programs[run][rank])
