"""``han.Request`` used as MPI's requests are: one by one, in lists, together with MPI's own."""

import itertools
from functools import partial

import numpy as np
import pytest
from _support import LEVELS, SECONDS, WORLD, comms, error_of, new_comm, on_four, on_two
from mpi4py import MPI

import han

usual = on_two
TAG = 5


def used_status(kind=han.Request):
    """Return a status with the values of an earlier operation.

    MPI's functions for one request do not set its error.
    """
    status = MPI.Status()
    status.Set_source(3)
    status.Set_tag(77)
    status.Set_error(MPI.ERR_OTHER if kind is han.Request else MPI.SUCCESS)
    status.Set_elements(MPI.BYTE, 12)
    return status


def is_empty(status):
    """Return whether a status is empty in the sense of MPI's standard."""
    return (
        status.Get_source() == MPI.ANY_SOURCE
        and status.Get_tag() == MPI.ANY_TAG
        and status.Get_error() == MPI.SUCCESS
        and status.Get_count(MPI.BYTE) == 0
        and not status.Is_cancelled()
    )


def statuses_of(requests):
    return [used_status() for _ in requests]


def copy_of(request):
    return MPI.Request.f2py(request.py2f())


def until_tested(request):
    while not MPI.Request.Test(request):
        pass


def until_told(request):
    while not MPI.Request.Get_status(request):
        pass
    request.Wait()


both_kinds = pytest.mark.parametrize("kind", [han.Request, MPI.Request])
BY_MPI = (
    MPI.Request.Wait,
    until_tested,
    until_told,
    lambda request: MPI.Request.Waitall([request]),
    lambda request: MPI.Request.waitall([request]),
    lambda request: MPI.Request.Waitany([MPI.REQUEST_NULL, request]),
    lambda request: copy_of(request).Wait(),
    lambda request: until_tested(copy_of(request)),
)


