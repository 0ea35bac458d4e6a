"""Calls of MPI in C and Fortran, which the preloaded library (native/door) brings.

The library serves repeated calls by itself. First calls, and those with derived types or the
program's own operations, come here.
"""

from __future__ import annotations

import _thread
import atexit
import sys
import traceback
import weakref

from mpi4py import MPI

from han import _native
from han.attached import at_drop
from han.c_calls import METHODS, NOW, OPS, STARTED, Call, Side, expect_served, free_types, own_types
from han.comm import Comm
from han.common.errors import ArgumentError, HanError, SharedMemoryError
from han.message.unlocked import WIDE_HANDLES, set_handle
from han.runtime.leaving import leave
from han.runtime.left import Left
from han.runtime.waiting import accept_limit

LEFT = -1  # the call is MPI's: native/door.h
MOST_CODES = 64  # of errors, as MPI has few; further ones get the code of their class

_comms: dict[int, Comm] = {}
_codes: dict[tuple[int, str], int] = {}
_told: set[str] = set()


def start() -> None:
    """Serve a program of C or Fortran, which has started this interpreter."""
    accept_limit()  # requests of MPI do not progress meanwhile either
    open()


def open() -> bool:
    """Serve the library that was preloaded; return whether there is one."""
    opened = _native.open_door(
        _begin, _first, _failed, _free, _forget, _end, _rest, OPS, WIDE_HANDLES, MPI.ERR_OTHER,
        MPI.DATATYPE_NULL.handle,
    )  # fmt: skip
    if opened and _lose not in at_drop:
        at_drop.append(_lose)
        atexit.unregister(leave)  # the library calls `_end`
    return opened


def _lose(handle: int) -> None:
    """Hear that a han.Comm of the program has released what han holds for a communicator."""
    _comms.pop(handle, None)
    _native.lose(handle)


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
        comm._of_c = True
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
) -> tuple[int, object, object]:
    """Serve a call.

    Returns MPI's code or LEFT, the look-up of repeated calls, and the request of a call that is not
    complete.
    """
    call = Call(collective, Side(*send), Side(*recv), *rest)
    comm = _comms[call.comm]
    state = comm._han
    calls = None if state.parts.given.statistics else state.calls
    name, arguments = METHODS[call.collective, call.form, bool(call.neighbours), call.when]
    try:
        expect_served(call, comm.rank, comm.size)
        if call.neighbours and not hasattr(comm, "indegree"):  # it has no topology
            return LEFT, calls, None
        if call.when == NOW:
            getattr(comm, name)(*arguments(comm, call))
            return MPI.SUCCESS, calls, None
        with own_types() as types:
            request = getattr(comm, name)(*arguments(comm, call))
        if types:
            weakref.finalize(request, free_types, types).atexit = False
    except Left:
        return LEFT, calls, None
    except SharedMemoryError as error:  # on all ranks alike
        if call.when == STARTED:  # there is no room for one more request
            return LEFT, calls, None
        return _failed(call.comm, error), calls, None
    except Exception as error:
        return _failed(call.comm, error), calls, None
    except KeyboardInterrupt as error:  # a Python program's, which hears it after the call
        _thread.interrupt_main()
        return _failed(call.comm, error), calls, None
    return MPI.SUCCESS, calls, request


def _rest(handle: int) -> int:
    """Return the handle of an inactive request of a communicator, which MPI can test and free.

    Not one of PROC_NULL: MPICH 5 and Intel MPI take such a request's memory for a persistent
    collective later, and then do not start that one.
    """
    comm = _comms[handle]
    return comm.Recv_init([None, 0, MPI.BYTE], comm.rank).handle


def _failed(handle: int, error: BaseException) -> int:
    """Call the communicator's handler of errors, which may end the program; return the code."""
    alive = handle in _comms  # else a request outlived its communicator
    comm = MPI.Intracomm.fromhandle(handle) if alive else MPI.COMM_SELF
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
    comm = _comms.get(handle)
    if comm is not None:
        try:
            comm._end(None)
        except (HanError, MPI.Exception) as error:
            return _failed(handle, error)
        finally:
            _comms.pop(handle, None)
    return MPI.SUCCESS


def _forget(handle: int) -> int:
    """Let plans that reduce with an operation of the program serve no call any more."""
    op = OPS.pop(handle, None)
    if op is not None:
        set_handle(op, MPI.OP_NULL)  # type: ignore[arg-type]
    return MPI.SUCCESS


def _end() -> int:
    """Take leave of the other ranks: the program finalizes MPI."""
    leave()
    sys.stdout.flush()
    sys.stderr.flush()
    return MPI.SUCCESS
