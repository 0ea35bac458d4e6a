"""The flags and cells of gathers, releases and scans, as one member of the group addresses them.

Source: Jain et al., sections II and III.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from han.common.kept import kept
from han.model.channel_layout import FLAG, INLINE, LINE, PAGE
from han.model.program import Ref
from han.submodules.parts.cells import GATHERED, RELEASED, Cells, Members, Waits, is_small
from han.submodules.parts.pieces import Piece, numbered
from han.submodules.parts.series import Row, Series
from han.submodules.parts.trees import Neighbours
from han.submodules.sm.trees import Tree
from han.tasks.context import Context

if TYPE_CHECKING:
    from typing_extensions import Self

WITH_DATA = (GATHERED, RELEASED)  # kinds of flags that tell that data is there


@dataclass(frozen=True)
class MemberCells:
    """The flags and cells of all members in a task, as one member addresses them."""

    context: Context
    ring: Cells
    small: bool
    holders: frozenset[int]  # members that have an operand, or whose children bring them one
    _cells: dict[int, tuple[Ref, ...]] = field(default_factory=dict)  # by member

    @classmethod
    def of(cls, context: Context) -> Self:
        """Return the cells of the context's stream."""
        plan, level = context.builder.plan, context.group.level
        ring = Cells.of(plan, level, context.builder.tasks_of(context.stream))
        return cls(context, ring, is_small(plan, level), _holders(context))

    def pieces(self) -> list[Piece]:
        """Cut the context's tasks into pieces, numbered on from the stream's earlier ones."""
        return numbered(self.context, PAGE if self.small else self.ring.chunk)

    @kept
    def series(self) -> Series:
        """The same pieces, as a series."""
        return Series.numbered(self.context, PAGE if self.small else self.ring.chunk)

    def flag(self, member: int, kind: int) -> Ref:
        """Return a member's flag of one kind.

        The data of a small message is in a member's small slot, and its flag beside it.
        """
        if self.small and kind in WITH_DATA:
            return self.context.small(member)
        return self.context.flag(member, kind)

    @kept
    def waits(self) -> Waits:
        """Waits for the flags of members."""
        return Waits(self.context, self.flag)

    def own_flag(self, member: int) -> Ref:
        """Return the flag of `member` that its parent writes: that of its slot in the run's bank.

        The parent may be another rank in the next run, and may write before this run's parent has.
        So runs need different flags, which the banks of small slots provide.
        """
        return self.context.small(member)

    def count(self, kind: int) -> tuple[int, int]:
        """Return by how much a piece raises a flag, and its value once the first piece is there.

        The flag of a small slot serves a gather first (1), then a release (2), and so on if there
        are several of both in a segment.
        """
        return (2, 2 if kind == RELEASED else 1) if self.small else (1, 1)

    def cell(self, member: int, piece: Piece) -> Ref:
        """Return where `piece` is in the cells or in the small slot of `member`."""
        cells = self._cells.get(member) or self._cells_of(member, piece.nbytes)
        return cells[piece.index % len(cells)].holding(piece.start)

    def places(self, member: int) -> tuple[Ref, ...]:
        """Return the cells of `member` that pieces use in turn, or its small slot.

        Where slots are in halves, gathers use the first one and releases the second one: a member
        gathers again while its children still read, or releases while others read its operand.
        """
        return self._cells.get(member) or self._cells_of(member, self.series.most)

    def _cells_of(self, member: int, nbytes: int) -> tuple[Ref, ...]:
        """Return the cells of a member, or its small slot for a message of `nbytes` bytes."""
        ring = self.ring
        if self.small:
            found: tuple[Ref, ...] = (self.context.small(member) + self._beside(nbytes),)
        else:
            first = self.context.cells(member)
            found = tuple([first + ring.cell(k) for k in range(min(ring.cells, ring.pieces))])
        self._cells[member] = found
        return found

    def _beside(self, nbytes: int) -> int:
        if not self.context.builder.plan.in_halves:
            return FLAG if nbytes <= INLINE else LINE
        half = int(self.context.stream.kind == "bcast")
        return FLAG * (1 + half) if nbytes <= FLAG else LINE + half * PAGE // 2

    @kept
    def to_children(self) -> bool:
        """Whether a parent writes a flag of each child, rather than one that all children read."""
        return not self.context.choice.get("read_parent_flag", 1)

    @kept
    def trailing(self) -> bool:
        """Whether writers wait at the end until their readers have read everything."""
        return bool(self.context.choice.get("trailing", 0))

    @kept
    def counts_reads(self) -> bool:
        """Whether readers count the pieces that they have read, as a writer waits for that."""
        return self.trailing or (not self.small and self.ring.recycled)

    def read_before_reuse(self, piece: Piece) -> int:
        """Return how many pieces must have been read before `piece` may enter its cell; 0: none."""
        before = piece.index - self.ring.cells + 1
        return before if before > 0 and not self.small else 0

    def await_flags(self, members: Members, kind: int, each: int, more: int) -> list[Row]:
        """Wait until flags of members have reached a value, which grows with each piece."""
        if not members:
            return []
        return [(self.context.stream, "wait", 0, *self.waits.of(members, kind), each, more)]

    def await_reuse(self, members: Members, kind: int) -> list[Row]:
        """Wait until members have read the earlier piece in the cell of a piece."""
        reused = self.ring.recycled and not self.small
        return self.await_flags(members, kind, 1, 1 - self.ring.cells) if reused else []

    def trail(self, members: Members, kind: int) -> None:
        """Wait at the end until members have read everything, if writers are to do so."""
        if self.trailing:
            stream, series = self.context.stream, self.series
            self.waits.wait(members, kind, series.index + series.count)
            stream.end(self.context.tasks[-1])


def neighbours_of(context: Context, member: int | None = None) -> Neighbours:
    """Return the neighbours of this rank, or of a member, in the tree of the context's tasks."""
    group, topology = context.group, context.builder.plan.topology
    if member is not None:
        group = replace(group, me=member)
    sockets = [topology.sockets[r] for r in group.ranks]
    return Tree.of(context.choice).neighbours(group, sockets)


def _holders(context: Context) -> frozenset[int]:
    """Return the members that have an operand, or get one from their children in the tree."""
    group = context.group
    if not context.contributes or context.stream.kind != "reduce":
        return frozenset(range(group.size))
    parents = [neighbours_of(context, m).parent for m in range(group.size)]
    found: set[int] = set()
    for m in context.contributors:
        up: int | None = m
        while up is not None and up not in found:
            found.add(up)
            up = parents[up]
    return frozenset(found)
