"""Lots: what moves at a time of the blocks that a member gives to others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from han.common.kept import kept
from han.model.program import Base, Ref
from han.tasks.bundles import runs_of
from han.tasks.context import Context
from han.tasks.graph import Task
from han.tasks.signature import Signature


class Lot(NamedTuple):
    """`count` whole blocks, from that of rank `first` on; 0: bytes [start, stop) of that block."""

    first: int
    count: int  # type: ignore[assignment]  # it hides tuple.count
    start: int = 0
    stop: int = 0

    @property
    def ranks(self) -> range:
        """The ranks whose blocks these are."""
        return range(self.first, self.first + (self.count or 1))


def blocks_within(signature: Signature, task: Task, most: int) -> int:
    """Return how many whole blocks of a task have at most `most` bytes together; 0: none has."""
    whole = task.nbytes == signature.nbytes
    return most // max(1, signature.nbytes) if whole else 0


def cut_blocks(
    ranks: Sequence[int], task: Task, signature: Signature, most: int
) -> list[list[Lot]]:
    """Cut the blocks of `ranks` into groups of lots of at most `most` bytes, whole grains each."""
    together = blocks_within(signature, task, most)
    if together:
        groups = (ranks[k : k + together] for k in range(0, len(ranks), together))
        return [[Lot(*run) for run in runs_of(group)] for group in groups]
    step = max(1, most // signature.grain) * signature.grain
    return [
        [Lot(rank, 0, start, min(start + step, task.stop))]
        for rank in ranks
        for start in range(task.start, task.stop, step) or (task.start,)
    ]


def groups_of(blocks: int, tasks: Sequence[Task], signature: Signature, most: int) -> int:
    """Return into how many groups :func:`cut_blocks` cuts so many blocks of tasks."""
    found = 0
    for task in tasks:
        together = blocks_within(signature, task, most)
        step = max(1, most // signature.grain) * signature.grain
        parts = max(1, -((task.start - task.stop) // step))
        found += -(-blocks // together) if together else blocks * parts
    return found


def block_of(buffer: Ref, number: int, signature: Signature) -> Ref:
    """Return where block `number` is in a buffer that holds one for each rank."""
    if signature.counts:  # a program for these sizes only
        return buffer + signature.start(number)
    return buffer.behind(number)


@dataclass(frozen=True)
class Lots:
    """The lots of a context, as one rank addresses them in its buffers."""

    context: Context

    @kept
    def signature(self) -> Signature:
        """The signature of the call."""
        return self.context.builder.signature

    @kept
    def rank(self) -> int:
        """This rank, whose block alone is in the send buffer."""
        return self.context.group.ranks[self.context.group.me]

    def source(self, lot: Lot) -> Ref:
        """Return where a lot that this rank gives is."""
        source = self.context.source
        if source.base == Base.SEND:
            return source.to(lot.start)
        return self._in(source, lot)

    def result(self, lot: Lot) -> Ref:
        """Return where a lot that this rank takes goes."""
        return self._in(self.context.result, lot)

    def _in(self, buffer: Ref, lot: Lot) -> Ref:
        place = block_of(buffer, lot.first, self.signature) if lot.first else buffer
        return place.to(lot.start)

    def nbytes(self, lot: Lot) -> int:
        """Return the bytes of a lot."""
        signature = self.signature
        if lot.count:
            return signature.start(lot.first + lot.count) - signature.start(lot.first)
        return max(0, min(lot.stop, signature.length(lot.first)) - lot.start)

    def copy(self, dst: Ref, src: Ref, lot: Lot) -> None:
        """Copy a lot."""
        stream = self.context.stream
        stream.copy(dst, src, self.nbytes(lot), block=lot.first, count=lot.count)

    def copy_own(self, task: Task) -> None:
        """Copy this rank's block from the send buffer to its place in the receive buffer."""
        self.copy_to_result(Lot(self.rank, 0, task.start, task.stop))

    def copy_to_result(self, lot: Lot) -> None:
        """Copy a lot from the send buffer to its place, if this rank receives in this step."""
        if self.context.source.base == Base.SEND and self.context.result.base == Base.RECV:
            self.copy(self.result(lot), self.source(lot), lot)
