"""Combine operands that are in the memory of peers."""

from __future__ import annotations

from dataclasses import dataclass

from han.model.channel_layout import LINE
from han.model.program import Base, Ref
from han.submodules.parts.blocks import block_of
from han.submodules.solo.reads import Reads

KiB = 1024
BLOCK = 64 * KiB  # bytes combined at a time: partial results stay in a near cache
READ_BLOCK = 256 * KiB  # with attach: operands stay in a cache, and few system calls read them


@dataclass(frozen=True)
class Combiner:
    """Combines bytes of all members' operands in rank order."""

    solo: Reads
    operands: list[Ref]
    room: tuple[Ref, Ref]  # two buffers for operands that are read by attach
    partial: Ref  # where the partial result is
    block: int

    @classmethod
    def of(cls, solo: Reads, most: int) -> Combiner:
        """Reserve the scratch memory to combine at most `most` bytes at once."""
        context = solo.context
        grain, builder = context.grain, context.builder
        usual = BLOCK if solo.mapped else READ_BLOCK
        block = max(grain, context.choice.get("block", usual) // grain * grain)
        size = min(block, most + LINE + grain)
        partial = len(solo.members) > 2
        if solo.mapped:
            rooms = [builder.scratch(size)] if partial else [Ref(Base.NONE)]
        else:
            rooms = [builder.scratch(size) for _ in range(3 if partial else 1)]
        rooms = (rooms * 3)[:3]
        operands = [solo.operand(m) for m in solo.members]
        return cls(solo, operands, (rooms[0], rooms[1]), rooms[2], min(block, size))

    def combine(self, start: int, nbytes: int, dst: Ref, number: int = 0) -> None:
        """Combine `nbytes` bytes, from byte `start` on, of block `number` of all operands."""
        grain = self.solo.context.grain
        step = max(grain, self.block // grain * grain)
        for at in range(start, start + nbytes, step):
            self._block(at, min(step, start + nbytes - at), dst.to(at), number)

    def _block(self, at: int, nbytes: int, dst: Ref, number: int) -> None:
        """Combine `nbytes` bytes; write `dst` last, as it overlays this rank's operand in place."""
        context = self.solo.context
        signature = context.builder.signature
        total = None
        for m in self.solo.members:
            if m == context.group.me:
                here = block_of(context.source, number, signature).to(at)
            else:
                operand = block_of(self.operands[m], number, signature).to(at)
                here = self._fetch(m, operand, nbytes, number)
            if total is not None:
                last = m == self.solo.members[-1]
                target = dst if last else self.partial.holding(at)
                context.stream.reduce(target, total, here, nbytes, block=number)
                here = target
            total = here

    def _fetch(self, member: int, operand: Ref, nbytes: int, number: int) -> Ref:
        """Return where bytes of a member's operand are; read them first if they are not mapped."""
        if self.solo.mapped:
            return self.solo.there(operand, member)
        room = self.room[member % 2].holding(operand.at)
        self.solo.pull(room, operand, nbytes, member, block=number)
        return room
