"""Errors of peers that a rank hears of where it cannot raise them: in a callback of MPI."""

import contextlib
import itertools
import time
from functools import partial
from unittest import mock

import numpy as np
import pytest
from _support import LEVELS, WORLD, error_of, new_comm, on_four, on_two, outcome
from mpi4py import MPI

import han
from han.runtime.left import left_request

ODD = 1  # the rank that fails
FOR_A_WHILE = 0.05  # seconds in which the peers may hear of it
BROKEN = mock.patch("han.message.message._op", side_effect=ValueError("what is this"))


def until_heard(comm):
    """Wait in MPI for a message of rank ODD, which failed some time before."""
    if comm.rank == ODD:
        time.sleep(FOR_A_WHILE)
    WORLD.bcast(None, root=ODD)


WAITS = {
    "Wait": lambda requests: requests[0].Wait(),
    "Test": lambda requests: [None for _ in iter(requests[0].Test, True)],
    "Waitall": lambda requests: han.Request.Waitall(requests),
    "Waitany": lambda requests: han.Request.Waitany(requests),
    "Wait of the second": lambda requests: requests[1].Wait(),
    "MPI's Wait": lambda requests: MPI.Request.Wait(requests[0]),
}


@on_four
def test_the_first_call_raises_what_a_callback_of_mpi_heard(mpi_ranks):
    for levels, (name, wait) in itertools.product(LEVELS, WAITS.items()):
        comm = new_comm(levels)
        if comm.rank == ODD:
            with BROKEN, pytest.raises(ValueError, match="what is this"):
                comm.Iallreduce(np.ones(70), np.empty(70))
        else:
            requests = [comm.Iallreduce(np.ones(70), np.empty(70)) for _ in range(2)]
        until_heard(comm)
        if comm.rank != ODD:
            kind, text, _ = error_of(partial(wait, requests))
            shown = f"{kind}: {text}" if name != "MPI's Wait" else text
            assert f"PeerError: rank {ODD} raised ValueError: what is this" in shown, (name, kind)
            assert error_of(comm.Barrier)[0] == "RevokedError", name
        WORLD.Barrier()


@on_four
def test_a_blocking_call_raises_what_a_callback_heard_for_another_request(mpi_ranks):
    """The notice is about the run of the persistent request."""
    for levels in LEVELS:
        comm, error = new_comm(levels), ("", "")
        begin = mock.Mock(side_effect=None)
        column = MPI.DOUBLE.Create_vector(50, 1, 2).Commit()
        with mock.patch("han.message.blocks.packer", return_value=begin):
            request = comm.Bcast_init([np.zeros((50, 2)), 1, column], root=ODD)
        WORLD.Barrier()  # all ranks have made it
        if comm.rank == ODD:
            begin.side_effect = ValueError("what is this")
        raised, _ = outcome(request.Start)
        assert raised is begin.side_effect
        until_heard(comm)
        if comm.rank != ODD:
            error = error_of(comm.Barrier)
            assert error[0] == "PeerError", error
            assert f"rank {ODD} raised ValueError: what is this" in error[1], error
            assert error_of(request.Wait)[0] == "RevokedError"
        column.Free()
        WORLD.Barrier()


@on_two
def test_who_waits_for_a_call_of_mpi_finds_that_the_communicator_has_failed(mpi_ranks):
    comm = new_comm()
    health, error = comm._han.health, ValueError("what is this")
    left = left_request(MPI.Request(), health, "Allgather")
    health.put_off(error)
    with pytest.raises(ValueError, match="what is this"):
        left.look()
    with pytest.raises(han.RevokedError, match="ValueError: what is this"):
        left.look()
    WORLD.Barrier()


@on_two
def test_peers_of_a_rank_that_goes_on_raise(mpi_ranks):
    """A rank that catches its own error and makes its next call spoils no data of its peers.

    It may find in this call that they made the one in which it raised.
    """
    rules = [{"use": {"levels": {"everyone": {"submodule": "sm"}}}}]  # a root need not wait
    comm = new_comm(rules=rules)
    data = np.zeros(4096)
    for _ in range(3):
        comm.Bcast(data, 0)
        comm.Bcast(data, 1)
    if comm.rank == 1:
        data.flags.writeable = False
        with pytest.raises(han.ArgumentError):
            comm.Bcast(data, 0)
        with contextlib.suppress(han.MismatchError):
            comm.Bcast(np.full(4096, 99.0), 1)
    else:
        comm.Bcast(data, 0)
        with pytest.raises(han.PeerError, match="rank 1 raised ArgumentError"):
            comm.Bcast(data, 1)
