"""Calls of C and Fortran programs, which the preloaded library (native/door) brings.

The library serves repeated calls by itself. First calls, and those with derived types or the
program's own operations, come here.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

import mpi4py

mpi4py.rc(initialize=False, finalize=False, errors="default")

from mpi4py import MPI

from han import _native
from han.comm import Comm
from han.common.errors import ArgumentError, HanError, SharedMemoryError
from han.message.unlocked import WIDE_HANDLES, set_handle
from han.model.collectives import ROWS
from han.runtime.leaving import leave

IN_PLACE = int(MPI.IN_PLACE) % 2**64
PREDEFINED = (
    MPI.SUM, MPI.MAX, MPI.MIN, MPI.PROD, MPI.LAND, MPI.BAND, MPI.LOR, MPI.BOR, MPI.LXOR, MPI.BXOR,
    MPI.MAXLOC, MPI.MINLOC,
)  # fmt: skip

_comms: dict[int, Comm] = {}
_ops: dict[int, MPI.Op] = {op.handle: op for op in PREDEFINED}


class Call(NamedTuple):
    """A call as the program made it: addresses, numbers of elements, and MPI's handles."""

    collective: int
    comm: int
    send: int
    recv: int
    n_send: int
    n_recv: int
    send_type: int
    recv_type: int
    op: int
    root: int

    def sent(self, blocks: int = 1) -> Any:
        """Return what is sent as mpi4py takes it."""
        return _buffer(self.send, self.n_send, self.send_type, blocks)

    def received(self, blocks: int = 1) -> Any:
        """Return where data is received, as mpi4py takes it."""
        return _buffer(self.recv, self.n_recv, self.recv_type, blocks)

    @property
    def reducing(self) -> MPI.Op:
        """The operation. One object stands for it until the program frees it."""
        return _ops.get(self.op) or _ops.setdefault(self.op, MPI.Op.fromhandle(self.op))


def _buffer(address: int, count: int, handle: int, blocks: int) -> Any:
    if address == IN_PLACE:
        return MPI.IN_PLACE
    datatype = MPI.Datatype.fromhandle(handle)
    if not address:
        return [MPI.BOTTOM, count, datatype]
    nbytes = max(count, 0) * blocks * datatype.Get_size()
    return [MPI.buffer.fromaddress(address, nbytes), count, datatype]


def _gather(comm: Comm, call: Call) -> None:
    at_root = comm.rank == call.root
    comm.Gather(call.sent(), call.received(comm.size) if at_root else None, call.root)


def _scatter(comm: Comm, call: Call) -> None:
    at_root = comm.rank == call.root
    comm.Scatter(call.sent(comm.size) if at_root else None, call.received(), call.root)


def _reduce(comm: Comm, call: Call) -> None:
    at_root = comm.rank == call.root
    comm.Reduce(call.sent(), call.received() if at_root else None, call.reducing, call.root)


def _reduce_scatter_block(comm: Comm, call: Call) -> None:
    in_place = call.send == IN_PLACE
    received = call.received(comm.size if in_place else 1)
    comm.Reduce_scatter_block(call.sent(comm.size), received, call.reducing)


SERVED: dict[str, Callable[[Comm, Call], None]] = {
    "barrier": lambda comm, call: comm.Barrier(),
    "bcast": lambda comm, call: comm.Bcast(call.received(), call.root),
    "reduce": _reduce,
    "allreduce": lambda comm, call: comm.Allreduce(call.sent(), call.received(), call.reducing),
    "scan": lambda comm, call: comm.Scan(call.sent(), call.received(), call.reducing),
    "exscan": lambda comm, call: comm.Exscan(call.sent(), call.received(), call.reducing),
    "gather": _gather,
    "scatter": _scatter,
    "allgather": lambda comm, call: comm.Allgather(call.sent(), call.received(comm.size)),
    "alltoall": lambda comm, call: comm.Alltoall(call.sent(comm.size), call.received(comm.size)),
    "reduce_scatter": _reduce_scatter_block,
}
BY_CODE = {ROWS[name].code: serve for name, serve in SERVED.items()}


def open() -> bool:
    """Serve the library that was preloaded; return whether there is one."""
    return _native.open_door(
        _first, _failed, _free, _forget, _end,
        tuple((op.handle, op) for op in PREDEFINED), WIDE_HANDLES, MPI.ERR_OTHER,
    )  # fmt: skip


def _first(fields: tuple[int, ...]) -> tuple[int, object]:
    """Serve a call; return MPI's code, and the look-up of repeated calls."""
    call = Call(*fields)
    try:
        comm = _comms.get(call.comm)
        if comm is None:
            comm = _comms[call.comm] = Comm(MPI.Intracomm.fromhandle(call.comm))
        BY_CODE[call.collective](comm, call)
    except Exception as error:
        return _failed(call.comm, error), None
    state = comm._han
    return MPI.SUCCESS, None if state.parts.given.statistics else state.calls


def _failed(handle: int, error: BaseException) -> int:
    """Call the communicator's handler of errors, which may end the program; return the code."""
    comm = MPI.Intracomm.fromhandle(handle)
    if not isinstance(error, HanError | MPI.Exception):
        traceback.print_exception(error)  # a mistake of han
    if isinstance(error, MPI.Exception):
        code = error.Get_error_code()
    else:
        text = f"han: {error}"
        code = MPI.Add_error_code(_class_of(error))
        MPI.Add_error_string(code, text[: MPI.MAX_ERROR_STRING - 1])
        if comm.Get_errhandler() == MPI.ERRORS_ARE_FATAL:
            print(text, file=sys.stderr, flush=True)
    comm.Call_errhandler(code)
    return code


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
