"""Signatures: calls without their buffers, from which plans and programs follow."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from han.common.kept import kept
from han.common.units import format_size
from han.model.collectives import ROWS
from han.model.element_types import heavy
from han.tasks.neighbours import Neighbours

ON_DEVICE = "in memory of a device"
PACKED = "packed elements"  # the name of derived types begins with it
LISTED = 8  # sizes of blocks in a description, at most


@dataclass(frozen=True)
class Signature:
    """One collective call without its buffers, the same on all ranks.

    A message is `count` elements of `element` bytes; in calls that do not reduce, elements are
    bytes. Where buffers hold a block for each rank, `count` is the size of a block. `op` and
    `dtype` are names. `native` says that han has a kernel for the pair; otherwise
    ``MPI_Reduce_local`` combines. `mapped` says that all buffers of all ranks are mapped buffers.

    Where blocks differ in size, `counts` are the elements of each and `count` those of the largest.
    `in_place` says that the receive buffer is the send buffer too. Only calls in REPLACING
    (han/model/collectives.py) have it; MPI requires it on all ranks or on none.

    `device`: a buffer is in memory of a device, so the call is the MPI library's own.

    `canonical`: operands are combined in the canonical order (han/tasks/canonical.py).

    With `grains`, the signature stands for all sizes up to `bound` bytes of a class
    (han/tasks/size_classes.py). `count` is that of the largest one in whole grains; algorithms cut
    the message at multiples of a grain. If it is `varied`, blocks differ in size, and each run has
    its own counts.

    With `own`, each rank knows only the sizes of the blocks that it sends or receives. The
    signature stands for all calls (:mod:`han.tasks.own_sizes`). `counts` has, for one call, what
    each rank sends to each. `singly`: between nodes each block is a message. `neighbours` are those
    of ranks in calls with them; None where blocks tell, empty between others.
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
    device: bool = False
    grains: int = 0
    bound: int = 0
    varied: bool = False
    canonical: bool = False
    own: bool = False
    singly: bool = False
    neighbours: Neighbours | None = None

    def changed(self, **values: Any) -> Signature:
        """Return the signature with other values of fields: a quicker ``dataclasses.replace``."""
        made, names = object.__new__(Signature), self.__match_args__
        made.__dict__.update({name: self.__dict__[name] for name in names} | values)
        if len(made.__dict__) > len(names):
            raise TypeError(f"a signature has no fields {sorted({*values} - {*names})}")
        return made

    @kept
    def grain(self) -> int:
        """Bytes of the least part into which algorithms cut the message."""
        return self.nbytes // self.grains if self.grains else self.element

    @kept
    def nbytes(self) -> int:
        """Size of the message, or of the largest block, in bytes."""
        return self.count * self.element

    @property
    def uneven(self) -> bool:
        """Whether blocks differ in size."""
        return self.varied or bool(self.counts)

    @kept
    def sizes(self) -> bytes:
        """The bytes of each block, as numbers of 64 bits for the executor; empty if alike."""
        return array("Q", (n * self.element for n in self.counts)).tobytes()

    def length(self, block: int) -> int:
        """Return the bytes of a rank's block."""
        return self.counts[block] * self.element if self.counts else self.nbytes

    def start(self, block: int) -> int:
        """Return where a rank's block begins, in bytes; for the number of ranks, where all end."""
        return self._starts[block] * self.element if self.counts else block * self.nbytes

    @kept
    def _starts(self) -> tuple[int, ...]:
        return tuple(accumulate(self.counts, initial=0))

    @kept
    def by_blocks(self) -> bool:
        """Whether a buffer holds a block for each rank."""
        return ROWS[self.collective].by_blocks

    def shown(self, size: int) -> int:
        """Return the largest number of bytes that one of `size` ranks shows to its peers."""
        if ROWS[self.collective].send != "each":
            return self.nbytes
        return self.start(size) if self.counts else max(1, size - 1) * self.nbytes

    @kept
    def prefix(self) -> bool:
        """Whether a rank gets what the ranks before it contribute."""
        return ROWS[self.collective].prefix

    @kept
    def reduces(self) -> bool:
        """Whether operands are combined."""
        return ROWS[self.collective].reduces

    @property
    def packed(self) -> bool:
        """Whether elements of a derived type travel packed: their layout may differ by rank."""
        return self.dtype.startswith(PACKED)

    @kept
    def heavy(self) -> bool:
        """Whether han's kernel for operation and type is slower than memory."""
        return self.reduces and self.native and heavy(self.op, self.dtype)

    @property
    def rooted(self) -> bool:
        """Whether the call names a root."""
        return ROWS[self.collective].rooted

    def describe(self) -> str:
        """Return one line such as ``allreduce of 4MiB (float64, sum)``."""
        details = [d for d in (self.dtype, self.op) if d]
        if self.rooted:
            details.append(f"root {self.root}")
        if self.in_place:
            details.append("in place")
        if self.mapped:
            details.append("shared arrays")
        if self.device:
            details.append(ON_DEVICE)
        if self.canonical:
            details.append("reproducible")
        if self.neighbours is not None:
            details.append(f"{self.neighbours.edges} edges")
        size = f" of {format_size(self.nbytes)}" if ROWS[self.collective].recv else ""
        if self.grains:
            size = f" of up to {format_size(self.bound)}"
        if self.varied:
            size = f" of blocks of up to {format_size(self.bound or self.nbytes)}"
        if self.own:
            size = f" of blocks of up to {format_size(self.nbytes)}" if self.counts else ""
        elif self.counts:
            size = f" of {_listed([self.length(r) for r in range(len(self.counts))])}"
        return f"{self.collective}{size}" + (f" ({', '.join(details)})" if details else "")


def _listed(lengths: list[int]) -> str:
    """Return ``16B, 24B and 0B``; of many sizes, the first ones and the total."""
    said = [format_size(n) for n in lengths]
    if len(said) <= LISTED:
        return f"{', '.join(said[:-1])} and {said[-1]}"
    first = ", ".join(said[:LISTED])
    return f"{first} ... ({len(said)} blocks, {format_size(sum(lengths))} in all)"
