"""Lots: what moves at a time of the blocks that members give to each other."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple, TypedDict

from han.common.kept import kept
from han.model.program import Base, Ref
from han.submodules.parts.fold import step_of
from han.submodules.parts.pieces import cut, number
from han.tasks.bundles import Blocks, Moves, Shelf, block_of
from han.tasks.canonical import linear
from han.tasks.context import Context
from han.tasks.graph import Task
from han.tasks.signature import Signature


class Lot(NamedTuple):
    """Whole blocks that lie behind each other, or only bytes [start, stop) of one block."""

    blocks: tuple[int, ...]
    whole: bool
    start: int
    stop: int


class Named(TypedDict):
    """How an operation names what it moves: a block, or so many from this one on."""

    block: int
    count: int


def blocks_within(signature: Signature, task: Task, most: int) -> int:
    """Return how many whole blocks of a task have at most `most` bytes; 0: none has so few."""
    whole = task.nbytes == signature.nbytes
    return most // max(1, signature.nbytes) if whole else 0


def cut_blocks(
    blocks: Blocks, task: Task, signature: Signature, most: int, *shelves: Shelf
) -> list[list[Lot]]:
    """Cut blocks into groups of at most `most` bytes, and these into lots.

    The blocks of a lot lie behind each other on all shelves.
    """
    together = blocks_within(signature, task, most)
    if together:
        groups = (blocks[k : k + together] for k in range(0, len(blocks), together))
        return [_runs(group, signature, shelves) for group in groups]
    pieces = cut((task,), most, signature.grain)
    return [[Lot((block,), False, piece.start, piece.stop)] for block in blocks for piece in pieces]


def groups_of(blocks: int, tasks: Sequence[Task], signature: Signature, most: int) -> int:
    """Return into how many groups :func:`cut_blocks` cuts so many blocks of tasks."""
    found, grain = 0, signature.grain
    for task in tasks:
        together = blocks_within(signature, task, most)
        found += -(-blocks // together) if together else blocks * number((task,), most, grain)
    return found


def part_of(lot: Lot, wanted: Container[int], signature: Signature, result: Shelf) -> list[Lot]:
    """Return those blocks of a lot that are wanted, as lots that lie behind each other too."""
    blocks = [block for block in lot.blocks if block in wanted]
    if not lot.whole:
        return [lot] if blocks else []
    return _runs(blocks, signature, (Shelf(Base.SCRATCH, lot.blocks), result))


def _runs(blocks: Blocks, signature: Signature, shelves: Sequence[Shelf]) -> list[Lot]:
    """Return blocks as lots of those that lie behind each other."""
    columns = [shelf.places(blocks) for shelf in shelves]
    if signature.uneven:  # the sizes of blocks are added up in the order of their numbers
        columns.append([*blocks])
    apart = signature.uneven and any(shelf.base == Base.SCRATCH for shelf in shelves)
    if apart:
        return [Lot((block,), True, 0, signature.nbytes) for block in blocks]
    found: list[Lot] = []
    steps = [
        tuple([place - k for place in row]) for k, row in enumerate(zip(*columns, strict=True))
    ]
    for _, run in groupby(range(len(steps)), steps.__getitem__):
        found.append(Lot(tuple([blocks[k] for k in run]), True, 0, signature.nbytes))
    return found


def single(lot: Lot, block: int) -> Lot:
    """Return the part of a lot that is of one block."""
    return Lot((block,), False, lot.start, lot.stop)


@dataclass(frozen=True)
class Lots:
    """The lots of a context, as one rank addresses them in its memory."""

    context: Context
    moves: Moves

    @classmethod
    def of(cls, context: Context) -> Lots:
        """Return the lots of a context whose place says what members give."""
        assert context.moves is not None, "calls by blocks have moves"
        return cls(context, context.moves)

    @kept
    def signature(self) -> Signature:
        """The signature of the call."""
        return self.context.builder.signature

    def source(self, lot: Lot) -> Ref:
        """Return where a lot is that this rank gives or keeps."""
        return self.on(self.context.source, self.moves.source(self.context.group.me), lot)

    def result(self, lot: Lot) -> Ref:
        """Return where a lot goes that this rank takes or keeps."""
        return self.on(self.context.result, self.moves.result(self.context.group.me), lot)

    def sent(self, lot: Lot) -> Ref:
        """Return where a lot is that this rank sends."""
        return self.result(lot) if self.moves.spreads else self.source(lot)

    def on(self, memory: Ref, shelf: Shelf, lot: Lot) -> Ref:
        """Return where a lot is on a shelf in this rank's memory."""
        number, signature = shelf.at(lot.blocks[0]), self.signature
        if number and signature.uneven and shelf.base == Base.SCRATCH:
            memory += number * signature.nbytes
        elif number:
            memory = block_of(memory, number, signature)
        if signature.counts:  # a shorter block may have no byte of the lot
            return memory.to(min(lot.start, signature.length(lot.blocks[0])))
        return memory.to(lot.start)

    def nbytes(self, lot: Lot) -> int:
        """Return the bytes of a lot."""
        signature = self.signature
        if lot.whole:
            return sum([signature.length(b) for b in lot.blocks] if signature.counts
                       else [signature.nbytes * len(lot.blocks)])  # fmt: skip
        length = signature.length(lot.blocks[0]) if signature.counts else lot.stop
        return max(0, min(lot.stop, length) - lot.start)

    def named(self, lot: Lot) -> Named:
        """Return how an operation names what it moves."""
        block = lot.blocks[0] if self.signature.uneven else 0
        return Named(block=block, count=len(lot.blocks) if lot.whole else 0)

    def copy(self, dst: Ref, src: Ref, lot: Lot) -> None:
        """Copy a lot."""
        self.context.stream.copy(dst, src, self.nbytes(lot), **self.named(lot))

    def fold(self, task: Task, lot: Lot, operands: dict[int, Ref], first: int) -> None:
        """Combine a lot of one block into its result, as `combine` does."""
        self.context.stream.begin_blocks(task, lot.blocks, lot.stop)
        self.combine(self.result(lot), lot, operands, first)
        self.context.stream.end_blocks(task, lot.blocks, lot.stop)

    def combine(self, into: Ref, lot: Lot, operands: dict[int, Ref], first: int) -> None:
        """Combine a lot of one block, in the order of ranks.

        `operands` are told by rank. Those of other ranks are memory that begins with byte `first`
        of the block.
        """
        stream, order = self.context.stream, linear(len(operands))
        ranks = sorted(operands)
        mine, refs = ranks.index(self.rank), tuple([operands[rank] for rank in ranks])
        step, stop = step_of(self.context.grain), lot.start + self.nbytes(lot)
        for at in range(lot.start, stop, step):
            to, length = into.to(at), min(step, stop - at)
            stream.fold_each(to, refs, mine, first, length, order, (to,), None, None, lot.blocks[0])

    @kept
    def rank(self) -> int:
        """This rank."""
        return self.context.group.ranks[self.context.group.me]

    def to_keep(self, task: Task, most: int) -> list[list[Lot]]:
        """Return the lots that this rank copies from its source to its result, in groups."""
        me, moves = self.context.group.me, self.moves
        if moves.source(me) == moves.result(me):
            return []
        shelves = moves.source(me), moves.result(me)
        return cut_blocks(moves.keeps(me), task, self.signature, most, *shelves)

    def keep(self, task: Task, lots: Sequence[Lot]) -> None:
        """Copy lots that this rank keeps, when other streams have brought them."""
        for lot in lots:
            self.context.stream.begin_blocks(task, lot.blocks, lot.stop)
            self.copy(self.result(lot), self.source(lot), lot)
            self.context.stream.end_blocks(task, lot.blocks, lot.stop)
