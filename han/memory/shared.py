"""The shared memory of one communicator: channels, arenas and windows."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from han import _native
from han.memory.arena import ArenaHandle, Mapped, map_arena, process_arena
from han.memory.channel import Channel, Wanted, introduce_all, open_channels
from han.memory.loans import Loan, lend
from han.memory.mapping import Mapping, ask_places, map_arenas, map_known, map_places
from han.memory.windows import Windows
from han.model.channel_layout import CROWDED_BANKS, LENT_BANKS, SMALL_BANKS
from han.model.topology import Topology
from han.ranks.meeting import Meeting

Offsets = dict[int, int]  # by level: where a channel is in the arena of its first rank
PROBE_STEP = "the making of a han.Comm"
WORD = 0x68616E5F61747463  # plus the rank: the word that a peer must find


def refusal(meeting: Meeting, channels: Sequence[Channel]) -> str:
    """Read and write a word of every peer that shares a channel with this rank; collective.

    Returns an empty string if all ranks can access all their peers. Otherwise returns the first
    reason, the same on all ranks.
    """
    word = np.array([WORD + meeting.rank, 0], np.uint64)  # the second word is for peers to write to
    _native.let_attach()
    places = meeting.share(lambda: (os.getpid(), word.ctypes.data), PROBE_STEP)
    peers = sorted({rank for channel in channels for rank in channel.ranks} - {meeting.rank})
    reasons = meeting.share(
        lambda: next(filter(None, (_try(meeting.rank, r, *places[r]) for r in peers)), ""),
        PROBE_STEP,
    )
    return next(filter(None, reasons), "")


def _try(rank: int, peer: int, pid: int, address: int) -> str:
    try:
        found = _native.peek(pid, address)
    except OSError as error:
        return f"rank {rank} may not read the memory of rank {peer}: {error.strerror}"
    if found != WORD + peer:
        return f"rank {rank} finds another process under the process number of rank {peer}"
    try:
        _native.poke(pid, address + 8, WORD)
    except OSError as error:
        return f"rank {rank} may not write to the memory of rank {peer}: {error.strerror}"
    return ""


STEP = "the making of shared memory"


@dataclass(frozen=True)
class Reach:
    """How ranks that share a channel access each other's memory, where they may attach to it.

    `nodes` are the numbers of the nodes, and `places` the arenas, by rank. `mapping` is that of the
    arenas, if they were mapped when the communicator was made. `held` keeps the arenas mapped that
    lend memory for channels; communicators share it with their descendants.
    """

    nodes: tuple[int, ...]
    places: tuple[ArenaHandle, ...]
    mapping: Mapping | None
    held: dict[ArenaHandle, Mapped] = field(default_factory=dict)

    def part(self, ranks: Sequence[int], topology: Topology) -> Reach:
        """Return the reach of a communicator with these ranks and this topology.

        Its ranks map each other's arenas if they share one channel; raises OSError.
        """
        places = tuple(self.places[rank] for rank in ranks)
        mapping = self.mapping
        if topology.whole is None or topology.size == 1:
            mapping = None
        elif mapping is None or mapping.own is None:
            mapping = map_known(places.index(ArenaHandle.of(process_arena())), places)
        else:
            mapping = mapping.part(ranks, mapping.own)
        return Reach(topology.firsts, places, mapping, self.held)

    def covers(self, topology: Topology, ranks: Sequence[int]) -> bool:
        """Whether it holds for a communicator in which the ranks `ranks` have this topology."""
        nodes = [self.nodes[rank] for rank in ranks]
        homes = [
            topology.home(level, rank)
            for level in range(topology.depth)
            if topology.channels[level]
            for rank in range(topology.size)
        ]
        return all(len({nodes[rank] for rank in home}) == 1 for home in {*homes})


@dataclass(frozen=True)
class Site:
    """The channels that a rank may share in lent memory, and how it reaches the lenders' arenas."""

    wanted: list[Wanted]
    reach: Reach

    @classmethod
    def of(
        cls,
        topology: Topology,
        rank: int,
        memory: int,
        parent: Reach,
        ranks: Sequence[int],
        banks: int = LENT_BANKS,
        whole: bool = False,
    ) -> Site | None:
        """Map the arenas of the ranks that would lend; None if that cannot be.

        In `parent`, which covers the topology, the ranks have the numbers `ranks`.
        """
        try:
            reach = parent.part(ranks, topology)
            wanted = Wanted.all_of(topology, rank, memory, banks, whole)
            for w in wanted:
                place = reach.places[w.ranks[0]]
                if w.ranks[0] != rank and place not in reach.held:
                    reach.held[place] = map_arena(place, writes=True)
        except OSError:  # also SharedMemoryError
            return None
        return cls(wanted, reach)


