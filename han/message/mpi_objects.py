"""What han uses of mpi4py beside its public interface: where its objects hold MPI's handles.

- C reads the handles of types and operations in arguments, and writes those of requests, at their
  place in the object (`offset_of`); a call of ``handle`` would take longer than the look-up.
- A communicator whose class changes, or that MPI has not initialised yet, gets a handle that mpi4py
  must not ask MPI about (`set_handle`).
- The fields of a status differ between MPI libraries (`bytes_of`).
- Functions of MPI that are called without Python's lock take handles by value (`WIDE_HANDLES`).
"""

from __future__ import annotations

import ctypes
from typing import Any

from mpi4py import MPI

WIDE_HANDLES = MPI._sizeof(MPI.COMM_WORLD) > 4  # handles are pointers, not ints


def offset_of(one: Any) -> int:
    """Return where the handle is in an object, in bytes from its address."""
    return MPI._addressof(one) - id(one)


def set_handle(comm: MPI.Comm, source: MPI.Comm) -> None:
    """Give a communicator the handle of another one."""
    ctypes.memmove(MPI._addressof(comm), MPI._addressof(source), MPI._sizeof(comm))


def bytes_of(status: MPI.Status) -> bytes:
    """Return the memory of a status."""
    memory = MPI.memory.fromaddress(MPI._addressof(status), MPI._sizeof(status))
    return memory.tobytes()
