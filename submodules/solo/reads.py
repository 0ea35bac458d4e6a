"""How ranks of ``solo`` address their peers' buffers, and signal when peers may read them."""

from __future__ import annotations

from dataclasses import dataclass

from han.model.channel_layout import LINE
from han.model.program import PEER_SLOTS, PeerBase, Ref
from han.model.topology import Topology
from han.submodules.parts.pieces import Piece, cut, share
from han.tasks.context import Context
from han.tasks.lower import operand_of
from han.tasks.outline import Outline, active_levels
from han.tasks.signature import Signature
from han.tasks.stream import Peer

KiB = 1024
CHUNK = 512 * KiB


def reads_mapped(topology: Topology, signature: Signature, level: int) -> bool:
    """Whether all that members of a level read of each other is in memory that they map.

    What leaders reduce towards a root is in memory of their own from the second level on.
    """
    if not signature.mapped or not topology.shared[level]:
        return False
    own = signature.collective == "reduce" and level not in active_levels(topology)[:1]
    return not own and topology.channel_ranks(level) <= PEER_SLOTS


def chunk_of(plan: Outline, level: int) -> int:
    """Bytes of a piece: a reduce's two shares of it must fit into what a run may take."""
    element = plan.signature.element
    chunk = plan.choice.levels[level].get("chunk", CHUNK)
    geometry = plan.geometries[level]
    if geometry is not None:
        chunk = min(chunk, geometry.area - 4 * (LINE + element))
    return max(element, chunk // element * element)


def share_room(plan: Outline, level: int) -> int:
    """Bytes of the largest share of a piece: of a group of two."""
    unit = max(LINE, plan.signature.element)
    return -(-(chunk_of(plan, level) // 2 + unit) // LINE) * LINE


@dataclass(frozen=True)
class Reads:
    """One stream of a member, its pieces, and how it addresses the others."""

    context: Context
    pieces: list[Piece]
    members: range
    mapped: bool  # operands are read where they are

    @classmethod
    def of(cls, context: Context) -> Reads:
        """Cut the context's tasks into pieces."""
        plan, level = context.builder.plan, context.group.level
        pieces = cut(context.tasks, chunk_of(plan, level), context.element, context.stream.sequence)
        context.stream.sequence += len(pieces)
        mapped = reads_mapped(plan.topology, plan.signature, level)
        return cls(context, pieces, range(context.group.size), mapped)

    @property
    def others(self) -> list[int]:
        """All other members, the next one first: members start their reads at different peers."""
        me, size = self.context.group.me, self.context.group.size
        return [(me + k) % size for k in range(1, size)]

    def flag(self, member: int, kind: int) -> Ref:
        """A member's flag."""
        group = self.context.group
        return self.context.builder.flag(group.level, group.slots[member], kind)

    def tell(self, kind: int, value: int) -> None:
        """Raise a flag of this rank."""
        self.context.stream.post(self.flag(self.context.group.me, kind), value)

    def await_(self, member: int, kind: int, value: int) -> None:
        """Wait for a flag of another rank."""
        rank = self.context.group.ranks[member]
        self.context.stream.wait(self.flag(member, kind), value, rank)

    def pull(self, dst: Ref, src: Ref, nbytes: int, member: int) -> None:
        """Read from a member's memory."""
        group, builder = self.context.group, self.context.builder
        if self.mapped:
            self.context.stream.copy(dst, self.there(src, member), nbytes)
            return
        peer = Peer(group.ranks[member], builder.channel(group.level), group.slots[member])
        self.context.stream.pull(dst, src, nbytes, peer)

    def push(self, dst: Ref, src: Ref, nbytes: int, member: int) -> None:
        """Write to a member's memory: by attaching, as what is mapped is mapped for reading."""
        group, builder = self.context.group, self.context.builder
        peer = Peer(group.ranks[member], builder.channel(group.level), group.slots[member])
        self.context.stream.push(dst, src, nbytes, peer)

    def there(self, src: Ref, member: int) -> Ref:
        """Address a place in a member's buffer that this rank maps."""
        group = self.context.group
        channel = self.context.builder.channel(group.level)
        return PeerBase(src.base, channel, group.slots[member]).ref(src.offset)

    def operand(self, member: int) -> Ref:
        """Where a member's operand is, in its own memory."""
        plan, group = self.context.builder.plan, self.context.group
        return operand_of(plan, group.ranks[member], group.level)

    def cell(self, member: int, piece: Piece) -> Ref:
        """Where a member puts its share of a piece of a reduce."""
        group, builder = self.context.group, self.context.builder
        room = share_room(builder.plan, group.level)
        return builder.cells(group.level, group.slots[member]) + piece.index % 2 * room

    def bounds(self, piece: Piece, member: int) -> tuple[int, int]:
        """The bytes of a piece that a member combines."""
        return share(piece.nbytes, self.context.element, member, len(self.members))

    def begin(self, piece: Piece) -> None:
        """Begin a task with its first piece."""
        if piece.first:
            self.context.stream.begin(piece.task)

    def end(self, piece: Piece) -> None:
        """End a task with its last piece."""
        if piece.last:
            self.context.stream.end(piece.task)

    @property
    def last(self) -> int:
        """The value of a flag that covers all pieces."""
        return self.pieces[-1].index + 1

    def await_all(self, kind: int) -> None:
        """Wait until all peers have raised a flag for the last piece."""
        for m in self.others:
            self.await_(m, kind, self.last)
