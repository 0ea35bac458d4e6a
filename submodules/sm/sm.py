"""``sm``: release/gather through shared cells.

Each rank has monotonic flags on cache lines of its own and a ring of cells. A reduction
gathers (children fill their cells, parents combine), a broadcast releases (the root fills its
cells, the others copy out). Tiny messages travel in the line of the flag. Nothing is waited
for at the end: every run takes the next part of the rings (small messages: the next bank of
slots), so that the next collective begins at once.

Source: Jain et al., sections II and III (trees, read-parent's-flag, pipelining, inlining,
data-copy optimisation). Each of these can be switched off by a parameter, to see what it is
worth (``han ablation``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from han.model.channel_layout import FLAG, INLINE, LINE, PAGE
from han.model.program import Ref
from han.submodules.parts import blocks as block_cells
from han.submodules.parts.cells import (
    FLAGS,
    GATHERED,
    READ,
    RELEASED,
    TAKEN,
    Ring,
    footprint,
    is_small,
)
from han.submodules.parts.pieces import Piece, cut
from han.submodules.parts.trees import Place
from han.submodules.sm.allreduce import direct, each, split
from han.submodules.sm.blocks import KINDS, blocks
from han.submodules.sm.trees import ALGORITHMS, PARAMETERS, Tree
from han.tasks.context import Context
from han.tasks.contract import TRIED_SIZES, Algorithm, Parameter, Question, Submodule, order_kept
from han.tasks.outline import Outline


@dataclass(frozen=True)
class Cells:
    """Flags and cells of a gather's or a release's members, as one of them addresses them."""

    context: Context
    ring: Ring
    small: bool

    @classmethod
    def of(cls, context: Context) -> Cells:
        """Look at the cells of the context's stream."""
        plan, level = context.builder.plan, context.group.level
        tasks = context.builder.tasks_of(context.stream)
        return cls(context, Ring.of(plan, level, tasks), is_small(plan, level))

    def pieces(self) -> list[Piece]:
        """The stream's tasks in chunks."""
        context = self.context
        chunk = PAGE if self.small else self.ring.chunk
        pieces = cut(context.tasks, chunk, context.element, context.stream.sequence)
        context.stream.sequence += len(pieces)
        return pieces

    def flag(self, member: int, kind: int) -> Ref:
        """A member's flag for one purpose; of a small message, the line its data is in."""
        group, builder = self.context.group, self.context.builder
        if self.small:
            return builder.small(group.level, group.slots[member])
        return builder.flag(group.level, group.slots[member], kind)

    def own_flag(self, member: int) -> Ref:
        """The flag of `member` that its parent writes: a line of its slot in the run's bank.

        Another run may have another parent, which must not write before this one has: only the
        banks are known to be free.
        """
        group, builder = self.context.group, self.context.builder
        return builder.small(group.level, group.slots[member])

    def done_flag(self, member: int, kind: int) -> Ref:
        """The flag by which a member says what it has read: TAKEN or READ."""
        group, builder = self.context.group, self.context.builder
        return builder.flag(group.level, group.slots[member], kind)

    def value(self, piece: Piece, kind: int) -> int:
        """What the flag says when `piece` is there. In a small slot a release follows a gather."""
        if self.small:
            return 2 if kind == RELEASED else 1
        return piece.index + 1

    def cell(self, member: int, piece: Piece) -> Ref:
        """The cell of `member` that `piece` passes through."""
        group, builder = self.context.group, self.context.builder
        if self.small:
            line = builder.small(group.level, group.slots[member])
            return line + (FLAG if piece.nbytes <= INLINE else LINE)
        return builder.cells(group.level, group.slots[member]) + self.ring.cell(piece.index)

    @property
    def to_children(self) -> bool:
        """Whether parents write their children's flags rather than one that all of them read."""
        return not self.context.choice.get("read_parent_flag", 1)

    @property
    def trailing(self) -> bool:
        """Whether writers wait at the end until all has been read."""
        return bool(self.context.choice.get("trailing", 0))

    @property
    def told(self) -> bool:
        """Whether readers say when they are done: somebody waits for it."""
        return self.trailing or (not self.small and self.ring.recycled)

    def left(self, piece: Piece, last: bool) -> int:
        """How many pieces must have left before `piece` is over; 0: none."""
        return piece.index + 1 if last and self.trailing else 0

    def reused(self, piece: Piece) -> int:
        """How many pieces must have left before `piece` may enter its cell; 0: none."""
        return 0 if self.small else max(0, piece.index - self.ring.cells + 1)


ALLREDUCES = {"direct": direct, "each": each, "split": split}


