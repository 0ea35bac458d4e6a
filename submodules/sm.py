"""``sm``: release/gather through shared cells.

Each rank has monotonic flags on cache lines of its own and a ring of cells. A reduction
gathers (children fill their cells, parents combine), a broadcast releases (the root fills its
cells, the others copy out). Tiny messages travel in the line of the flag. Nothing is waited
for at the end: every run takes the next part of the rings (small messages: the next bank of
slots), so that the next collective begins at once.

Source: Jain et al., sections II and III (trees, read-parent's-flag, pipelining, inlining,
data-copy optimisation).
"""

from __future__ import annotations

from dataclasses import dataclass

from han.geometry import INLINE, LINE, PAGE
from han.program import Ref
from han.submodules import blocks as block_cells
from han.submodules.base import Algorithm, Parameter, Question, order_kept
from han.submodules.cells import FLAGS, GATHERED, READ, RELEASED, TAKEN, Ring, footprint, is_small
from han.submodules.pieces import Piece, cut
from han.submodules.sm_allreduce import direct, split
from han.submodules.sm_blocks import blocks
from han.submodules.trees import Place, place
from han.tasks.lower import Context
from han.tasks.plan import Plan
from han.tasks.signature import BY_BLOCKS


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
            return line + (8 if piece.nbytes <= INLINE else LINE)
        return builder.cells(group.level, group.slots[member]) + self.ring.cell(piece.index)

    @property
    def recycled(self) -> bool:
        """Whether cells are used twice, so that readers must say when they are done."""
        return not self.small and self.ring.recycled

    def reused(self, piece: Piece) -> int:
        """How many pieces must have left before `piece` may enter its cell; 0: none."""
        return 0 if self.small else max(0, piece.index - self.ring.cells + 1)


class Sm:
    """Release/gather through shared cells."""

    name = "sm"
    about = "release/gather through cells in shared memory (Jain)"
    flags = FLAGS
    algorithms = {
        "flat": Algorithm("all members are the root's children", ordered="always"),
        "kary": Algorithm("k-ary tree of flags", ordered="never"),
        "knomial": Algorithm("k-nomial tree of flags"),
        "direct": Algorithm(
            "every member combines everybody's data by itself: one hop", ("allreduce",), "always"
        ),
        "split": Algorithm(
            "every member combines its share, then copies the others'", ("allreduce",), "always"
        ),
        "blocks": Algorithm(
            "every block straight from who has it to who wants it", BY_BLOCKS, "always"
        ),
    }
    parameters = {
        "radix": Parameter("int", "children a member has (kary), base (knomial)", 2, 64),
        "cells": Parameter("int", "cells of a rank's ring", 2, 8),
        "chunk": Parameter("size", "bytes of one cell", 64, 4 << 20),
        "inline": Parameter("bool", "send up to a page beside the flag"),
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
        if choice.algorithm == "direct" and question.segmented:
            return "direct takes the message in one segment"
        return order_kept(question, self.algorithms[choice.algorithm])

    def footprint(self, plan: Plan, level: int) -> int:
        """Return how many bytes of each rank's ring of cells a run takes."""
        blocked = plan.signature.by_blocks
        return block_cells.footprint(plan, level) if blocked else footprint(plan, level)

    def lower(self, context: Context) -> None:
        """Emit this rank's operations."""
        kind, algorithm = context.tasks[0].kind, context.choice.algorithm
        if kind in BY_BLOCKS:
            blocks(context)
        elif kind == "allreduce":
            (direct if algorithm == "direct" else split)(context)
        elif kind == "reduce":
            _gather(context)
        else:
            _release(context)


def _tree(context: Context) -> Place:
    choice = context.choice
    return place(context.group, choice.algorithm, choice.get("radix", 4))


def _gather(context: Context) -> None:
    """Reduce towards the group's root: children fill cells, parents combine."""
    stream, group, cells = context.stream, context.group, Cells.of(context)
    tree = _tree(context)
    pieces = cells.pieces()
    recycled = cells.recycled
    for piece in pieces:
        if piece.first:
            stream.begin(piece.task)
        own = context.source + piece.start
        if tree.parent is None:
            _combine_at_root(context, cells, piece, tree.children)
        else:
            if cells.reused(piece):
                parent = group.ranks[tree.parent]
                stream.wait(cells.flag(tree.parent, TAKEN), cells.reused(piece), parent)
            cell = cells.cell(group.me, piece)
            _combine(context, cells, piece, cell, own, tree.children)
            stream.post(cells.flag(group.me, GATHERED), cells.value(piece, GATHERED))
        if tree.children and recycled:
            stream.post(cells.flag(group.me, TAKEN), piece.index + 1)
        if piece.last:
            stream.end(piece.task)


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
    context: Context, cells: Cells, piece: Piece, children: tuple[int, ...]
) -> None:
    """Combine into the result; where order counts, with what stands before the root first."""
    stream, group, builder = context.stream, context.group, context.builder
    dst, own = context.result + piece.start, context.source + piece.start
    before = [c for c in children if c < group.me]
    if builder.signature.commutative or not before:
        _combine(context, cells, piece, dst, own, children)
        return
    after = tuple(c for c in children if c > group.me)
    left = cells.cell(before[0], piece)
    for c in before:
        stream.wait(cells.flag(c, GATHERED), cells.value(piece, GATHERED), group.ranks[c])
    if len(before) > 1:  # not into dst, which may be where our own operand is
        spare = builder.scratch(piece.nbytes)
        for k, c in enumerate(before[1:]):
            a = spare if k else left
            stream.reduce(spare, a, cells.cell(c, piece), piece.nbytes)
        left = spare
    stream.reduce(dst, left, own, piece.nbytes)
    if after:
        _combine(context, cells, piece, dst, dst, after)


def _release(context: Context) -> None:
    """Broadcast from the group's root: it fills its cells, all others copy out of them."""
    stream, group, cells = context.stream, context.group, Cells.of(context)
    tree = _tree(context)
    pieces = cells.pieces()
    recycled = cells.recycled
    others = [m for m in range(group.size) if m != group.root]
    for piece in pieces:
        if piece.first:
            stream.begin(piece.task)
        data = context.source + piece.start
        if tree.parent is None:
            for m in others if cells.reused(piece) else ():
                stream.wait(cells.flag(m, READ), cells.reused(piece), group.ranks[m])
            stream.copy(cells.cell(group.me, piece), data, piece.nbytes)
            stream.post(cells.flag(group.me, RELEASED), cells.value(piece, RELEASED))
        else:
            _take(context, cells, piece, tree)
            if recycled:
                stream.post(cells.flag(group.me, READ), piece.index + 1)
        if piece.last:
            stream.end(piece.task)


def _take(context: Context, cells: Cells, piece: Piece, tree: Place) -> None:
    """Copy a piece out once the parent's flag says so, and pass the word on first."""
    stream, group = context.stream, context.group
    assert tree.parent is not None
    value = cells.value(piece, RELEASED)
    stream.wait(cells.flag(tree.parent, RELEASED), value, group.ranks[tree.parent])
    source = cells.cell(group.root, piece)
    if tree.children and cells.small:  # the data travels in the flag's line
        stream.copy(cells.cell(group.me, piece), cells.cell(tree.parent, piece), piece.nbytes)
        source = cells.cell(tree.parent, piece)
    elif cells.small:
        source = cells.cell(tree.parent, piece)
    if tree.children:
        stream.post(cells.flag(group.me, RELEASED), value)
    stream.copy(context.result + piece.start, source, piece.nbytes)
