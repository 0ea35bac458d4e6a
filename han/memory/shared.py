"""The shared memory of one communicator: channels, arenas and windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from han.memory.attach import refusal
from han.memory.channel import Channel, open_channels, open_several
from han.memory.mapping import Mapping, map_arenas, map_unasked
from han.memory.windows import Windows
from han.model.topology import Topology
from han.ranks.meeting import Meeting


@dataclass(frozen=True)
class Reach:
    """How ranks that all share a channel access each other's memory.

    Each may attach to the memory of every other one. `mapping` is that of the arenas.
    """

    mapping: Mapping | None

    def part(self, ranks: Sequence[int]) -> Mapping | None:
        """Return the mapping of a communicator with these ranks; None if it is not known."""
        mapping = self.mapping
        if mapping is None or mapping.refused or mapping.own is None:
            return None
        return mapping.part(ranks, mapping.own)


class SharedMemory:
    """The channels of a communicator, and where its ranks find each other's arrays.

    Making one is collective. `topology.attach` tells whether ranks may attach to each other's
    memory. `parent` is the reach of a communicator in which its ranks have the numbers `ranks`.
    """

    def __init__(
        self,
        meeting: Meeting,
        topology: Topology,
        memory: int,
        naps: bool,
        parent: Reach | None = None,
        ranks: Sequence[int] = (),
    ) -> None:
        self.meeting, self.naps = meeting, naps
        self.mapping: Mapping | None = None  # of the arenas; None: not tried yet
        # A child may be used for a few small calls only: it maps the pages that these need.
        self.channels = open_channels(meeting, topology, memory, naps, populate=parent is None)
        self.windows = Windows(meeting, _nodes(topology))
        self.attach_refused = "" if parent is not None else refusal(meeting, self.channels)
        self.topology = replace(topology, attach=not self.attach_refused)
        if self.topology.whole is not None and self.topology.size > 1:
            known = parent.part(ranks) if parent is not None else None
            self.mapping = known or map_unasked(meeting, self.channels)
        self.arena = self._arena()
        # What children need not ask again; None, on all ranks alike, if they must.
        near = self.topology.whole is not None and not self.attach_refused
        self.reach = Reach(self.mapping) if near else None

    def _arena(self) -> tuple[int, int] | None:
        """Return the address and size of this rank's arena, fixed at set-up.

        None, on all ranks, if no channel holds all ranks or a rank could not map an arena.
        """
        own = self.mapping.own if self.mapping is not None else None
        return None if own is None else (own.base, own.size)

    def holds(self, *addresses: int) -> bool:
        """Return whether every non-null address is in this rank's arena."""
        own = self.mapping.own if self.mapping is not None else None
        return own is not None and all(own.holds(at) for at in addresses if at)

    def more_channels(self, memory: int, number: int, step: str) -> list[list[Channel]]:
        """Make the channels of several persistent requests; collective."""
        return open_several(self.meeting, self.topology, memory, number, step, self.naps)

    def arenas(self) -> Mapping:
        """Return the mapping of the peers' arenas; the first call is collective."""
        if self.mapping is None:
            self.mapping = map_arenas(self.meeting, self.channels)
        return self.mapping

    @property
    def whole_channel(self) -> int:
        """The index of the channel of all ranks; meaningless if there is none."""
        return sum(self.topology.shared[: self.topology.whole or 0])

    def place_in_whole(self, rank: int) -> int:
        """Return the place of a rank in the channel of all ranks."""
        whole = self.topology.whole
        assert whole is not None
        return self.topology.home(whole, rank).index(rank)


def _nodes(topology: Topology) -> list[int]:
    """Return for each rank the lowest rank that shares a channel with it."""
    levels = [k for k in range(topology.depth) if topology.shared[k]]
    return [
        min([r, *(other for k in levels for other in topology.home(k, r))])
        for r in range(topology.size)
    ]