class Sm(Submodule):
    """Release/gather through shared cells."""

    name = "sm"
    about = "release/gather through cells in shared memory (Jain)"
    flags = FLAGS
    in_memory = True
    algorithms = {
        **ALGORITHMS,
        "direct": Algorithm(
            "every member combines everybody's data by itself: one hop",
            ("allreduce",),
            "always",
            one_segment=True,
        ),
        "each": Algorithm(
            "every member combines everybody's data, piece by piece", ("allreduce",), "always"
        ),
        "split": Algorithm(
            "every member combines its share, then copies the others'", ("allreduce",), "always"
        ),
        "blocks": Algorithm(
            "every block straight from who has it to who wants it", KINDS, "always"
        ),
    }
    parameters = {
        **PARAMETERS,
        "cells": Parameter("int", "cells of a rank's ring", 1, 8, tried=(3, 1, 2, 4, 8)),
        "chunk": Parameter("size", "bytes of one cell", 64, 4 << 20, tried=TRIED_SIZES),
        "inline": Parameter("bool", "send up to a page beside the flag"),
        "read_parent_flag": Parameter("bool", "children read their parent's flag, not their own"),
        "in_recv": Parameter("bool", "the root combines in its receive buffer, not beside it"),
        "trailing": Parameter("bool", "nobody leaves before its data has been read"),
    }

    def supports(self, question: Question) -> str | None:
        """Return None, or the reason why it cannot serve."""
        topology, choice = question.topology, question.choice
        if not topology.shared[question.level]:
            return "members of a group do not share memory"
        signature = question.signature
        if signature.by_blocks:
            return block_cells.misfit(signature, topology.size)
        if signature.element > PAGE:
            size = signature.element
            return f"elements of {size} bytes do not fit into a cell of {PAGE}"
        if choice.algorithm == "direct" and question.signature.nbytes > PAGE:
            return f"direct serves up to {PAGE} bytes, not {question.signature.nbytes}"
        algorithm = self.algorithms[choice.algorithm]
        if algorithm.one_segment and question.segmented:
            return f"{choice.algorithm} takes the message in one segment"
        if choice.algorithm not in ALGORITHMS:
            return order_kept(question, algorithm)
        tree = Tree.of(choice, "reduce")
        return order_kept(question, replace(algorithm, ordered=tree.ordered), tree.describe())

    def footprint(self, plan: Outline, level: int) -> int:
        """Return how many bytes of each rank's ring of cells a run takes."""
        blocked = plan.signature.by_blocks
        return block_cells.footprint(plan, level) if blocked else footprint(plan, level)

    def lower(self, context: Context) -> None:
        """Emit this rank's operations."""
        kind, algorithm = context.tasks[0].kind, context.choice.algorithm
        if kind in KINDS:
            blocks(context)
        elif kind == "allreduce":
            ALLREDUCES[algorithm](context)
        elif kind == "reduce":
            _gather(context)
        else:
            _release(context)


def _place(context: Context) -> Place:
    """Return this rank's place in the tree of the context's tasks."""
    group, topology = context.group, context.builder.plan.topology
    sockets = [topology.sockets[r] for r in group.ranks]
    return Tree.of(context.choice, context.tasks[0].kind).place(group, sockets)


def _gather(context: Context) -> None:
    """Reduce towards the group's root: children fill cells, parents combine."""
    stream, group, cells = context.stream, context.group, Cells.of(context)
    tree, room = _place(context), _room(context, cells)
    pieces = cells.pieces()
    for piece in pieces:
        if piece.first:
            stream.begin(piece.task)
        own = context.source + piece.start
        if tree.parent is None:
            _combine_at_root(context, cells, piece, tree.children, room)
        else:
            _await(context, cells, TAKEN, (tree.parent,), cells.reused(piece))
            cell = cells.cell(group.me, piece)
            _combine(context, cells, piece, cell, own, tree.children)
            stream.post(cells.flag(group.me, GATHERED), cells.value(piece, GATHERED))
        if tree.children and cells.told:
            stream.post(cells.done_flag(group.me, TAKEN), piece.index + 1)
        if tree.parent is not None:
            _await(context, cells, TAKEN, (tree.parent,), cells.left(piece, piece is pieces[-1]))
        if piece.last:
            stream.end(piece.task)


def _await(context: Context, cells: Cells, kind: int, members: Sequence[int], pieces: int) -> None:
    """Wait until members have read that many pieces; none of them need not be waited for."""
    for m in members if pieces else ():
        context.stream.wait(cells.done_flag(m, kind), pieces, context.group.ranks[m])


def _room(context: Context, cells: Cells) -> Ref | None:
    """Where the root combines if not in its receive buffer (Jain, section III-E)."""
    if not context.group.leads or context.choice.get("in_recv", 1):
        return None
    most = max(task.nbytes for task in context.tasks)
    return context.builder.scratch(min(most, PAGE if cells.small else cells.ring.chunk))


