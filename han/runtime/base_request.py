"""The class in C that requests extend. It extends mpi4py's by what a run needs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from mpi4py import MPI

from han import _native
from han.message.unlocked import WIDE_HANDLES, bytes_of, offset_of

Library = tuple[str, int, int, int, int, int, int, int]


def library(tag: int) -> Library:
    """Return what C needs to call the MPI library; `tag` is that of notices."""
    handles = int(MPI.IN_PLACE), MPI.BYTE.handle
    return (
        MPI.__file__,
        int(WIDE_HANDLES),
        MPI.ANY_SOURCE,
        tag,
        MPI.ERR_TRUNCATE,
        MPI.ERR_NO_MEM,
        *handles,
    )


def _made() -> type[MPI.Request]:
    one = MPI.Request()
    handle = offset_of(one)  # where MPI's handle is in an object
    null = one.handle
    return _native.request_class(MPI.Request, handle, null, library(0), _status_fields())


def _status_fields() -> tuple[int, int, int, int, int]:
    """Return the offsets of source, tag and error in a status, and the values for "any".

    MPI libraries lay a status out differently, and not all of them have functions to set a field.
    """
    marks = range(0x5EED1, 0x5EED4)
    status = MPI.Status()
    status.Set_source(marks[0])
    status.Set_tag(marks[1])
    status.Set_error(marks[2])
    data = bytes_of(status)
    source, tag, error = (data.index(mark.to_bytes(4, sys.byteorder)) for mark in marks)
    return source, tag, error, MPI.ANY_SOURCE, MPI.ANY_TAG


if TYPE_CHECKING:

    class BaseRequest(MPI.Request):
        """A plan bound to buffers; it is started, waited for and tested like an MPI request.

        The arguments are those of ``native/python/py_request.c``. A subclass has the methods
        ``_empty``, which fills in a status, and ``_error_code``, which returns MPI's code for an
        exception.
        """

        active: bool  # it was started and not yet completed by Wait or Test
        persistent: bool  # it can be started again
        _engine: _native.Engine | None  # it runs it; None once the request has been freed

        def __init__(self, engine: _native.Engine, plan: _native.Plan, *more: Any, **named: Any):
            """Bind a plan to addresses, which follow."""

        def Start(self) -> None:
            """Start the run; it progresses inside Wait and Test."""

        def _peek(self) -> bool:
            """Make progress; return whether it is complete. The request stays active."""

        def _free(self) -> None:
            """Complete the run if it is active, and release everything."""

        def _synchronise(self) -> None:
            """Take notice if MPI's own functions have completed the request."""

else:
    BaseRequest = _made()
