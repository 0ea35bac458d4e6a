"""Many mixed collectives: memory and descriptors do not grow, no file is left."""

import gc
import os
import random
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from _support import TWO_BY_TWO, descriptors, mapped, own_memory, run
from mpi4py import MPI

import han
from han.runtime.alike import ALIKE
from han.tuning import planner

CALLS = 12_000
WINDOW = 2_000
LARGEST = 40_000  # elements
MOST_REQUESTS = 3  # persistent ones that stay alive
GROWTH = 512 << 10  # bytes per window; a leak grows in every window, a cache that fills does not


def resident() -> int:
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


def mappings() -> int:
    return len(Path("/proc/self/maps").read_text().splitlines())


class Mix:
    """Random calls, the same on all ranks."""

    def __init__(self, comm: han.Comm) -> None:
        self.comm = comm
        self.dice = random.Random(42)
        self.extra: list[han.Comm] = []
        self.requests: list[han.Request] = []
        self.send = np.ones(LARGEST)
        self.recv = np.empty(LARGEST)

    def step(self) -> None:
        """Make a call, or create or free a communicator or a request."""
        kind = self.dice.random()
        comm = self.dice.choice([self.comm, *self.extra])
        if kind < 0.006:
            self.make_comm()
        elif kind < 0.012:
            self.make_request(comm)
        elif kind < 0.1 and self.requests:
            self.persistent(self.dice.choice(self.requests))
        elif kind < 0.25:
            self.nonblocking(comm)
        else:
            self.blocking(comm)

    def size(self) -> int:
        """Draw a number of elements, often a small one."""
        return self.dice.choice([1, 2, 8, self.dice.randrange(600), self.dice.randrange(LARGEST)])

    def blocking(self, comm: han.Comm) -> None:
        n, root = self.size(), self.dice.randrange(comm.size)
        send, recv = self.send[:n], self.recv[:n]
        match self.dice.randrange(5):
            case 0:
                comm.Barrier()
            case 1:
                recv[:] = comm.rank
                comm.Bcast(recv, root)
                assert (recv == root).all()
            case 2:
                comm.Reduce(send, recv, MPI.SUM, root)
                assert comm.rank != root or (recv == comm.size).all()
            case 3:
                comm.Allreduce([send, n, MPI.DOUBLE], recv, MPI.MAX)
                assert (recv == 1).all()
            case 4:
                comm.Allreduce(send, recv)
                assert (recv == comm.size).all()

    def nonblocking(self, comm: han.Comm) -> None:
        n = self.size()
        recv = np.empty(n)
        requests = [comm.Iallreduce(self.send[:n], recv), comm.Ibarrier()]
        if self.dice.random() < 0.3:
            requests.reverse()
        han.Request.Waitall(requests)
        assert (recv == comm.size).all()

    def persistent(self, request: han.Request) -> None:
        for _ in range(self.dice.randrange(1, 5)):
            run(request)

    def make_request(self, comm: han.Comm) -> None:
        n = self.size()
        recv = np.empty(n)
        self.requests.append(comm.Allreduce_init(self.send[:n], recv))
        if len(self.requests) > MOST_REQUESTS:
            self.requests.pop(self.dice.randrange(MOST_REQUESTS)).Free()

    def fill_slots(self) -> None:
        """Make as many requests as are ever alive at once: their slots stay."""
        for n in (1, LARGEST):
            sizes = [n] * (MOST_REQUESTS + 1)
            for request in [self.comm.Allreduce_init(self.send[:k], np.empty(k)) for k in sizes]:
                request.Free()

    def make_comm(self) -> None:
        comm = self.comm
        if self.dice.random() < 0.5:
            self.extra.append(comm.Dup())
        else:
            self.extra.append(comm.Split(0, -comm.rank))
        if len(self.extra) > 2:
            self.free(self.extra.pop(0))

    def free(self, comm: han.Comm) -> None:
        """Free a communicator after its requests."""
        here = [r for r in self.requests if r._engine in comm._han.parts.engines]
        for request in here:
            self.requests.remove(request)
            request.Free()
        comm.Free()

    def drop_all(self) -> None:
        """Free all extra communicators and requests."""
        while self.extra:
            self.free(self.extra.pop())
        while self.requests:
            self.requests.pop().Free()


def measure(mix: Mix) -> dict[str, int]:
    mix.drop_all()
    gc.collect()
    MPI.COMM_WORLD.Barrier()
    return {
        "resident": resident(),
        "descriptors": descriptors(),
        "mappings": mappings(),
        "channels": mapped("/han-"),
    }


@pytest.mark.own_job("it measures the memory of its processes")
@pytest.mark.mpi(ranks=4, timeout=120, unit="s")
@pytest.mark.parametrize("levels", [1, 2])
def test_nothing_grows_over_many_calls(mpi_ranks, levels, monkeypatch):
    monkeypatch.setattr(ALIKE, "_most", 1 << 20)  # bytes: what is kept fills soon, also
    monkeypatch.setattr(planner, "REMEMBERED", 16)
    config = {"levels": TWO_BY_TWO[-levels:], "memory": "1MiB", "plans": 64}
    seen = []
    with own_memory(monkeypatch) as place:
        mix = Mix(han.Comm(MPI.COMM_WORLD, config=config))
        mix.fill_slots()
        for _ in range(CALLS // WINDOW):
            for _ in range(WINDOW):
                mix.step()
            seen.append(measure(mix))
            print(seen[-1])
        assert not list(place.iterdir())
    for before, after in pairwise(seen):
        assert after["descriptors"] == before["descriptors"]
        assert after["channels"] == before["channels"]
    assert seen[-1]["mappings"] - seen[0]["mappings"] <= 8  # the allocator maps and unmaps some
    assert min(b["resident"] - a["resident"] for a, b in pairwise(seen)) < GROWTH
