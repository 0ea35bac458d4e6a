"""Calls of C and Fortran programs, which the preloaded library (native/door) brings.

The library serves repeated calls by itself. First calls, and those with derived types or the
program's own operations, come here.
"""

from __future__ import annotations

import ctypes
import sys
import traceback
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from mpi4py import MPI

from han import _native
from han.comm import Comm
from han.common.errors import ArgumentError, HanError, SharedMemoryError
from han.message.dtypes import canonical, op_name, pair_name, type_name
from han.message.unlocked import WIDE_HANDLES, set_handle
from han.model.collectives import ROWS
from han.model.element_types import PAIRS, WIDE, kernel
from han.runtime.leaving import leave

IN_PLACE = int(MPI.IN_PLACE) % 2**64
LEFT = -1  # the call is MPI's: native/door/door.h
PREDEFINED = (
    MPI.SUM, MPI.MAX, MPI.MIN, MPI.PROD, MPI.LAND, MPI.BAND, MPI.LOR, MPI.BOR, MPI.LXOR, MPI.BXOR,
    MPI.MAXLOC, MPI.MINLOC,
)  # fmt: skip

PREDEFINED_HANDLES = {op.handle for op in PREDEFINED}
REDUCING = {
    int(ROWS[name].code) for name in ("reduce", "allreduce", "scan", "exscan", "reduce_scatter")
}
ROOTED = {
    int(ROWS[name].code) for name in ("bcast", "reduce", "gather", "scatter", "gatherv", "scatterv")
}
MOST_CODES = 64  # of errors, as MPI has few; further ones get the code of their class

_comms: dict[int, Comm] = {}
_codes: dict[tuple[int, str], int] = {}
_told: set[str] = set()
_ops: dict[int, MPI.Op] = {op.handle: op for op in PREDEFINED}


EQUAL, COUNTED, TYPED = range(3)  # how blocks are told: native/door/door.h


class Refused(Exception):
    """MPI is to refuse or to carry out a call, and to say what is wrong; nothing has started."""


class Side(NamedTuple):
    """One side of a call: addresses, a number of elements, MPI's handles.

    `counts`, `places` and `types` are addresses of numbers and handles, one for each rank, or 0.
    """

    data: int
    n: int
    datatype: int
    counts: int
    places: int
    types: int

    @property
    def in_place(self) -> bool:
        """Whether the program passed MPI_IN_PLACE."""
        return self.data == IN_PLACE

    def whole(self, blocks: int = 1) -> Any:
        """Return the buffer, of so many blocks, as mpi4py takes it."""
        if self.in_place:
            return MPI.IN_PLACE
        datatype = _datatype(self.datatype)
        if self.n < 0:
            raise Refused
        data = _memory(self.data, self.n * blocks * datatype.Get_size(), datatype)
        return [data, self.n, datatype]


class Call(NamedTuple):
    """A call as the program made it."""

    collective: int
    send: Side
    recv: Side
    op: int
    comm: int
    root: int
    form: int
    large: int

    @property
    def reducing(self) -> MPI.Op:
        """The operation. One object stands for it until the program frees it."""
        return _ops.get(self.op) or _ops.setdefault(self.op, MPI.Op.fromhandle(self.op))

    def numbers(self, address: int, size: int) -> list[int]:
        """Return the numbers of all ranks at an address."""
        kind = ctypes.c_int64 if self.large else ctypes.c_int
        return list((kind * size).from_address(address))

    def blocks(self, side: Side, size: int) -> Any:
        """Return a buffer of blocks with counts, and maybe places and types, of their own."""
        if side.in_place:
            return MPI.IN_PLACE
        counts = self.numbers(side.counts, size)
        if min(counts) < 0:
            raise Refused
        kinds = [*map(_datatype, _handles(side.types, size))] if self.form == TYPED else None
        datatype = MPI.BYTE if kinds else _datatype(side.datatype)
        data, places = side.data, None
        if side.places:
            data, places = _placed(data, counts, self.numbers(side.places, size), datatype)
        whole = _memory(data, sys.maxsize if any(counts) else 0, datatype)
        return [whole, counts, places, kinds or datatype]


def _datatype(handle: int) -> MPI.Datatype:
    datatype = MPI.Datatype.fromhandle(handle)
    if datatype == MPI.DATATYPE_NULL:
        raise Refused
    return datatype


def _memory(address: int, nbytes: int, datatype: MPI.Datatype) -> Any:
    """Return the memory at an address; MPI_BOTTOM is for derived types."""
    if address:
        return MPI.buffer.fromaddress(address, nbytes)
    if nbytes and datatype.is_predefined and datatype != MPI.BYTE:
        raise Refused
    return MPI.BOTTOM


