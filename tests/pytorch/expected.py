"""Tensors of ranks, and what calls make of them, computed on one rank."""

import functools

import torch
import torch.distributed as dist
from torch.distributed import ReduceOp

INTEGERS = [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
COMPLEX = [torch.complex64, torch.complex128]
DTYPES = [torch.bool, *INTEGERS, *FLOATS, *COMPLEX]
OPS = {
    ReduceOp.SUM: lambda a: a.sum(0),
    ReduceOp.AVG: lambda a: a.sum(0) / len(a),
    ReduceOp.PRODUCT: lambda a: a.prod(0),
    ReduceOp.MIN: lambda a: a.amin(0),
    ReduceOp.MAX: lambda a: a.amax(0),
    ReduceOp.BAND: functools.partial(functools.reduce, torch.bitwise_and),
    ReduceOp.BOR: functools.partial(functools.reduce, torch.bitwise_or),
    ReduceOp.BXOR: functools.partial(functools.reduce, torch.bitwise_xor),
}
BITWISE = (ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR)
SHAPE = (4, 3)
WAYS = ("waits", "starts", "has a future")


def rank():
    return dist.get_rank()


def size():
    return dist.get_world_size()


def given(r, dtype, shape=SHAPE):
    """Return the tensor of a rank: small numbers, which all types hold."""
    count = torch.Size(shape).numel()
    numbers = (torch.arange(count) + r) % 3
    return numbers.to(dtype).reshape(shape)


def ops_of(dtype):
    """Return the operations that a type has."""
    if dtype.is_complex:
        return [ReduceOp.SUM, ReduceOp.AVG]
    whole = not dtype.is_floating_point
    return [
        op for op in OPS
        if not (op == ReduceOp.AVG and whole) and not (op in BITWISE and not whole)
    ]  # fmt: skip


def combined(op, dtype, ranks=None, make=given):
    """Return what the operation makes of the tensors of all ranks."""
    wide = torch.complex128 if dtype.is_complex else torch.int64
    wide = torch.float64 if dtype.is_floating_point else wide
    several = torch.stack([make(r, dtype).to(wide) for r in ranks or range(size())])
    return OPS[op](several).to(dtype)


def made(way, call):
    """Make a call in one of the ways: the program waits at once, for the work, or for a future."""
    work = call(way != "waits")
    if way == "waits":
        assert work is None
    elif way == "starts":
        assert work.wait()
        assert work.is_completed()
        assert work.is_success()
    else:
        work.get_future().wait()


def same(found, expected):
    assert found.dtype == expected.dtype
    assert torch.equal(found, expected), (found, expected)


def apart(tensor):
    """Return a copy whose elements are not one after the other."""
    wide = torch.zeros(*tensor.shape, 2, dtype=tensor.dtype)
    wide[..., 0] = tensor
    return wide[..., 0]


def same_bytes(found, expected):
    same(found.contiguous().view(torch.uint8), expected.contiguous().view(torch.uint8))
