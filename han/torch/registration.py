"""The backend's name, and the groups that torch.distributed asks it for."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist
from mpi4py import MPI

from han.comm import Comm
from han.common.errors import ArgumentError, HanError
from han.torch.group import Group
from han.torch.meeting import meet_by_mpi

NAME = "han"
LEVELS = {
    MPI.THREAD_SINGLE: "MPI_THREAD_SINGLE",
    MPI.THREAD_FUNNELED: "MPI_THREAD_FUNNELED",
    MPI.THREAD_SERIALIZED: "MPI_THREAD_SERIALIZED",
}


def register() -> None:
    """Make the backend known to torch.distributed; later calls do nothing."""
    if not hasattr(dist.Backend, NAME.upper()):
        dist.Backend.register_backend(NAME, new_group, extended_api=True, devices=["cpu"])
        meet_by_mpi()


def new_group(how: Any, options: Any = None) -> Group:
    """Return the group that torch.distributed describes; collective over its members.

    Raises ArgumentError if torch and MPI do not mean the same ranks, HanError if MPI does not
    allow calls in several threads.
    """
    if options is not None:
        raise ArgumentError("the backend han takes no pg_options; HAN_... variables configure han")
    _check_threads()
    ranks = [*how.global_ranks_in_group]
    if not ranks:
        _check_ranks(how.group_rank, how.group_size)
        ranks = [*range(how.group_size)]
    world = MPI.COMM_WORLD
    group = world.group.Incl(ranks)
    try:
        return Group(Comm(world.Create_group(group)), how.store)
    finally:
        group.Free()


def _check_ranks(rank: int, size: int) -> None:
    """Raise unless torch's ranks are those of MPI."""
    world = MPI.COMM_WORLD
    if (rank, size) != (world.rank, world.size):
        raise ArgumentError(
            f"torch.distributed says rank {rank} of {size}, MPI says rank {world.rank} of "
            f"{world.size}; start the program with mpiexec -n {size}, not with torchrun, and leave "
            "rank and world_size out"
        )


def _check_threads() -> None:
    """Raise unless a thread may wait for a call while the program makes others."""
    level = MPI.Query_thread()
    if level < MPI.THREAD_MULTIPLE:
        raise HanError(
            f"han waits for tensors in a thread, which {LEVELS[level]} does not allow; initialise "
            "MPI with MPI_THREAD_MULTIPLE, mpi4py's default (mpi4py.rc.thread_level)"
        )