def _placed(
    data: int, counts: list[int], places: list[int], datatype: MPI.Datatype
) -> tuple[int, list[int]]:
    """Return address and places of blocks, of which none is negative, as mpi4py wants them."""
    used = [place for n, place in zip(counts, places, strict=True) if n]
    least = min(0, *used, 0)
    found = [place - least if n else 0 for n, place in zip(counts, places, strict=True)]
    return data + least * datatype.Get_extent()[1], found


def _handles(address: int, size: int) -> list[int]:
    kind = ctypes.c_size_t if WIDE_HANDLES else ctypes.c_uint
    return list((kind * size).from_address(address))


@cache
def _has(op: int, handle: int) -> bool:
    """Return whether han has a predefined operation on a predefined type, as MPI may have it."""
    name = op_name(canonical(MPI.Op.fromhandle(op)))
    datatype = MPI.Datatype.fromhandle(handle)
    if name in PAIRS:
        return bool(pair_name(datatype))
    kind = type_name(datatype)
    return kernel(name, kind) is not None or name in WIDE.get(kind, ())


def _check(call: Call, rank: int, size: int) -> None:
    """Refuse what MPI refuses, and what only MPI has; ranks that pass the same decide alike."""
    if not 0 <= call.root < size:
        raise Refused
    if rank == call.root or call.collective not in ROOTED:
        elements = call.form != EQUAL or (call.send.n and call.recv.n)
        same = call.send.data and call.send.data == call.recv.data and elements
        if same and not WIDE_HANDLES:  # Open MPI does not look, and would wait for the others
            raise Refused
    if call.collective not in REDUCING:
        return
    if call.op == MPI.OP_NULL.handle:
        raise Refused
    handle = (call.recv if call.send.in_place else call.send).datatype
    known = call.op in PREDEFINED_HANDLES and _datatype(handle).is_predefined
    if known and not _has(call.op, handle):
        raise Refused


def _gather(comm: Comm, call: Call) -> None:
    at_root = comm.rank == call.root
    comm.Gather(call.send.whole(), call.recv.whole(comm.size) if at_root else None, call.root)


def _scatter(comm: Comm, call: Call) -> None:
    at_root = comm.rank == call.root
    comm.Scatter(call.send.whole(comm.size) if at_root else None, call.recv.whole(), call.root)


def _reduce(comm: Comm, call: Call) -> None:
    at_root = comm.rank == call.root
    recv = call.recv.whole() if at_root else None
    comm.Reduce(call.send.whole(), recv, call.reducing, call.root)


def _reduce_scatter_block(comm: Comm, call: Call) -> None:
    recv = call.recv.whole(comm.size if call.send.in_place else 1)
    comm.Reduce_scatter_block(call.send.whole(comm.size), recv, call.reducing)


def _reduce_scatter(comm: Comm, call: Call) -> None:
    counts = call.numbers(call.send.counts, comm.size)
    own = call.recv._replace(n=counts[comm.rank])
    whole = call.recv._replace(n=sum(counts))
    recv = whole if call.send.in_place else own
    send = call.send._replace(n=sum(counts))
    comm.Reduce_scatter(send.whole(), recv.whole(), counts, call.reducing)


def _gatherv(comm: Comm, call: Call) -> None:
    at_root = comm.rank == call.root
    recv = call.blocks(call.recv, comm.size) if at_root else None
    comm.Gatherv(call.send.whole(), recv, call.root)


def _scatterv(comm: Comm, call: Call) -> None:
    at_root = comm.rank == call.root
    send = call.blocks(call.send, comm.size) if at_root else None
    comm.Scatterv(send, call.recv.whole(), call.root)


def _allgatherv(comm: Comm, call: Call) -> None:
    comm.Allgatherv(call.send.whole(), call.blocks(call.recv, comm.size))


def _alltoallv(comm: Comm, call: Call) -> None:
    method = comm.Alltoallw if call.form == TYPED else comm.Alltoallv
    method(call.blocks(call.send, comm.size), call.blocks(call.recv, comm.size))


