"""All memory that the ranks of one communicator share: channels, shared arrays, windows."""

from __future__ import annotations

from dataclasses import replace

from han.memory.attach import refusal
from han.memory.channel import Channel, open_channels
from han.memory.mapping import Mapping, map_arenas, map_unasked
from han.memory.windows import Windows
from han.model.topology import Topology
from han.ranks.meeting import Meeting


class SharedMemory:
    """The channels of a communicator, and where its ranks find each other's arrays.

    Making one is collective. `topology` says whether ranks may attach to each other's memory.
    """

    def __init__(self, meeting: Meeting, topology: Topology, memory: int, naps: bool) -> None:
        self.meeting, self.naps = meeting, naps
        self.mapping: Mapping | None = None  # of the ranks' arenas, once it has been tried
        self.channels = open_channels(meeting, topology, memory, naps)
        self.windows = Windows(meeting, _nodes(topology))
        self.attach_refused = refusal(meeting, self.channels)
        self.topology = replace(topology, attach=not self.attach_refused)
        if self.topology.whole is not None and self.topology.size > 1:
            self.mapping = map_unasked(meeting, self.channels)
        self.arena = self._arena()

    def _arena(self) -> tuple[int, int] | None:
        """Return where this rank's arena is, and its bytes; fixed at set-up, alike on all ranks.

        None if no channel holds all ranks, or a rank cannot map the others' arenas.
        """
        own = self.mapping.own if self.mapping is not None else None
        return None if own is None else (own.base, own.size)

    def holds(self, *addresses: int) -> bool:
        """Whether all of these addresses but null lie in this rank's arena."""
        own = self.mapping.own if self.mapping is not None else None
        return own is not None and all(own.holds(at) for at in addresses if at)

    def more_channels(self, memory: int) -> list[Channel]:
        """Make channels of their own for a persistent request; collective."""
        return open_channels(self.meeting, self.topology, memory, self.naps)

    def arenas(self) -> Mapping:
        """Return the arenas of the ranks that share memory; collective when first asked for."""
        if self.mapping is None:
            self.mapping = map_arenas(self.meeting, self.channels)
        return self.mapping

    @property
    def whole_channel(self) -> int:
        """The index of the channel that holds all ranks, if one does."""
        return sum(self.topology.shared[: self.topology.whole or 0])

    def place_in_whole(self, rank: int) -> int:
        """Return a rank's place among the ranks of that channel."""
        whole = self.topology.whole
        assert whole is not None
        return self.topology.home(whole, rank).index(rank)


def _nodes(topology: Topology) -> list[int]:
    """Return for each rank the lowest one that it shares a channel with."""
    levels = [k for k in range(topology.depth) if topology.shared[k]]
    return [
        min([r, *(other for k in levels for other in topology.home(k, r))])
        for r in range(topology.size)
    ]
