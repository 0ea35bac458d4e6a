"""How ranks of ``solo`` address the buffers of peers, and tell peers when they may read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from han.common.kept import kept
from han.model.channel_layout import LINE, lines
from han.model.program import PEER_SLOTS, Ref
from han.model.topology import Topology
from han.submodules.measured import SOLO_CHUNK
from han.submodules.parts.cells import Waits
from han.submodules.parts.pieces import Piece, in_turn, numbered
from han.tasks.context import Context
from han.tasks.lower import operand_of
from han.tasks.outline import Outline
from han.tasks.shares import share
from han.tasks.signature import Signature


def reads_mapped(topology: Topology, signature: Signature, level: int) -> bool:
    """Return whether members of a level map all buffers of peers that they read.

    From the second level on, the operands of a reduce are in private memory of the leaders.
    """
    if not signature.mapped or not topology.shared[level]:
        return False
    own = signature.collective == "reduce" and level not in topology.active[:1]
    return not own and topology.channel_ranks[level] <= PEER_SLOTS


def chunk_of(plan: Outline, level: int, kind: str) -> int:
    """Return the bytes of a piece in tasks of a kind.

    Two shares of it, those of a reduce, must fit into the part of the ring that a run has.
    """
    grain = plan.signature.grain
    chunk = plan.choice.levels[level].of(kind).get("chunk", SOLO_CHUNK)
    geometry = plan.geometries[level]
    if geometry is not None:
        chunk = min(chunk, geometry.area - 4 * (LINE + grain))
    return max(grain, chunk // grain * grain)


def share_room(plan: Outline, level: int, kind: str) -> int:
    """Return the bytes of the largest share of a piece: that of a group of two."""
    unit = max(LINE, plan.signature.grain)
    return lines(chunk_of(plan, level, kind) // 2 + unit)


@dataclass(frozen=True)
class Reads:
    """The pieces of one stream of a member, and the addresses and flags of its peers."""

    context: Context
    pieces: list[Piece]
    members: range
    mapped: bool  # this rank maps the buffers of its peers, and reads them in place

    @classmethod
    def of(cls, context: Context) -> Reads:
        """Cut the context's tasks into pieces."""
        plan, level = context.builder.plan, context.group.level
        chunk = chunk_of(plan, level, context.tasks[0].kind)
        pieces = numbered(context, chunk)
        mapped = reads_mapped(plan.topology, plan.signature, level)
        return cls(context, pieces, range(context.group.size), mapped)

    @property
    def others(self) -> tuple[int, ...]:
        """All other members, the next one first."""
        return self.context.others

    def post(self, kind: int, value: int) -> None:
        """Post a value in a flag of this rank."""
        self.context.stream.post(self.context.flag(self.context.group.me, kind), value)

    @kept
    def waits(self) -> Waits:
        """Waits for the flags of other ranks."""
        return Waits(self.context, self.context.flag)

    def await_(self, member: int, kind: int, value: int) -> None:
        """Wait until a flag of another rank has reached a value."""
        rank = self.context.group.ranks[member]
        self.context.stream.wait(self.context.flag(member, kind), value, rank)

    def pull(self, dst: Ref, src: Ref, nbytes: int, member: int, block: int | None = None) -> None:
        """Read from a member's memory: copy if it is mapped, else attach.

        `block` is what is read, where blocks differ in size.
        """
        if self.mapped:
            self.context.stream.copy(dst, self.context.mapped(src, member), nbytes, block=block)
            return
        self.context.stream.pull(dst, src, nbytes, self.context.peer(member), block=block)

    def push(self, dst: Ref, src: Ref, nbytes: int, member: int) -> None:
        """Write to a member's memory by attach, as ranks map their peers' memory for reading."""
        self.context.stream.push(dst, src, nbytes, self.context.peer(member))

    def operand(self, member: int) -> Ref:
        """Return where a member's operand is in its own memory."""
        plan, group = self.context.builder.plan, self.context.group
        return operand_of(plan, group.ranks[member], group.level)

    def cell(self, member: int, piece: Piece) -> Ref:
        """Return where a member puts its share of a piece of a reduce."""
        group, builder = self.context.group, self.context.builder
        room = share_room(builder.plan, group.level, self.context.tasks[0].kind)
        cell = self.context.cells(member) + piece.index % 2 * room
        return cell.holding(self.bounds(piece, member)[0])

    def bounds(self, piece: Piece, member: int) -> tuple[int, int]:
        """Return where in the message the share of a piece that a member combines lies."""
        start, stop = share(piece.nbytes, self.context.grain, member, len(self.members))
        return piece.start + start, piece.start + stop

    def turns(self) -> Iterator[Piece]:
        """Yield the pieces in turn, and begin and end their tasks."""
        return in_turn(self.context, self.pieces)

    @property
    def last(self) -> int:
        """The value of a flag that covers all pieces."""
        return self.pieces[-1].index + 1

    def await_all(self, kind: int, value: int = 0) -> None:
        """Wait until the flags of all peers have reached a value, by default for the last piece."""
        self.waits.wait(self.others, kind, value or self.last)