Serve = Callable[[Comm, Call], None]
WHOLE: dict[str, Serve] = {
    "barrier": lambda comm, call: comm.Barrier(),
    "bcast": lambda comm, call: comm.Bcast(call.recv.whole(), call.root),
    "reduce": _reduce,
    "allreduce": lambda comm, call: comm.Allreduce(
        call.send.whole(), call.recv.whole(), call.reducing
    ),
    "scan": lambda comm, call: comm.Scan(call.send.whole(), call.recv.whole(), call.reducing),
    "exscan": lambda comm, call: comm.Exscan(call.send.whole(), call.recv.whole(), call.reducing),
    "gather": _gather,
    "scatter": _scatter,
    "allgather": lambda comm, call: comm.Allgather(call.send.whole(), call.recv.whole(comm.size)),
    "alltoall": lambda comm, call: comm.Alltoall(
        call.send.whole(comm.size), call.recv.whole(comm.size)
    ),
    "reduce_scatter": _reduce_scatter_block,
}
PARTED: dict[str, Serve] = {  # with counts
    "gatherv": _gatherv,
    "scatterv": _scatterv,
    "allgather": _allgatherv,
    "alltoallv": _alltoallv,
    "reduce_scatter": _reduce_scatter,
}
SERVED = {
    (int(ROWS[name].code), counted): serve
    for counted, served in ((False, WHOLE), (True, PARTED))
    for name, serve in served.items()
}


def open() -> bool:
    """Serve the library that was preloaded; return whether there is one."""
    return _native.open_door(
        _begin, _first, _failed, _free, _forget, _end,
        tuple((op.handle, op) for op in PREDEFINED), WIDE_HANDLES, MPI.ERR_OTHER,
    )  # fmt: skip


def _begin(handle: int) -> bool:
    """Set a communicator up; return whether han can serve it. Collective.

    MPI may have given the handle of another communicator, which was freed in a way that the library
    did not see.
    """
    _comms.pop(handle, None)
    plain = MPI.Intracomm.fromhandle(handle)
    try:
        comm = Comm(plain)
        comm._han  # noqa: B018  # sets it up
    except (HanError, MPI.Exception) as error:
        _tell(f"han: a communicator runs on MPI alone: {error}", plain.Get_rank())
        return False
    _comms[handle] = comm
    return True


def _tell(text: str, rank: int) -> None:
    """Print what all ranks of a communicator know, once: many communicators may meet the same."""
    if not rank and text not in _told:
        _told.add(text)
        print(text, file=sys.stderr, flush=True)


def _first(
    collective: int, send: tuple[int, ...], recv: tuple[int, ...], *rest: int
) -> tuple[int, object]:
    """Serve a call; return MPI's code or LEFT, and the look-up of repeated calls."""
    call = Call(collective, Side(*send), Side(*recv), *rest)
    comm = _comms[call.comm]
    state = comm._han
    calls = None if state.parts.given.statistics else state.calls
    try:
        _check(call, comm.rank, comm.size)
        SERVED[call.collective, call.form != EQUAL](comm, call)
    except Refused:
        return LEFT, calls
    except Exception as error:
        return _failed(call.comm, error), calls
    return MPI.SUCCESS, calls


def _failed(handle: int, error: BaseException) -> int:
    """Call the communicator's handler of errors, which may end the program; return the code."""
    comm = MPI.Intracomm.fromhandle(handle)
    if not isinstance(error, HanError | MPI.Exception):
        traceback.print_exception(error)  # a mistake of han
    if isinstance(error, MPI.Exception):
        code = error.Get_error_code()
    else:
        text = f"han: {error}"
        code = _code_of(_class_of(error), text[: MPI.MAX_ERROR_STRING - 1])
        if comm.Get_errhandler() == MPI.ERRORS_ARE_FATAL:
            print(text, file=sys.stderr, flush=True)
    comm.Call_errhandler(code)
    return code


def _code_of(error_class: int, text: str) -> int:
    """Return a code of MPI for an error, whose text MPI then tells."""
    found = _codes.get((error_class, text))
    if found is None:
        if len(_codes) == MOST_CODES:
            return error_class
        found = _codes[error_class, text] = MPI.Add_error_code(error_class)
        MPI.Add_error_string(found, text)
    return found


def _class_of(error: BaseException) -> int:
    if isinstance(error, ArgumentError):
        return MPI.ERR_ARG
    return MPI.ERR_NO_MEM if isinstance(error, SharedMemoryError) else MPI.ERR_OTHER


def _free(handle: int) -> int:
    """Release what han holds for a communicator that MPI is about to free; collective."""
    comm = _comms.pop(handle, None)
    if comm is not None:
        try:
            comm._end(None)
        except (HanError, MPI.Exception) as error:
            return _failed(handle, error)
    return MPI.SUCCESS


def _forget(handle: int) -> int:
    """Let plans that reduce with an operation of the program serve no call any more."""
    op = _ops.pop(handle, None)
    if op is not None:
        set_handle(op, MPI.OP_NULL)  # type: ignore[arg-type]
    return MPI.SUCCESS


def _end() -> int:
    """Take leave of the other ranks: the program finalizes MPI."""
    leave()
    sys.stdout.flush()
    sys.stderr.flush()
    return MPI.SUCCESS
