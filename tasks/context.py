"""The context in which a submodule lowers the tasks of one stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from han.common.kept import kept
from han.model.channel_layout import SMALL, flag_at
from han.model.program import Area, PeerBase, Ref, channel_ref
from han.model.topology import Group
from han.tasks.bundles import Moves
from han.tasks.canonical import Order, canonical, linear, starts_of
from han.tasks.choice import LevelChoice
from han.tasks.graph import Task
from han.tasks.stream import Builder, Peer, Stream


class Letters(NamedTuple):
    """The messages of a rank in a round of nap, by the receiving and the sending member.

    With `folds`, the operands of `before` come before this rank's own, and the result is combined
    from all of them.
    """

    sends: tuple[int, ...]
    receives: tuple[int, ...]
    folds: bool = False
    before: int = 0


@dataclass(frozen=True)
class Context:
    """The tasks, this rank's place in the group that carries them out, and where its data is."""

    stream: Stream
    choice: LevelChoice
    tasks: tuple[Task, ...]
    group: Group
    source: Ref  # this rank's operand, or the data that it broadcasts
    result: Ref  # where the result is written, if this rank gets one
    contributes: tuple[bool, ...] = ()  # whether each member has an operand; (): all have one
    owners: tuple[int, ...] = ()  # the member that each share belongs to, where members have shares
    letters: Letters | None = None  # what this rank sends and receives, in a round of nap
    moves: Moves | None = None  # the blocks that members give to each other

    @kept
    def contributors(self) -> tuple[int, ...]:
        """The members that have an operand."""
        members = range(self.group.size)
        return tuple(m for m in members if not self.contributes or self.contributes[m])

    @kept
    def others(self) -> tuple[int, ...]:
        """All other members, the next one first: members start their reads at different peers."""
        me, size = self.group.me, self.group.size
        return tuple([(me + k) % size for k in range(1, size)])

    @kept
    def starts(self) -> Sequence[int]:
        """The members' places in the order of operands; in the canonical one, their starts."""
        plan, group = self.builder.plan, self.group
        if not plan.signature.canonical:
            return range(group.size)
        return starts_of(plan.topology, plan.signature, group)

    @kept
    def order(self) -> Order:
        """In which order the operands of the contributors are combined."""
        return self.order_of(self.contributors)

    def order_of(self, members: Sequence[int]) -> Order:
        """Return in which order operands that have come to some members are combined."""
        if not self.builder.signature.canonical:
            return linear(len(members))
        return canonical(tuple([self.starts[m] for m in members]))

    @kept
    def builder(self) -> Builder:
        """The builder, which allocates cells, flags, requests and scratch."""
        return self.stream.builder

    @kept
    def grain(self) -> int:
        """Bytes of the least part of the message; pieces hold whole grains."""
        return self.stream.builder.signature.grain

    def flag(self, member: int, kind: int) -> Ref:
        """Return the address of a member's flag of one kind."""
        return self._flags + flag_at(self.group.slots[member], kind)

    def small(self, member: int) -> Ref:
        """Return the address of a member's small slot: a flag and a page of data."""
        return self._slots + self.group.slots[member] * SMALL

    def cells(self, member: int) -> Ref:
        """Return the address of a member's cells."""
        geometry = self.builder.plan.geometry(self.group.level)
        return self._area(Area.CELLS) + geometry.area_at(self.group.slots[member])

    def mapped(self, place: Ref, member: int) -> Ref:
        """Return the address, in this rank's mapping, of a place in a member's buffer."""
        channel = self.builder.channel(self.group.level)
        return place.within(PeerBase(place.base, channel, self.group.slots[member]).number)

    def peer(self, member: int) -> Peer:
        """Return a member, and where it shows its buffers."""
        group, channel = self.group, self.builder.channel(self.group.level)
        return Peer(group.ranks[member], channel, group.slots[member])

    @kept
    def _slots(self) -> Ref:
        return self._area(Area.SMALL)

    @kept
    def _flags(self) -> Ref:
        return self._area(Area.FLAGS)

    def _area(self, area: Area) -> Ref:
        """Return where an area of the level's channel begins."""
        return channel_ref(self.builder.channel(self.group.level), area)
