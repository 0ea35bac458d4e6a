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
from han.config.untraced import watch

if TYPE_CHECKING:
    from han.comm import Cartcomm, Comm, Distgraphcomm, Graphcomm, Topocomm, shared_arrays
    from han.installed import install, uninstall
    from han.intercomm import Intercomm
    from han.runtime.request import Prequest, Request

__all__ = [
    "ArgumentError",
    "ArgumentTypeError",
    "Cartcomm",
    "CollectiveTimeoutError",
    "Comm",
    "ConfigError",
    "Distgraphcomm",
    "Graphcomm",
    "HanError",
    "Intercomm",
    "MismatchError",
    "MissingLibraryError",
    "PeerError",
    "Prequest",
    "Request",
    "RevokedError",
    "SharedMemoryError",
    "Topocomm",
    "install",
    "rc",
    "shared_arrays",
    "uninstall",
]

for _name in __all__:
    if _name.endswith("Error"):
        globals()[_name].__module__ = __name__  # a traceback shows the public name

watch()  # HAN_TRACE

# Imported at first use: plans can be made and proved without an MPI library.
_NEEDS_MPI = {
    "Cartcomm": "han.comm",
    "Comm": "han.comm",
    "Distgraphcomm": "han.comm",
    "Graphcomm": "han.comm",
    "Intercomm": "han.comm",
    "Prequest": "han.runtime.request",
    "Request": "han.runtime.request",
    "Topocomm": "han.comm",
    "install": "han.installed",
    "shared_arrays": "han.comm",
    "uninstall": "han.installed",
}


def __getattr__(name: str) -> Any:
    if name == "_native":  # `from han import _native` asks here first
        from han.common.library import compiled_part

        return compiled_part()
    if name not in _NEEDS_MPI:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from han.common.library import compiled_part, require_mpi

    require_mpi()
    compiled_part()
    found = globals()[name] = getattr(import_module(_NEEDS_MPI[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