@dataclass(frozen=True)
class Lending:
    """The channels that a rank is about to share: its own loans, and the arenas of other lenders.

    `offsets` is what the other ranks must know. `notes` are bytes for each rank in place of cells.
    """

    wanted: list[Wanted]
    reach: Reach
    loans: dict[int, Loan]  # by level
    notes: int

    @classmethod
    def at(cls, site: Site | None, rank: int, notes: int = 0) -> Lending | None:
        """Lend the memory of the channels whose first rank this is; None if that cannot be.

        All that may fail is done here, before the ranks agree to share these channels.
        """
        if site is None:
            return None
        lending = cls(site.wanted, site.reach, {}, notes)
        for w in site.wanted:
            loan = lend(w.geometry, notes * len(w.ranks)) if w.ranks[0] == rank else None
            if loan is not None:
                lending.loans[w.level] = loan
                introduce_all(loan.memory(w.geometry.cells), w.ranks, site.reach.places)
            elif w.ranks[0] == rank:
                lending.cancel()
                return None
        return lending

    @property
    def offsets(self) -> Offsets:
        """Where the memory that this rank lends is in its arena."""
        return {level: loan.offset for level, loan in self.loans.items()}

    def channels(
        self, rank: int, naps: bool, offsets: Sequence[Offsets | Sequence[int]]
    ) -> list[Channel]:
        """Make the channels in memory that ranks lend; `offsets` are those of all ranks."""
        channels = []
        for w in self.wanted:
            first, size, loan = w.ranks[0], len(w.ranks), self.loans.get(w.level)
            if loan is None:
                arena = self.reach.held[self.reach.places[first]]
                loan = Loan(arena.address, offsets[first][w.level], size, arena)
            view = loan.memory(w.geometry.cells + self.notes * size)
            channels.append(Channel(w.ranks, w.ranks.index(rank), w.geometry, view, naps, loan))
        return channels

    def leave(self) -> None:
        """Take the memory back when no other rank uses it, as some may know of it."""
        for loan in self.loans.values():
            loan.close(0)

    def cancel(self) -> None:
        """Take the memory back, if no other rank knows of it."""
        for loan in self.loans.values():
            loan.end()


