"""Persistent requests that come and go: ranks agree on their slots, and memory stays bounded."""

import random
import signal
import time
from contextlib import nullcontext
from unittest import mock

import numpy as np
import pytest
from _support import WORLD, comms, descriptors, error_of, impatient, new_comm, on_two
from mpi4py import MPI
from test_loans import at_most

import han
from han.runtime.measured import FIRST_SMALL

RANKS = [1, 2, 3, 4]
usual = pytest.mark.mpi(ranks=RANKS, timeout=120, unit="s")
SIZES = (0, 1, 6, 500, 3000, 40_000)  # numbers: in small slots, and in large ones


class Live:
    """A request, its result and the number of its starts, which are the same on all ranks."""

    def __init__(self, comm, dice):
        self.comm, n = comm, dice.choice(SIZES)
        self.root = dice.randrange(comm.size)
        self.send, self.recv = np.full(n, comm.rank + 1.0), np.zeros(n)
        self.kind = dice.choice(("sum", "max", "bcast", "barrier", "gather"))
        ops = {"sum": MPI.SUM, "max": MPI.MAX}
        if self.kind in ops:
            self.request = comm.Allreduce_init(self.send, self.recv, ops[self.kind])
        elif self.kind == "bcast":
            self.request = comm.Bcast_init(self.recv, self.root)
        elif self.kind == "gather":
            self.recv = np.zeros(n * comm.size)
            self.request = comm.Gather_init(self.send, self.recv, self.root)
        else:
            self.request = comm.Barrier_init()

    def start(self):
        at_root = self.comm.rank == self.root
        self.recv[:] = self.root if self.kind == "bcast" and at_root else -1
        self.request.Start()

    def finish(self):
        size, at_root = self.comm.size, self.comm.rank == self.root
        self.request.Wait()
        if self.kind == "gather" and at_root:
            wanted = np.repeat(np.arange(1.0, size + 1), self.send.size)
        else:
            totals = {"sum": size * (size + 1) / 2, "max": size, "bcast": self.root}
            wanted = totals.get(self.kind, -1)
        np.testing.assert_array_equal(self.recv, wanted)


def shuffled(items, seed):
    items = list(items)
    random.Random(seed).shuffle(items)
    return items


