"""Calls that are not persistent read shared arrays in place, if all ranks' buffers are such arrays.

All ranks draw from one seed which arrays are shared, so each rank knows how often all of them were.
"""

import time

import numpy as np
import pytest
from _support import WORLD, comm_on, error_of, new_comm, on_two, opened
from machines import topology_of
from mpi4py import MPI

import han

COUNT = 33_001  # elements of 8 bytes: above all least sizes, and not a multiple of a piece
ROUNDS = 15


class Calls:
    """Random calls on a communicator; `expected` counts those whose arrays are all shared."""

    def __init__(self, comm: han.Comm, seed: int) -> None:
        self.comm, self.rank, self.size = comm, comm.Get_rank(), comm.Get_size()
        self.common = np.random.default_rng(seed)
        self.expected = 0

    def draw(self) -> list[bool]:
        """Draw which ranks' arrays are shared in the next call; often those of all ranks."""
        drawn = self.common.random(self.size) < 0.7
        return [True] * self.size if self.common.random() < 0.5 else list(map(bool, drawn))

    def array(self, n: int, shared: bool, value: int = 0) -> np.ndarray:
        made = self.comm.empty(n, int) if shared else np.empty(n, int)
        made[:] = np.arange(n) * (self.rank + 3) + value
        return made

    def call(self, step: int):
        """Draw a call; return the method's name, its arguments, and the array with the result."""
        names = ("Bcast", "Reduce", "Allreduce", "Gather", "Scatter", "Allgather")
        name = names[self.common.integers(len(names))]
        root, in_place = int(self.common.integers(self.size)), bool(self.common.integers(2))
        shared = self.draw()
        self.expected += all(shared)
        mine, here = shared[self.rank], self.rank == root
        many = COUNT * self.size
        rooted = () if name in ("Allreduce", "Allgather") else (root,)
        op = (MPI.MAX,) if name in ("Reduce", "Allreduce") else ()
        if name == "Bcast":
            arrays = [self.array(COUNT, mine, step)]
            return name, (*arrays, *rooted), arrays[-1]
        send = self.array(many if name == "Scatter" else COUNT, mine, step)
        recv = self.array(many if name in ("Gather", "Allgather") else COUNT, mine, step)
        if name == "Scatter":
            if not here:
                return name, (None, recv, root), recv
            return name, (send, MPI.IN_PLACE if in_place else recv, root), recv
        gets = here or not rooted
        place = MPI.IN_PLACE if in_place and gets else send
        return name, (place, recv if gets else None, *op, *rooted), recv

    def tiny(self) -> None:
        """Make another small call between the others."""
        kind = self.common.integers(4)
        if kind == 0:
            self.comm.Barrier()
        elif kind == 1:
            assert self.comm.allreduce(1) == self.size
        elif kind == 2:
            few = np.full(3, self.rank)
            self.comm.Bcast(few, self.size - 1)
            assert (few == self.size - 1).all()


def copied(arguments):
    """Return a call's arguments with copies of its arrays."""
    return tuple(a.copy() if isinstance(a, np.ndarray) else a for a in arguments)


def wanted(comm, name, arguments, result):
    """Make the call with MPI and copies of the arrays; return its result."""
    copies = copied(arguments)
    where = next((k for k, a in enumerate(arguments) if a is result), None)
    getattr(comm, name)(*copies)
    return result if where is None else copies[where]


def mix(comm, plain, seed):
    calls = Calls(comm, seed)
    engine = comm._han.parts.engines.own
    for step in range(ROUNDS):
        flying = []
        for _ in range(int(calls.common.integers(1, 4))):
            name, arguments, result = calls.call(step)
            flying.append((result, wanted(plain, name, arguments, result), name, arguments))
        blocking = bool(calls.common.integers(2))
        requests = []
        for result, expected, name, arguments in flying:
            if blocking:
                getattr(comm, name)(*arguments)
            else:
                requests.append(getattr(comm, "I" + name.lower())(*arguments))
            if blocking:
                np.testing.assert_array_equal(result, expected)
        calls.tiny()
        for request in requests:
            request.Wait()
        for result, expected, *_ in flying:
            np.testing.assert_array_equal(result, expected)
    assert engine.alternatives == calls.expected
    assert calls.expected > 0