class Mixed:
    """Requests of han's collectives and of MPI's messages between neighbours in a ring."""

    HAN = (0, 3, 4)
    RECEIVE = 1

    def __init__(self, comm, n=1000):
        self.comm, rank, size = comm, comm.rank, comm.size
        self.left = (rank - 1) % size
        self.mine, self.total, self.got = np.full(n, rank), np.empty(n, int), np.empty(n, int)
        self.data = np.full(n, rank)
        self.requests = [
            comm.Iallreduce(self.mine, self.total),
            WORLD.Irecv(self.got, self.left, TAG),
            WORLD.Isend(self.mine, (rank + 1) % size, TAG),
            comm.Ibcast(self.data, root=size - 1),
            comm.Ibarrier(),
        ]

    def check(self):
        """Check the results of all requests, after all are complete."""
        size = self.comm.size
        assert (self.total == size * (size - 1) // 2).all()
        assert (self.got == self.left).all()
        assert (self.data == size - 1).all()

    def check_status(self, index, status):
        if index in self.HAN:
            assert is_empty(status), index
        elif index == self.RECEIVE:
            assert (status.Get_source(), status.Get_tag()) == (self.left, TAG)
            assert status.Get_count(MPI.BYTE) == self.got.nbytes


# ---- one request ----------------------------------------------------------------------------


def test_one_request_fills_the_status_in(mpi_ranks):
    for comm in comms():
        total = np.empty(3000)
        lasting = comm.Allreduce_init(np.ones(3000), total)
        for start in (partial(comm.Iallreduce, np.ones(3000), total), lasting):
            for complete in ("Wait", "Test", "wait", "test"):
                total[:] = 0
                request = start
                if request is lasting:
                    request.Start()
                else:
                    request = start()
                status = used_status()
                answer = getattr(request, complete)(status)
                while answer in (False, (False, None)):
                    answer = getattr(request, complete)(status)
                wanted = {"Wait": True, "Test": True, "wait": None, "test": (True, None)}
                assert answer == wanted[complete]
                assert is_empty(status)
                assert (total == comm.size).all()
                for again in ("Wait", "Test", "Get_status"):  # an inactive request is complete
                    status = used_status()
                    assert getattr(request, again)(status) is True
                    assert is_empty(status)
        lasting.Free()


def test_get_status_tells_and_leaves_the_request_active(mpi_ranks):
    for comm in comms():
        total = np.empty(3000)
        with comm.Allreduce_init(np.ones(3000), total) as request:
            if comm.rank == 1:
                WORLD.recv(source=0)
            request.Start()
            if comm.rank == 0:
                assert request.Get_status() is False
                WORLD.send(None, dest=1)
            status = used_status()
            while not request.Get_status(status):
                pass
            assert is_empty(status)
            assert request.active
            with pytest.raises(RuntimeError, match="active"):
                request.Start()
            assert request.Get_status() is True
            assert request.Test() is True
            assert not request.active
            assert (total == comm.size).all()


def test_requests_are_waited_for_in_any_order(mpi_ranks):
    for comm in comms():
        size = comm.size
        ones, sums, data = np.ones(5000), np.empty((3, 5000)), np.empty(5000)
        lasting = comm.Allreduce_init(ones, sums[2])
        orders = list(itertools.permutations(range(4)))
        for k in range(len(orders)):
            sums[:], data[:] = 0, comm.rank
            requests = [
                comm.Iallreduce(ones, sums[0]),
                comm.Ibcast(data, root=k % size),
                lasting,
                comm.Iallreduce(ones, sums[1]),
            ]
            lasting.Start()
            for index in orders[(k + 7 * comm.rank) % len(orders)]:
                requests[index].Wait()
                requests[index].Wait()
            assert (sums == size).all()
            assert (data == k % size).all()
        lasting.Free()


def test_a_collective_cannot_be_cancelled(mpi_ranks):
    for comm in comms():
        request = comm.Ibarrier()
        with pytest.raises(Exception, match=r"(?i)cancel"):
            request.Cancel()
        with pytest.raises(Exception, match=r"(?i)cancel"):
            request.cancel()
        request.Wait()
        with comm.Barrier_init() as request:
            request.Start()
            with pytest.raises(Exception, match=r"(?i)cancel"):
                request.Cancel()
            request.Wait()


def test_a_request_is_one_of_mpis(mpi_ranks):
    """MPI's functions take a single request, also by copies of its handle."""
    for comm in comms():
        for n, complete in itertools.product((1, 50_000), BY_MPI):
            total = np.zeros(n)
            request = comm.Iallreduce(np.ones(n), total)
            assert isinstance(request, MPI.Request)
            assert request
            complete(request)
            assert (total == comm.size).all()
            assert not request.active
            request.Wait()
            assert request == MPI.REQUEST_NULL


def test_persistent_requests_are_mpis(mpi_ranks):
    for comm in comms():
        for n in (1, 50_000):
            total = np.empty(n)
            request = comm.Allreduce_init(np.ones(n), total)
            for complete in (MPI.Request.Wait, *BY_MPI, han.Request.Wait):
                assert isinstance(request, MPI.Prequest)
                assert request != MPI.REQUEST_NULL
                assert MPI.Request.Waitall([request]) is True  # it is not active
                total[:] = 0
                request.Start()
                complete(request)
                assert request
                assert not request.active
                assert (total == comm.size).all()
            with pytest.raises(MPI.Exception):
                MPI.Prequest.Startall([request])
            assert not request.active
            request.Free()
            assert request == MPI.REQUEST_NULL


def test_mpi_unpacks_what_it_completes(mpi_ranks):
    column = MPI.DOUBLE.Create_vector(100, 1, 3).Commit()
    for comm in comms():
        for complete in BY_MPI:
            data = np.full((100, 3), 1.0 if comm.rank == 0 else 0.0)
            complete(comm.Ibcast([data, 1, column]))
            assert (data[:, 0] == 1).all()
            assert (data[:, 1:] == (comm.rank == 0)).all()
    column.Free()


def test_many_requests_at_once(mpi_ranks):
    """More than the pool of handles keeps; completed by MPI, by han, or dropped."""
    for comm in comms():
        for _ in range(3):
            totals = np.zeros((300, 4))
            requests = [comm.Iallreduce(np.ones(4), row) for row in totals]
            MPI.Request.Waitall(requests[:100])
            han.Request.Waitall(requests[100:200])
            del requests
            comm.Barrier()
            assert (totals == comm.size).all()


# ---- lists ----------------------------------------------------------------------------------


@both_kinds
@on_four
def test_waitall_and_testall_of_mixed_requests(mpi_ranks, kind):
    for comm in comms():
        for n in (1, 50_000):
            for complete in (kind.Waitall, kind.Testall):
                mixed = Mixed(comm, n)
                statuses = statuses_of(mixed.requests)
                while not complete(mixed.requests, statuses):
                    assert complete == kind.Testall
                mixed.check()
                for index, status in enumerate(statuses):
                    mixed.check_status(index, status)
            assert kind.Testall(mixed.requests) is True
            assert kind.Waitall(mixed.requests) is True
        assert kind.Waitall([]) is True
        assert kind.Testall([]) is True


@both_kinds
@on_four
def test_waitany_and_testany_give_each_request_once(mpi_ranks, kind):
    def testany(requests, status):
        flag = False
        while not flag:
            index, flag = kind.Testany(requests, status)
        return index

    for comm in comms():
        for n, any_of in itertools.product((1, 50_000), (kind.Waitany, testany)):
            mixed = Mixed(comm, n)
            requests = [*mixed.requests, MPI.REQUEST_NULL]
            seen = []
            for _ in mixed.requests:
                status = used_status(kind)
                seen.append(any_of(requests, status))
                mixed.check_status(seen[-1], status)
            assert sorted(seen) == [0, 1, 2, 3, 4]
            mixed.check()
            for _ in range(2):
                status = used_status(kind)
                assert any_of(requests, status) == MPI.UNDEFINED
                assert is_empty(status)
        assert kind.Waitany([]) == MPI.UNDEFINED
        assert kind.Testany([]) == (MPI.UNDEFINED, True)


@both_kinds
@on_four
def test_waitsome_and_testsome_give_each_request_once(mpi_ranks, kind):
    for comm in comms():
        functions = (kind.Waitsome, kind.Testsome)
        for n, some_of in itertools.product((1, 50_000), functions):
            mixed = Mixed(comm, n)
            requests = [MPI.REQUEST_NULL, *mixed.requests]
            seen = []
            while len(seen) < len(mixed.requests):
                statuses = statuses_of(requests)
                some = some_of(requests, statuses)
                assert some or some_of == kind.Testsome
                for index, status in zip(some, statuses, strict=False):
                    mixed.check_status(index - 1, status)
                seen += some
            assert sorted(seen) == [1, 2, 3, 4, 5]
            mixed.check()
            assert some_of(requests) is None
        assert kind.Waitsome([]) is None
        assert kind.Testsome([]) is None


@both_kinds
def test_tests_of_lists_come_back_when_nothing_is_complete(mpi_ranks, kind):
    """The last rank enters only after the others' tests have returned."""
    for comm in comms():
        total, got = np.empty(9), np.empty(1)
        last = comm.size - 1
        if comm.rank == last:
            for r in range(last):
                WORLD.recv(source=r, tag=1)
        requests = [comm.Iallreduce(np.ones(9), total), comm.Ibarrier()]
        if comm.rank != last:
            requests.append(WORLD.Irecv(got, last, TAG))
            statuses = statuses_of(requests)
            for _ in range(5):
                assert kind.Testall(requests, statuses) is False
                assert kind.Testany(requests) == (MPI.UNDEFINED, False)
                assert kind.Testsome(requests, statuses) == []
                assert kind.testall(requests) == (False, None)
                assert kind.testany(requests) == (MPI.UNDEFINED, False, None)
                assert kind.testsome(requests) == ([], [])
                assert requests[0].test() == (False, None)
            WORLD.send(None, dest=last, tag=1)
        else:
            for r in range(last):
                WORLD.Send(np.ones(1), dest=r, tag=TAG)
        kind.Waitall(requests)
        assert (total == comm.size).all()


@both_kinds
def test_testall_completes_none_unless_all_are(mpi_ranks, kind):
    for comm in comms():
        got, last = np.zeros(1), comm.size - 1
        request = comm.Ibarrier()
        while not request.Get_status():
            pass
        if comm.rank != last:
            receive = WORLD.Irecv(got, last, TAG)
            assert kind.Testall([request, receive]) is False
            assert request.active
            WORLD.send(None, dest=last, tag=1)
            assert kind.Waitall([request, receive]) is True
            assert got[0] == 1
        else:
            request.Wait()
            for r in range(last):
                WORLD.recv(source=r, tag=1)
                WORLD.Send(np.ones(1), dest=r, tag=TAG)


def exchange(comm):
    """Return requests of han's collectives and of messages of Python objects in a ring."""
    rank, size = comm.rank, comm.size
    return [
        comm.Iallreduce(np.ones(9), np.empty(9)),
        WORLD.irecv(source=(rank - 1) % size, tag=TAG),
        comm.Ibarrier(),
        WORLD.isend({"from": rank}, (rank + 1) % size, TAG),
    ]


@both_kinds
def test_lower_case_forms_return_messages(mpi_ranks, kind):
    for comm in comms():
        rank, size = comm.rank, comm.size
        said = {"from": (rank - 1) % size}
        wanted = {0: None, 1: said, 2: None, 3: None}

        statuses = statuses_of(range(4))
        assert kind.waitall(exchange(comm), statuses) == [None, said, None, None]
        assert is_empty(statuses[0])
        assert statuses[1].Get_source() == (rank - 1) % size
        done, requests = False, exchange(comm)
        while not done:
            done, messages = kind.testall(requests)
        assert messages == [None, said, None, None]

        requests, status = exchange(comm), used_status()
        found = dict(kind.waitany(requests, status) for _ in requests)
        assert found == wanted
        assert kind.waitany(requests) == (MPI.UNDEFINED, None)
        requests, found = exchange(comm), {}
        while len(found) < 4:
            index, done, message = kind.testany(requests)
            found.update({index: message} if done else {})
        assert found == wanted
        assert kind.testany(requests) == (MPI.UNDEFINED, True, None)

        for some_of in (kind.waitsome, kind.testsome):
            requests, found = exchange(comm), {}
            while len(found) < 4:
                indices, messages = some_of(requests)
                found.update(zip(indices, messages, strict=True))
            assert found == wanted
            assert some_of(requests) == (None, None)


@both_kinds
def test_persistent_requests_in_lists_are_started_again(mpi_ranks, kind):
    def waitany(requests):
        assert sorted(kind.Waitany(requests) for _ in requests) == [0, 1, 2, 3]
        assert kind.Waitany(requests) == MPI.UNDEFINED

    def waitsome(requests):
        left = {0, 1, 2, 3}
        while left:
            left -= set(kind.Waitsome(requests))
        assert kind.Waitsome(requests) is None

    for comm in comms():
        rank, size = comm.rank, comm.size
        mine, total = np.empty(2000), np.empty(2000)
        data, got = np.empty(7), np.empty(2000)
        requests = [
            comm.Allreduce_init(mine, total),
            WORLD.Send_init(mine, (rank + 1) % size, TAG),
            comm.Bcast_init(data, root=0),
            WORLD.Recv_init(got, (rank - 1) % size, TAG),
        ]
        for k, complete in enumerate(4 * [kind.Waitall, waitany, waitsome]):
            mine[:], data[:] = rank + k, k if rank == 0 else -1
            han.Request.Startall(requests)
            complete(requests)
            assert (total == size * (size - 1) // 2 + size * k).all()
            assert (data == k).all()
            assert (got == (rank - 1) % size + k).all()
            assert kind.Testall(requests) is True  # inactive requests are complete
        for request in requests:
            request.Free()
        with pytest.raises(ValueError, match="freed"):
            requests[0].Start()


# ---- when a peer fails ----------------------------------------------------------------------

WAITS = ("Waitall", "Waitany", "Waitsome", "waitall", "waitany", "waitsome")


def never_complete(comm):
    """Return han's requests and an Irecv that gets no message, and a function that cancels it."""
    request = WORLD.Irecv(np.empty(1), comm.rank, 99)

    def forget():
        request.Cancel()
        request.Wait()

    return [request, comm.Iallreduce(np.ones(9), np.empty(9)), comm.Ibarrier()], forget


@on_four
@pytest.mark.parametrize("wait", WAITS)
def test_waits_for_lists_end_when_a_peer_does_not_come(mpi_ranks, wait):
    levels, missing = LEVELS[WORLD.size // 4], WORLD.size - 1
    comm = new_comm(levels, timeout=0.5)
    error = "", "", 0.0
    if comm.rank != missing:
        requests, forget = never_complete(comm)
        error = error_of(partial(getattr(han.Request, wait), requests))
        forget()
    errors = WORLD.allgather(error)[:missing]
    assert {name for name, _, _ in errors} <= {"CollectiveTimeoutError", "PeerError"}, errors
    assert any(name == "CollectiveTimeoutError" for name, _, _ in errors), errors
    assert max(seconds for _, _, seconds in errors) < SECONDS, errors
    if comm.rank != missing:
        with pytest.raises(han.RevokedError):
            comm.Barrier()


def test_waits_for_lists_end_when_a_peer_errs(mpi_ranks):
    levels, odd = LEVELS[WORLD.size // 4], WORLD.size - 1
    for wait in WAITS:
        comm = new_comm(levels)
        error = "", "", 0.0
        if comm.rank != odd:
            requests, forget = never_complete(comm)
            error = error_of(partial(getattr(han.Request, wait), requests))
            forget()
        else:
            with pytest.raises(han.ArgumentError, match="root 77"):
                comm.Ibcast(np.zeros(9), root=77)
        for name, text, seconds in WORLD.allgather(error)[:odd]:
            assert (name, f"rank {odd} raised ArgumentError" in text) == ("PeerError", True), text
            assert seconds < SECONDS


def test_mpis_functions_pass_an_inactive_persistent_request_over(mpi_ranks):
    send, results = np.ones(3), [np.zeros(3) for _ in range(2)]
    for comm in comms():
        idle, busy = (comm.Allreduce_init(send, result) for result in results)
        for kind in (MPI.Request, han.Request):
            busy.Start()
            assert kind.Waitany([idle, busy]) == 1
            busy.Wait()
            busy.Start()
            assert kind.Waitsome([idle, busy]) == [1]
            busy.Wait()
            busy.Start()
            while not (found := kind.Testany([idle, busy]))[1]:
                assert found[0] == MPI.UNDEFINED
            assert found == (1, True)
            busy.Wait()
            assert kind.Waitany([idle, busy]) == MPI.UNDEFINED
            assert kind.Waitall([idle, busy])
        assert idle
        assert idle != MPI.REQUEST_NULL != idle
        assert idle not in (busy, MPI.REQUEST_NULL)
        assert idle == idle
        idle.Start()
        idle.Wait()
        for request in (idle, busy):
            request.Free()
            assert not request
            assert request == MPI.REQUEST_NULL
