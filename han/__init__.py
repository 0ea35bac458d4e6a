"""Fast hierarchical collective communication for Python programs on MPI.

from mpi4py import MPI
import han

comm = han.Comm(MPI.COMM_WORLD)
comm.Allreduce(send, recv, op=MPI.SUM)
"""

import han.common.library  # noqa: F401  first: it says what is missing where there is no MPI
from han.comm import Comm, shared_arrays
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