def _combine(
    context: Context, cells: Cells, piece: Piece, dst: Ref, own: Ref, members: tuple[int, ...]
) -> None:
    """``dst = own op member op member ...``, as they come in."""
    stream, group = context.stream, context.group
    if not members:
        stream.copy(dst, own, piece.nbytes)
    for k, m in enumerate(members):
        stream.wait(cells.flag(m, GATHERED), cells.value(piece, GATHERED), group.ranks[m])
        stream.reduce(dst, dst if k else own, cells.cell(m, piece), piece.nbytes)


def _combine_at_root(
    context: Context, cells: Cells, piece: Piece, children: tuple[int, ...], room: Ref | None
) -> None:
    """Combine into the result; where order counts, with what stands before the root first."""
    stream, group, builder = context.stream, context.group, context.builder
    result, own = context.result + piece.start, context.source + piece.start
    dst = room or result
    before = [c for c in children if c < group.me]
    if builder.signature.commutative or not before:
        _combine(context, cells, piece, dst, own, children)
    else:
        left = _combine_before(context, cells, piece, before)
        stream.reduce(dst, left, own, piece.nbytes)
        after = tuple(c for c in children if c > group.me)
        if after:
            _combine(context, cells, piece, dst, dst, after)
    stream.copy(result, dst, piece.nbytes)


def _combine_before(context: Context, cells: Cells, piece: Piece, members: list[int]) -> Ref:
    """Combine what stands before the root, not where the result goes: our operand may be there."""
    stream, group, builder = context.stream, context.group, context.builder
    left = cells.cell(members[0], piece)
    for c in members:
        stream.wait(cells.flag(c, GATHERED), cells.value(piece, GATHERED), group.ranks[c])
    if len(members) == 1:
        return left
    spare = builder.scratch(piece.nbytes)
    for k, c in enumerate(members[1:]):
        stream.reduce(spare, spare if k else left, cells.cell(c, piece), piece.nbytes)
    return spare


def _release(context: Context) -> None:
    """Broadcast from the group's root: it fills its cells, all others copy out of them."""
    stream, group, cells = context.stream, context.group, Cells.of(context)
    tree = _place(context)
    pieces = cells.pieces()
    others = [m for m in range(group.size) if m != group.root]
    for piece in pieces:
        if piece.first:
            stream.begin(piece.task)
        if tree.parent is None:
            _await(context, cells, READ, others, cells.reused(piece))
            _put(context, cells, piece, tree, context.source + piece.start)
            _await(context, cells, READ, others, cells.left(piece, piece is pieces[-1]))
        else:
            _take(context, cells, piece, tree)
            if cells.told:
                stream.post(cells.done_flag(group.me, READ), piece.index + 1)
        if piece.last:
            stream.end(piece.task)


def _put(context: Context, cells: Cells, piece: Piece, tree: Place, data: Ref) -> None:
    """Show the root's piece, in its cell or in the lines of its children's flags."""
    stream, me = context.stream, context.group.me
    if not (cells.small and cells.to_children):
        stream.copy(cells.cell(me, piece), data, piece.nbytes)
    _release_children(context, cells, piece, tree, data)


def _release_children(context: Context, cells: Cells, piece: Piece, tree: Place, data: Ref) -> None:
    """Let the children go: by this rank's flag, or by each one's (with its data if small)."""
    stream, value = context.stream, cells.value(piece, RELEASED)
    if not cells.to_children:
        stream.post(cells.flag(context.group.me, RELEASED), value)
        return
    for child in tree.children:
        if cells.small:
            stream.copy(cells.cell(child, piece), data, piece.nbytes)
        stream.post(cells.own_flag(child), value)


def _take(context: Context, cells: Cells, piece: Piece, tree: Place) -> None:
    """Copy a piece out once a flag says so, and pass the word on first."""
    stream, group = context.stream, context.group
    assert tree.parent is not None
    flag = cells.flag(tree.parent, RELEASED)
    source = cells.cell(tree.parent if cells.small else group.root, piece)
    if cells.to_children:
        flag = cells.own_flag(group.me)
        source = cells.cell(group.me, piece) if cells.small else source
    stream.wait(flag, cells.value(piece, RELEASED), group.ranks[tree.parent])
    if tree.children:
        if cells.small and not cells.to_children:  # the data travels in the flag's line
            stream.copy(cells.cell(group.me, piece), source, piece.nbytes)
        _release_children(context, cells, piece, tree, source)
    stream.copy(context.result + piece.start, source, piece.nbytes)
