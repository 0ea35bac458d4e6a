"""Combine operands that are in the memory of peers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from han.model.channel_layout import LINE
from han.model.program import Ref
from han.submodules.measured import READ_BLOCK, SOLO_BLOCK
from han.submodules.parts.fold import fold
from han.submodules.solo.reads import Reads
from han.tasks.bundles import block_of
from han.tasks.canonical import depths, rooms


@dataclass(frozen=True)
class Combiner:
    """Combines bytes of all members' operands in their order.

    `rooms` are for partial results, by their place on a stack; operands that are read by attach
    come to the places where they are on the stack.
    """

    solo: Reads
    operands: list[Ref]
    rooms: list[Ref]
    block: int

    @classmethod
    def of(cls, solo: Reads, most: int) -> Combiner:
        """Reserve the scratch memory to combine at most `most` bytes at once."""
        context = solo.context
        grain, builder = context.grain, context.builder
        usual = SOLO_BLOCK if solo.mapped else READ_BLOCK
        block = max(grain, context.choice.get("block", usual) // grain * grain)
        size = min(block, most + LINE + grain)
        number = rooms(context.order) if solo.mapped else max(depths(context.order)) + 1
        two = len(solo.members) == 2  # one of them reads only the other's operand
        own = [builder.scratch(size) for _ in range(1 if two and number else number)]
        operands = [solo.operand(m) for m in solo.members]
        return cls(solo, operands, own * number if two else own, min(block, size))

    def combine(self, start: int, nbytes: int, dst: Ref, number: int = 0) -> None:
        """Combine `nbytes` bytes, from byte `start` on, of block `number` of all operands."""
        context, grain = self.solo.context, self.solo.context.grain
        step = max(grain, self.block // grain * grain)
        for at in range(start, start + nbytes, step):
            size = min(step, start + nbytes - at)
            places = [room.holding(at) for room in self.rooms]
            operands = self._operands(at, size, number)
            fold(context.stream, context.order, operands, size, dst.to(at), places, block=number)

    def _operands(self, at: int, nbytes: int, number: int) -> Iterator[Ref]:
        """Yield where bytes of each operand are; read them first if they are not mapped."""
        context = self.solo.context
        signature = context.builder.signature
        for m, depth in zip(self.solo.members, depths(context.order), strict=True):
            if m == context.group.me:
                yield block_of(context.source, number, signature).to(at)
                continue
            operand = block_of(self.operands[m], number, signature).to(at)
            if self.solo.mapped:
                yield context.mapped(operand, m)
                continue
            room = self.rooms[depth].holding(at)
            self.solo.pull(room, operand, nbytes, m, block=number)
            yield room
