"""Cross-memory attach: ranks try it when a communicator is created, and agree whether to use it."""

import errno
import itertools
import os

import pytest
from _support import Call, Checker, Reference
from mpi4py import MPI

import han
from han import _native
from han.cli import info as _cli_info

RULES = {
    "rules": [
        {
            "when": {"collective": "allreduce"},
            "use": {"levels": {"node": {"submodule": "solo", "algorithm": "split"}}},
        },
        {"use": {"levels": {"node": {"submodule": "solo"}}}},
    ]
}


def calls(comm):
    """Make calls of several sizes, and check their results."""
    check = Checker(comm, Reference(MPI.COMM_WORLD.Dup()))
    for count, in_place in itertools.product((1, 1000, 100_003), (False, True)):
        check(Call("allreduce", count, in_place=in_place))
        check(Call("bcast", count, root=comm.size - 1))


def said_of_bcast(comm):
    return comm.explain("bcast", 1 << 20)


@pytest.mark.mpi(ranks=[2, 4], timeout=60, unit="s")
def test_ranks_read_each_others_memory(mpi_ranks):
    comm = han.Comm(MPI.COMM_WORLD.Dup(), config=RULES)
    reason = comm._han.parts.shared.attach_refused
    if reason:
        pytest.skip(f"this machine refuses it: {reason}")
    calls(comm)
    assert said_of_bcast(comm).plan.choice.levels[0].submodule == "solo"
    assert "read each other's memory" in _cli_info.as_text(_cli_info.collect(comm))
    comm.Free()


@pytest.mark.mpi(ranks=[3], timeout=60, unit="s")
@pytest.mark.parametrize("how", ["refused", "another process"])
def test_one_rank_that_may_not_is_known_to_all(mpi_ranks, monkeypatch, how):
    def peek(pid, address):
        if how == "another process":
            return 0
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    if MPI.COMM_WORLD.rank == 1:
        monkeypatch.setattr(_native, "peek", peek)
    comm = han.Comm(MPI.COMM_WORLD.Dup(), config=RULES)
    reasons = MPI.COMM_WORLD.allgather(comm._han.parts.shared.attach_refused)
    assert len(set(reasons)) == 1
    assert "rank 1" in reasons[0]
    said = said_of_bcast(comm)
    assert said.plan.choice.levels[0].submodule == "sm"
    assert "may not read each other's memory" in said.decision.passed[0][1]
    assert "single copy no: rank 1" in _cli_info.as_text(_cli_info.collect(comm))
    calls(comm)
    comm.Free()


@pytest.mark.mpi(ranks=[2], timeout=60, unit="s")
def test_memory_that_cannot_be_read_any_more_is_told(mpi_ranks):
    """Reading an unmapped address, or the memory of no process, raises OSError."""
    comm = han.Comm(MPI.COMM_WORLD.Dup(), config=RULES)
    if comm._han.parts.shared.attach_refused:
        pytest.skip(f"this machine refuses it: {comm._han.parts.shared.attach_refused}")
    with pytest.raises(OSError, match="Bad address"):
        _native.peek(os.getpid(), 64)
    with pytest.raises(OSError, match="No such process"):
        _native.peek(1 << 22, 64)
    calls(comm)
    comm.Free()
