"""How a rank of ``solo`` combines what it reads in the memory of others."""

from __future__ import annotations

from dataclasses import dataclass

from han.model.channel_layout import LINE
from han.model.program import Base, Ref
from han.submodules.solo.reads import Reads

KiB = 1024
BLOCK = 64 * KiB  # what is combined so far stays in a near cache
READ_BLOCK = 256 * KiB  # so does what is read, and few calls of the system read it


@dataclass(frozen=True)
class Combiner:
    """Combines bytes of everybody's operands, in their order."""

    solo: Reads
    operands: list[Ref]
    room: tuple[Ref, Ref]  # for what is read
    partial: Ref
    block: int

    @classmethod
    def of(cls, solo: Reads, most: int) -> Combiner:
        """Ask for room to combine at most `most` bytes at once."""
        context = solo.context
        element, builder = context.element, context.builder
        usual = BLOCK if solo.mapped else READ_BLOCK
        block = max(element, context.choice.get("block", usual) // element * element)
        size = min(block, most + LINE + element)
        partial = len(solo.members) > 2
        if solo.mapped:
            rooms = [builder.scratch(size)] if partial else [Ref(Base.NONE)]
        else:
            rooms = [builder.scratch(size) for _ in range(3 if partial else 1)]
        rooms = (rooms * 3)[:3]
        operands = [solo.operand(m) for m in solo.members]
        return cls(solo, operands, (rooms[0], rooms[1]), rooms[2], min(block, size))

    def combine(self, start: int, nbytes: int, dst: Ref) -> None:
        """Put the combination of bytes from `start` on of all operands at `dst`."""
        element = self.solo.context.element
        step = max(element, self.block // element * element)
        for at in range(0, nbytes, step):
            self._block(start + at, min(step, nbytes - at), dst + at)

    def _block(self, at: int, nbytes: int, dst: Ref) -> None:
        """Combine some bytes; `dst` may lie over our own operand, so it is written last."""
        context = self.solo.context
        total = None
        for m in self.solo.members:
            here = context.source + at
            if m != context.group.me:
                here = self._fetch(m, at, nbytes)
            if total is not None:
                last = m == self.solo.members[-1]
                target = dst if last else self.partial
                context.stream.reduce(target, total, here, nbytes)
                here = target
            total = here

    def _fetch(self, member: int, at: int, nbytes: int) -> Ref:
        """Return where this rank finds bytes of a member's operand."""
        if self.solo.mapped:
            return self.solo.there(self.operands[member] + at, member)
        self.solo.pull(self.room[member % 2], self.operands[member] + at, nbytes, member)
        return self.room[member % 2]
