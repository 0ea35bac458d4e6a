"""The ranks that run a command: those of MPI, or one process where no MPI library is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from han.common.errors import MissingLibraryError
from han.common.library import require_mpi

if TYPE_CHECKING:
    from mpi4py import MPI


def world() -> MPI.Intracomm:
    """Return MPI.COMM_WORLD; raises MissingLibraryError."""
    require_mpi()
    from mpi4py import MPI

    return MPI.COMM_WORLD


def rank() -> int:
    """Return this process's rank; 0 without an MPI library."""
    try:
        return world().rank
    except MissingLibraryError:
        return 0