class SharedMemory:
    """The channels of a communicator, and where its ranks find each other's arrays.

    `topology.attach` tells whether ranks may attach to each other's memory. `reach` is what
    children need not ask again; None, on all ranks alike, if they must.
    """

    def __init__(
        self,
        meeting: Meeting,
        topology: Topology,
        channels: list[Channel],
        naps: bool,
        mapping: Mapping | None,
        attach_refused: str = "",
        reach: Reach | None = None,
    ) -> None:
        self.meeting, self.naps, self.channels = meeting, naps, channels
        attach = not attach_refused
        same = topology.attach == attach
        self.topology = topology if same else replace(topology, attach=attach)
        self.attach_refused, self.reach = attach_refused, reach
        self.mapping = mapping  # of the arenas; None: not tried yet
        self.windows = Windows(meeting, topology.firsts)
        own = mapping.own if mapping is not None else None
        # The address and size of this rank's arena, fixed at set-up; None, on all ranks, if no
        # channel holds all ranks or a rank could not map an arena.
        self.arena = None if own is None else (own.base, own.size)

    @classmethod
    def made(
        cls, meeting: Meeting, topology: Topology, memory: int, naps: bool, crowded: bool = False
    ) -> SharedMemory:
        """Make channels in files of their own; collective.

        `crowded`: ranks outnumber processors, so a rank that has one runs far ahead.
        Raises SharedMemoryError on all ranks.
        """
        banks = CROWDED_BANKS if crowded else SMALL_BANKS
        (channels,) = open_channels(meeting, topology, memory, 1, STEP, naps, banks)
        refused, places = refusal(meeting, channels), ask_places(meeting)
        whole = topology.whole is not None and topology.size > 1
        mapping = None
        if whole and not isinstance(places, str):
            mapping = map_places(meeting, channels, places)
        elif whole and isinstance(places, str) and places:
            mapping = Mapping(places)
        near = not (refused or (mapping is not None and mapping.refused))
        reach = None
        if near and not isinstance(places, str):
            reach = Reach(topology.firsts, tuple(places), mapping)
        return cls(meeting, topology, channels, naps, mapping, refused, reach)

    @classmethod
    def borrowed(
        cls,
        meeting: Meeting,
        topology: Topology,
        naps: bool,
        lending: Lending,
        offsets: Sequence[Offsets | Sequence[int]],
    ) -> SharedMemory:
        """Make channels in memory that ranks lend; not collective.

        `offsets` are those of the lendings of all ranks.
        """
        channels, reach = lending.channels(meeting.rank, naps, offsets), lending.reach
        return cls(meeting, topology, channels, naps, reach.mapping, "", reach)

    def holds(self, *addresses: int) -> bool:
        """Return whether every non-null address is in this rank's arena."""
        own = self.mapping.own if self.mapping is not None else None
        return own is not None and all(own.holds(at) for at in addresses if at)

    def more_channels(
        self, memory: int, number: int, step: str, notes: int = 0, banks: int = LENT_BANKS
    ) -> list[list[Channel]]:
        """Make the channels of several persistent requests, with so many banks; collective.

        Behind the small slots of each channel are at least `notes` bytes for each rank, until a run
        needs cells. Raises SharedMemoryError, on all ranks alike.
        """
        lent = self._lent_channels(memory, number, step, notes, banks)
        if lent is not None:
            return lent
        return open_channels(self.meeting, self.topology, memory, number, step, self.naps)

    def _lent_channels(
        self, memory: int, number: int, step: str, notes: int, banks: int
    ) -> list[list[Channel]] | None:
        """Make channels in memory that ranks lend; None, on all ranks alike, if that cannot be."""
        meeting, topology, reach = self.meeting, self.topology, self.reach
        if reach is None:
            return None
        rank, every = meeting.rank, range(meeting.size)
        site = Site.of(topology, rank, memory, reach, every, banks, whole=True)
        lent = [Lending.at(site, rank, notes) for _ in range(number)]
        lendings = [each for each in lent if each is not None]
        whole = len(lendings) == number
        told = meeting.allgather([each.offsets for each in lendings] if whole else None, step)
        offsets = [each for each in told if each is not None]
        if len(offsets) == len(told):
            return [
                one.channels(meeting.rank, self.naps, [each[k] for each in offsets])
                for k, one in enumerate(lendings)
            ]
        for each in lendings:
            each.cancel()
        return None

    def arenas(self) -> Mapping:
        """Return the mapping of the peers' arenas; the first call is collective."""
        if self.mapping is None:
            self.mapping = map_arenas(self.meeting, self.channels)
        return self.mapping

    @property
    def whole_channel(self) -> int:
        """The index of the channel of all ranks; meaningless if there is none."""
        return sum(self.topology.channels[: self.topology.whole or 0])
