"""What a call asks for, agreed by all ranks: the record that everything below works on."""

from __future__ import annotations

from dataclasses import dataclass

BY_BLOCKS = ("gather", "scatter", "allgather", "alltoall", "reduce_scatter")
SPREADING = ("scatter", "alltoall", "reduce_scatter")  # a rank has a block for each
COLLECTIVES = ("bcast", "reduce", "allreduce", "barrier", *BY_BLOCKS)
ROOTED = ("bcast", "reduce", "gather", "scatter")
REDUCING = ("reduce", "allreduce", "reduce_scatter")


@dataclass(frozen=True)
class Signature:
    """One collective call without its buffers.

    A message is `count` elements of `element` bytes; where nothing is combined, elements are
    bytes. Where buffers hold a block a rank, that is the size of a block. `op` and `dtype` are
    names; `native` says that han has a kernel for the pair, otherwise ``MPI_Reduce_local``
    carries it out. `mapped` says that all buffers of all ranks are in memory that the ranks of a
    node map.
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

    @property
    def nbytes(self) -> int:
        """Size of the message, or of a block, in bytes."""
        return self.count * self.element

    @property
    def by_blocks(self) -> bool:
        """Whether a buffer holds a block for each rank."""
        return self.collective in BY_BLOCKS

    def shown(self, size: int) -> int:
        """The most bytes that one of `size` ranks shows others."""
        return self.nbytes * (size if self.collective in SPREADING else 1)

    @property
    def reduces(self) -> bool:
        """Whether operands are combined."""
        return self.collective in REDUCING

    @property
    def rooted(self) -> bool:
        """Whether one rank is special."""
        return self.collective in ROOTED

    def describe(self) -> str:
        """One line for people: ``allreduce of 4 MiB (float64, sum)``."""
        from han._units import format_size

        details = [d for d in (self.dtype, self.op) if d]
        if self.rooted:
            details.append(f"root {self.root}")
        if self.mapped:
            details.append("shared arrays")
        size = f" of {format_size(self.nbytes)}" if self.collective != "barrier" else ""
        return f"{self.collective}{size}" + (f" ({', '.join(details)})" if details else "")
