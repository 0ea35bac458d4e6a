"""What a call asks for, agreed by all ranks: the record that everything below works on."""

from __future__ import annotations

from dataclasses import dataclass

COLLECTIVES = ("bcast", "reduce", "allreduce", "barrier")


@dataclass(frozen=True)
class Signature:
    """One collective call without its buffers.

    A message is `count` elements of `element` bytes; a broadcast's elements are bytes. `op`
    and `dtype` are names; `native` says that han has a kernel for the pair, otherwise
    ``MPI_Reduce_local`` carries it out. `mapped` says that all buffers of all ranks are in memory
    that the ranks of a node map.
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
        """Size of the message in bytes."""
        return self.count * self.element

    @property
    def reduces(self) -> bool:
        """Whether operands are combined."""
        return self.collective in ("reduce", "allreduce")

    @property
    def rooted(self) -> bool:
        """Whether one rank is special."""
        return self.collective in ("bcast", "reduce")

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