@pytest.mark.mpi(ranks=[2, 5], timeout=90, unit="s")
def test_any_mixture_of_arrays_gives_what_mpi_gives_and_all_agree_what_runs(mpi_ranks):
    plain = WORLD.Dup()
    with opened(new_comm()) as comm:
        mix(comm, plain, 4711)
    size = WORLD.size
    pairs = topology_of([[r // 2 for r in range(size)], [0] * size], 1)
    for policy in ("futex", "yield"):
        with opened(sockets(pairs, policy)) as comm:
            mix(comm, plain, len(policy))
    plain.Free()


def sockets(topology, policy):
    """Return a han.Comm on two levels that share memory, with a wait policy."""
    return comm_on(WORLD, topology, wait={"timeout": 30, "policy": policy}, memory="2MiB")


@pytest.mark.mpi(ranks=3, timeout=60, unit="s")
def test_a_rank_that_is_late_while_the_others_run_ahead(mpi_ranks, comm):
    """Ranks without shared arrays run ahead; the late rank still learns what they had.

    Ranks that offer shared arrays wait for it.
    """
    last = WORLD.size - 1
    rng, expected = np.random.default_rng(3), 0
    arrays = {True: comm.empty(COUNT, int), False: np.empty(COUNT, int)}
    few = np.zeros(1, int)
    for turn in range(3):
        if comm.rank == last:
            time.sleep(0.05)
        for k in range(40):
            shared = [bool(rng.integers(2)), True, bool(rng.random() < 0.2 * turn)]
            data = arrays[shared[comm.rank]]
            data[:] = k if comm.rank == 0 else -1
            comm.Bcast(data)
            assert (data == k).all()
            few[0] = k if comm.rank == 0 else -1
            comm.Bcast(few)
            assert few[0] == k
            expected += all(shared)
    assert comm._han.parts.engines.own.alternatives == expected > 0


@on_two
def test_arrays_that_go_at_once_others_instead_and_what_explain_says(mpi_ranks, comm):
    for k in range(20):
        send, recv = comm.full(COUNT, k), comm.zeros(COUNT, int)
        comm.Allreduce(send, recv)
        total = recv.copy()
        del send, recv
        other = comm.full(2 * COUNT, -1)  # may take the memory of the freed arrays
        assert (total == comm.size * k).all()
        assert (other == -1).all()
    assert comm._han.parts.engines.own.alternatives == 20
    comm.Allreduce(*(np.zeros(COUNT) for _ in range(2)))
    assert comm._han.parts.engines.own.alternatives == 20
    text = str(comm.explain("allreduce", "1MiB"))
    assert "class     one plan for all sizes above 768KiB and up to 1MiB" in text
    assert "where all buffers of all ranks are shared arrays: everyone: solo split" in text
    assert "shared arrays" not in str(comm.explain("allreduce", 1024))


@pytest.mark.mpi(ranks=3, timeout=40, unit="s")
def test_a_wrong_argument_and_a_rank_that_does_not_come_are_told_to_who_has_offered(mpi_ranks):
    comm = new_comm()
    send, recv = comm.zeros(COUNT), comm.zeros(COUNT)
    for _ in range(2):
        comm.Allreduce(send, recv)
    wrong = recv[:-1] if comm.rank == 1 else recv
    name, text, _ = error_of(lambda: comm.Allreduce(send, wrong))
    assert name == ("ArgumentError" if comm.rank == 1 else "PeerError"), text
    assert comm.rank == 1 or "rank 1 raised ArgumentError" in text
    comm = new_comm(timeout=1.0)
    comm.Bcast(send)
    if comm.rank != 2:
        name, text, _ = error_of(lambda: comm.Bcast(send))
        if name == "CollectiveTimeoutError":
            assert "for rank(s) 2 to tell whether buffers are shared" in text
            assert "rank(s) 2 have not entered this call" in text
        else:  # the other rank raised first
            assert name in ("PeerError", "RevokedError"), text
    WORLD.Barrier()
