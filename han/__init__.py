"""Fast hierarchical collective communication for Python programs on MPI.

A han.Comm is a communicator of mpi4py whose collectives are han's::

    from mpi4py import MPI
    import han

    comm = han.Comm(MPI.COMM_WORLD)
    comm.Allreduce(send, recv, op=MPI.SUM)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from han.common.errors import (
    ArgumentError,
    ArgumentTypeError,
    CollectiveTimeoutError,
    ConfigError,
    HanError,
    MismatchError,
    MissingLibraryError,
    PeerError,
    RevokedError,
    SharedMemoryError,
)
from han.common.version import __version__ as __version__
from han.config.rc import rc

if TYPE_CHECKING:
    from han.comm import Comm, shared_arrays
    from han.runtime.request import Request

__all__ = [
    "ArgumentError",
    "ArgumentTypeError",
    "CollectiveTimeoutError",
    "Comm",
    "ConfigError",
    "HanError",
    "MismatchError",
    "MissingLibraryError",
    "PeerError",
    "Request",
    "RevokedError",
    "SharedMemoryError",
    "rc",
    "shared_arrays",
]

# Imported at first use: plans can be made and proved without an MPI library.
_NEEDS_MPI = {"Comm": "han.comm", "Request": "han.runtime.request", "shared_arrays": "han.comm"}


def __getattr__(name: str) -> Any:
    if name not in _NEEDS_MPI:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from han.common.library import require_mpi

    require_mpi()
    found = globals()[name] = getattr(import_module(_NEEDS_MPI[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