def test_requests_are_started_and_freed_in_other_orders_on_each_rank(mpi_ranks):
    for number, comm in enumerate(comms()):
        dice, mine, live = random.Random(number), 100 * comm.rank, []
        total = np.empty(3)
        for turn in range(12):
            live += [Live(comm, dice) for _ in range(dice.randrange(1, 6))]
            active = dice.sample(live, len(live) // 2 + 1)
            other = comm.Iallreduce(np.ones(3), total)
            for one in shuffled(active, mine + turn):
                one.start()
            comm.Barrier()
            for one in shuffled(active, mine - turn):
                one.finish()
            other.Wait()
            assert (total == comm.size).all()
            leaving = dice.sample(live, len(live) // 2)
            for one in shuffled(leaving, mine + 7 * turn):
                live.remove(one)
                one.request.Free()
        most = comm.allreduce(len(comm._han.parts.persistent.slots), MPI.MAX)
        assert len(comm._han.parts.persistent.slots) == most <= 64
        for one in live:
            one.request.Free()


def test_a_known_request_is_made_without_a_message(mpi_ranks, comm):
    send, recv = np.full(4, comm.rank), np.empty(4, int)
    plans, meeting = comm._han.parts.maker.living, comm._han.health.meeting
    for turn in range(60):
        request = comm.Allreduce_init(send, recv)
        request.Start()
        request.Wait()
        assert (recv == sum(range(comm.size))).all()
        request.Free()
        if turn == 20:
            before = meeting.steps
    assert meeting.steps == before
    assert max(plans) <= FIRST_SMALL


@on_two
def test_the_first_rank_waits_for_no_one(mpi_ranks, comm):
    comm.Barrier_init().Free()
    comm.Barrier()  # all ranks have left the slot
    if comm.rank:
        WORLD.recv(source=0)
    requests = [comm.Bcast_init(np.full(4, comm.rank)) for _ in range(FIRST_SMALL)]
    for request in requests:
        request.Start()
    if not comm.rank:
        WORLD.send(None, 1)
    han.Request.Waitall(requests)
    for request in requests:
        request.Free()


def test_requests_that_are_dropped_leave_their_slots(mpi_ranks, comm):
    for turn in range(40):
        count = (5, 20_000)[turn % 2]
        recv = np.empty(count)
        request = comm.Allreduce_init(np.ones(count), recv)
        request.Start()
        request.Wait()
        assert (recv == comm.size).all()
        del request
    assert len(comm._han.parts.persistent.slots) <= 8


@pytest.mark.mpi(ranks=[2, 4], timeout=60, unit="s")
def test_a_rank_that_is_ahead_takes_no_more_slots_than_are_alive(mpi_ranks, comm):
    for count in (5, 20_000):
        data = np.empty(count)
        for turn in range(100):
            data[:] = turn
            with comm.Bcast_init(data, 0) as request:  # the root need not wait for the others
                request.Start()
                request.Wait()
            if comm.rank and turn % 10 == 0:
                time.sleep(0.01)
    assert len(comm._han.parts.persistent.slots) <= 8


@pytest.mark.mpi(ranks=4, timeout=240, unit="s")
def test_a_thousand_requests_at_once(mpi_ranks, comm):
    files = descriptors()
    with at_most(256):
        data = [np.full(1 + k % 5, comm.rank + k) for k in range(1000)]
        requests = [comm.Allreduce_init(MPI.IN_PLACE, one) for one in data]
        assert descriptors() - files <= 16
    for request in requests[:: 1 if comm.rank % 2 else -1]:
        request.Start()
    for request in requests:
        request.Wait()
    for k, one in enumerate(data):
        assert (one == 4 * k + 6).all()
    for request in shuffled(requests, comm.rank):
        request.Free()
    slots = len(comm._han.parts.persistent.slots)
    again = [comm.Barrier_init() for _ in range(900)]
    assert len(comm._han.parts.persistent.slots) == slots < 1100
    for request in again:
        request.Free()


@pytest.mark.mpi(ranks=[2, 4], timeout=120, unit="s")
def test_large_requests_share_a_bounded_amount_of_memory(mpi_ranks, comm):
    data = [np.full(20_000, comm.rank + k) for k in range(60)]
    requests = [comm.Allreduce_init(MPI.IN_PLACE, one) for one in data]
    slots = comm._han.parts.persistent.slots
    large = [slot.memory for slot in slots._every if slot.memory]
    assert 1 < len(large) < len(requests)
    for request in requests:
        request.Start()
    for k, request in enumerate(requests):
        request.Wait()
        assert (data[k] == sum(range(comm.size)) + k * comm.size).all()
        request.Free()


def unmappable(here):
    """Let this rank map no more shared memory, if `here`."""
    error = OSError(28, "No space left")
    return mock.patch("han.memory.channel._map", side_effect=error) if here else nullcontext()


@pytest.mark.mpi(ranks=[2, 3, 4], timeout=60, unit="s")
def test_no_room_for_slots_is_an_error_on_all_ranks(mpi_ranks):
    for comm in comms():
        with mock.patch("han.runtime.slots.Slots._more", return_value=0):
            if comm._han.parts.topology.whole is None:
                name, text, _ = error_of(comm.Barrier_init)
                assert (name, "no room" in text) == ("SharedMemoryError", True), text
            else:
                some = [comm.Barrier_init() for _ in range(FIRST_SMALL)]
                name, text, _ = error_of(comm.Barrier_init)
                assert name == "SharedMemoryError", text
                assert "no room for another persistent request: 2 are alive" in text
                for one in some:
                    one.Free()
                comm.Barrier_init().Free()
        comm._han.parts.shared.reach = None  # channels are made in files
        alive = [comm.Barrier_init() for _ in range(FIRST_SMALL)]
        for _ in range(2):
            with unmappable(comm.rank == comm.size - 1):
                name, text, _ = error_of(comm.Barrier_init)
            assert (name, "No space left" in text) == ("SharedMemoryError", True), text
        alive.pop().Free()
        with unmappable(comm.rank == 0):  # a small slot serves a large message too
            recv = np.empty(9999)
            with comm.Allreduce_init(np.ones(9999), recv) as request:
                request.Start()
                request.Wait()
            assert (recv == comm.size).all()
        comm.Barrier_init().Free()
        for one in alive:
            one.Free()


@impatient
@pytest.mark.mpi(ranks=[2, 3], timeout=60, unit="s")
def test_wrong_arguments_of_one_rank_end_the_others_and_those_of_all_do_not(mpi_ranks):
    def use(comm, wrong):
        recv = np.ones(5) if wrong else np.ones(4)
        request = comm.Allreduce_init(np.ones(4), recv)
        request.Start()
        request.Wait()
        request.Free()

    for known in (False, True):
        for odd in (0, WORLD.size - 1, None):
            comm = new_comm()
            if known:
                use(comm, wrong=False)
            name, text, _ = error_of(lambda: use(comm, odd in (None, comm.rank)))  # noqa: B023
            if odd in (None, comm.rank):
                assert name == "ArgumentError", text
            else:
                assert name == "PeerError", text
                assert f"rank {odd} raised ArgumentError" in text
            WORLD.Barrier()
            if odd is None:
                use(comm, wrong=False)
            comm.Free()


@on_two
def test_an_interrupt_while_a_rank_waits_for_the_first_one(mpi_ranks, comm):
    def interrupt(*_):
        raise KeyboardInterrupt

    comm.Barrier_init().Free()
    if comm.rank:
        before = signal.signal(signal.SIGALRM, interrupt)
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(KeyboardInterrupt):
            comm.Barrier_init()
        signal.signal(signal.SIGALRM, before)
        WORLD.send(None, 0)
    else:
        WORLD.recv(source=1)
        name, text, _ = error_of(lambda: comm.Barrier_init().Free() or comm.Barrier())
        assert (name, "KeyboardInterrupt" in text) == ("PeerError", True), text
    WORLD.Barrier()


@pytest.mark.mpi(ranks=[2, 3], timeout=60, unit="s")
def test_a_rank_that_raised_in_one_call_is_not_taken_to_be_in_it(mpi_ranks):
    """It goes on to the next call of the same kind and size, whose slot the others would take."""
    for odd in (0, 1):
        comm = new_comm()
        comm.Allreduce_init(np.ones(4), np.empty(4)).Free()
        raised = []
        for call in range(2):
            wrong = comm.rank == odd and call == 0
            try:
                request = comm.Allreduce_init(np.ones(5 if wrong else 4), np.empty(4))
                request.Start()
                request.Wait()
            except Exception as error:
                raised.append(type(error))
        assert raised
        errors = han.HanError, ValueError
        assert all(issubclass(each, errors) for each in raised), raised
        WORLD.Barrier()
