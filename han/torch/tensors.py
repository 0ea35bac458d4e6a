"""The memory that calls of han move for a tensor, and what becomes of it afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from mpi4py import MPI
from torch import Tensor
from torch.distributed import ReduceOp

from han.common.errors import ArgumentError, ArgumentTypeError

# Types of elements that han's kernels combine as they are
NUMBERS = frozenset({
    torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32,
    torch.uint64, torch.float32, torch.float64,
})  # fmt: skip
NARROW = torch.float32  # in which shorter floating-point numbers are combined: one rounding
OPS = {
    "SUM": MPI.SUM, "AVG": MPI.SUM, "PRODUCT": MPI.PROD, "MIN": MPI.MIN, "MAX": MPI.MAX,
    "BAND": MPI.BAND, "BOR": MPI.BOR, "BXOR": MPI.BXOR,
}  # fmt: skip
BITWISE = ("BAND", "BOR", "BXOR")
OF_COMPLEX = ("SUM", "AVG")
# A sum of truth values is a disjunction, and their product a conjunction, as in NCCL.
OF_TRUTHS = {"SUM": MPI.MAX, "PRODUCT": MPI.MIN}
# The numbers of torch's operations, which are their hashes: comparing operations takes microseconds
NAMES = {int(getattr(ReduceOp, name)): name for name in (*OPS, "PREMUL_SUM")}


class Moved(NamedTuple):
    """A tensor as bytes: `data` is its memory, or that of a contiguous `copy`."""

    tensor: Tensor
    copy: Tensor
    data: Tensor

    def deliver(self) -> None:
        """Bring what was received in a copy to the tensor."""
        _deliver(self.copy, self.tensor)


class Operand(NamedTuple):
    """A tensor as numbers to combine by `op`: `data` is its memory, or a converted copy.

    `parts` is the number of ranks whose average the result shall be; 0: no average.
    """

    tensor: Tensor
    data: Tensor
    op: MPI.Op
    parts: int

    def deliver(self) -> None:
        """Bring the result to the tensor."""
        if self.parts:
            self.data.div_(self.parts)
        _deliver(self.data, self.tensor)

    def like(self, tensor: Tensor, step: str) -> Operand:
        """Return a tensor that shall hold the result of this operand."""
        real = _real(checked(tensor, step))
        if real.dtype == self.data.dtype and real.is_contiguous():
            return self._replace(tensor=real, data=real)
        return self._replace(tensor=real, data=torch.empty_like(
            real, dtype=self.data.dtype, memory_format=torch.contiguous_format
        ))  # fmt: skip


class Joined(NamedTuple):
    """Several tensors one after the other in one buffer of bytes."""

    tensors: Sequence[Tensor]
    data: Tensor
    counts: list[int]

    def deliver(self) -> None:
        """Bring what was received to the tensors."""
        for tensor, part in zip(self.tensors, self.data.split(self.counts), strict=True):
            if part.numel():
                tensor.copy_(part.view(tensor.dtype).view(tensor.shape))


def only(tensors: Sequence[Any], step: str) -> Any:
    """Return the only tensor of a list, or the only list; raises ArgumentError for several."""
    if len(tensors) != 1:
        raise ArgumentError(f"{step}: {len(tensors)} tensors in a list, 1 expected (one a rank)")
    return tensors[0]


def checked(tensor: Tensor, step: str) -> Tensor:
    """Return a tensor without its history; raises ArgumentTypeError if han cannot move it."""
    if not tensor.is_cpu:
        raise ArgumentTypeError(
            f"{step}: the tensor is on {tensor.device}, han moves memory of the host; pass "
            "tensor.cpu(), or use a group of that device's backend: new_group(backend=...)"
        )
    if tensor.layout != torch.strided:
        raise ArgumentTypeError(
            f"{step}: the tensor has the layout {tensor.layout}; pass tensor.to_dense()"
        )
    if tensor.is_neg() or tensor.is_conj():
        raise ArgumentTypeError(
            f"{step}: the tensor is a view that PyTorch computes when it is read; pass "
            "tensor.resolve_conj().resolve_neg()"
        )
    return tensor.detach()


def moved(tensor: Tensor, step: str) -> Moved:
    """Return a tensor as bytes."""
    mine = checked(tensor, step)
    copy = mine.contiguous()
    return Moved(mine, copy, copy.view(-1).view(torch.uint8))


def operand(tensor: Tensor, op: Any, size: int, step: str) -> Operand:
    """Return a tensor as numbers, of which an operation of torch combines those of `size` ranks.

    Raises ArgumentError for an operation that han or the type of the elements does not have.
    """
    mine = checked(tensor, step)
    mpi, average = _op(hash(op), mine.dtype, step)
    real = _real(mine)
    data = real.contiguous() if real.dtype in NUMBERS else real.to(NARROW).contiguous()
    return Operand(real, data, mpi, size if average else 0)


def joined(tensors: Sequence[Tensor], step: str, filled: bool) -> Joined:
    """Return tensors in one buffer; it is uninitialised unless `filled`."""
    parts = [checked(tensor, step) for tensor in tensors]
    counts = [part.numel() * part.element_size() for part in parts]
    if filled:
        data = torch.cat([moved(part, step).data for part in parts])
    else:
        data = torch.empty(sum(counts), dtype=torch.uint8)
    return Joined(parts, data, counts)


def apart(send: Tensor, recv: Tensor) -> Tensor:
    """Return `send`, or a copy of it if it overlaps `recv`, which MPI does not allow."""
    first, begin = send.data_ptr(), recv.data_ptr()
    overlap = first < begin + recv.nbytes and begin < first + send.nbytes
    return send.clone() if overlap else send


def flattened(tensors: Sequence[Tensor], step: str) -> Tensor:
    """Return the elements of tensors of one type, one tensor after the other."""
    kinds = {str(tensor.dtype): None for tensor in tensors}
    if len(kinds) > 1:
        raise ArgumentTypeError(f"{step}: tensors of {', '.join(kinds)} in one call, one expected")
    return torch.cat([checked(tensor, step).reshape(-1) for tensor in tensors])


def _real(tensor: Tensor) -> Tensor:
    """Return a view of complex numbers or truth values as numbers of NUMBERS."""
    if tensor.is_complex():
        return torch.view_as_real(tensor)
    return tensor.view(torch.uint8) if tensor.dtype == torch.bool else tensor


@cache
def _op(number: int, dtype: torch.dtype, step: str) -> tuple[MPI.Op, bool]:
    """Return MPI's operation for one of torch, and whether the result is to be an average."""
    name, kind = NAMES.get(number, str(number)), str(dtype).rpartition(".")[2]
    whole = not (dtype.is_floating_point or dtype.is_complex)
    if name not in OPS:
        raise ArgumentError(f"{step}: han has no {name}; SUM the tensor, and scale it before")
    if name in BITWISE and not whole:
        raise ArgumentError(f"{step}: {name} is not defined on {kind}; pass integers or bool")
    if name == "AVG" and whole:
        raise ArgumentError(f"{step}: averages of {kind} are not {kind}; SUM, then divide")
    if dtype.is_complex and name not in OF_COMPLEX:
        raise ArgumentError(f"{step}: {name} is not defined on {kind}; complex takes SUM and AVG")
    truths = OF_TRUTHS if dtype == torch.bool else {}
    return truths.get(name, OPS[name]), name == "AVG"


def _deliver(data: Tensor, tensor: Tensor) -> None:
    if data.data_ptr() != tensor.data_ptr():
        tensor.copy_(data)
