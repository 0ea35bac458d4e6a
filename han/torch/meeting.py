"""How ranks that mpiexec has started find the store of torch.distributed, without variables."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import urlparse

from mpi4py import MPI
from torch.distributed import TCPStore
from torch.distributed.constants import default_pg_timeout
from torch.distributed.rendezvous import _rendezvous_handlers as handlers

from han.common.errors import HanError

Met = Iterator[tuple[Any, int, int]]  # a store, the rank, the number of ranks

SCHEME = "env"  # what init_process_group takes if the program names no other way
# Set by torchrun, or by a program that starts its ranks by itself
TOLD = ("RANK", "WORLD_SIZE", "MASTER_PORT")
ADDRESS = "MASTER_ADDR"
HERE = "127.0.0.1"


def meet_by_mpi() -> None:
    """Let ranks without the variables of ``env://`` meet by MPI from now on."""
    handlers[SCHEME] = _or_by_mpi(handlers[SCHEME])


def _or_by_mpi(own: Callable[..., Met]) -> Callable[..., Met]:
    """Return a handler that is torch's `own` where the program or the environment names ranks."""

    def env(url: str, timeout: timedelta = default_pg_timeout, **more: Any) -> Met:
        if urlparse(url).query or any(name in os.environ for name in TOLD):
            return own(url, timeout=timeout, **more)
        return _by_mpi(timeout)

    return env


def _by_mpi(timeout: timedelta) -> Met:
    """Yield a store on rank 0, and what MPI says of ranks; collective."""
    comm = MPI.COMM_WORLD
    host = _host(comm)
    store, place, error = None, (host, 0), ""
    if comm.rank == 0:
        try:
            store = _store(place, comm, timeout)
            place = host, store.port
        except RuntimeError as problem:
            error = str(problem).split("\n")[0]
    place, error = comm.bcast((place, error))
    if error:
        raise HanError(
            f"rank 0 cannot open a store at {host!r} ({error}); name an address of its node that "
            f"all ranks reach: {ADDRESS}=..."
        )
    yield store or _store(place, comm, timeout), comm.rank, comm.size
    raise RuntimeError("ranks of MPI meet once: start the job again")


def _store(place: tuple[str, int], comm: MPI.Intracomm, timeout: timedelta) -> Any:
    """Open the store on rank 0, or connect to it on another rank."""
    return TCPStore(
        *place, comm.size, is_master=comm.rank == 0, timeout=timeout, wait_for_workers=False
    )


def _host(comm: MPI.Intracomm) -> str:
    """Return an address of rank 0's node that all ranks reach; collective."""
    several = len({*comm.allgather(MPI.Get_processor_name())}) > 1
    return os.environ.get(ADDRESS) or (socket.gethostname() if several else HERE)
