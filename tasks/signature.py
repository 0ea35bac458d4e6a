"""What a call asks for, the same on all ranks. Plans and programs follow from it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from han.model.collectives import ROWS

LISTED = 8  # sizes that are listed


@dataclass(frozen=True)
class Signature:
    """One collective call without its buffers.

    A message is `count` elements of `element` bytes; in calls that combine nothing, elements are
    bytes. Where buffers hold a block for each rank, `count` is the size of a block. `op` and
    `dtype` are names. `native` says that han has a kernel for the pair; otherwise
    ``MPI_Reduce_local`` combines. `mapped` says that all buffers of all ranks lie in memory that
    the ranks of a node map.

    Where blocks differ in size, `counts` are the elements of each and `count` those of the largest.
    `in_place` says that the receive buffer is the send buffer too. Only calls in REPLACING
    (han/model/collectives.py) have it; MPI wants it on all ranks or on none.
    """

    collective: str
    count: int = 0
    element: int = 1
    op: str = ""
    dtype: str = ""
    commutative: bool = True
    native: bool = True
    root: int = 0
    mapped: bool = False
    counts: tuple[int, ...] = ()
    in_place: bool = False

    @property
    def nbytes(self) -> int:
        """Size of the message, or of a block (the largest one), in bytes."""
        return self.count * self.element

    def length(self, block: int) -> int:
        """Bytes of a rank's block."""
        return self.counts[block] * self.element if self.counts else self.nbytes

    def start(self, block: int) -> int:
        """Where a rank's block begins among all blocks; of the number of ranks: where they end."""
        return self._starts[block] * self.element if self.counts else block * self.nbytes

    @cached_property
    def _starts(self) -> tuple[int, ...]:
        return tuple(accumulate(self.counts, initial=0))

    @property
    def by_blocks(self) -> bool:
        """Whether a buffer holds a block for each rank."""
        return ROWS[self.collective].by_blocks

    def shown(self, size: int) -> int:
        """The most bytes that one of `size` ranks lets its peers read."""
        return self.start(size) if ROWS[self.collective].send == "each" else self.nbytes

    @property
    def reduces(self) -> bool:
        """Whether operands are combined."""
        return ROWS[self.collective].reduces

    @property
    def rooted(self) -> bool:
        """Whether one rank is special."""
        return ROWS[self.collective].rooted

    def describe(self) -> str:
        """One line for people: ``allreduce of 4 MiB (float64, sum)``."""
        from han.common.units import format_size

        details = [d for d in (self.dtype, self.op) if d]
        if self.rooted:
            details.append(f"root {self.root}")
        if self.in_place:
            details.append("in place")
        if self.mapped:
            details.append("shared arrays")
        size = f" of {format_size(self.nbytes)}" if ROWS[self.collective].recv else ""
        if self.counts:
            size = f" of {_listed([self.length(r) for r in range(len(self.counts))])}"
        return f"{self.collective}{size}" + (f" ({', '.join(details)})" if details else "")


def _listed(lengths: list[int]) -> str:
    """``16B, 24B and 0B``; of many, the first ones and all together."""
    from han.common.units import format_size

    said = [format_size(n) for n in lengths]
    if len(said) <= LISTED:
        return f"{', '.join(said[:-1])} and {said[-1]}"
    first = ", ".join(said[:LISTED])
    return f"{first} ... ({len(said)} blocks, {format_size(sum(lengths))} in all)"
