"""Dropped requests, freed communicators, failing steps: peers finish or raise, nothing is left."""

import contextlib
import errno
import gc
import itertools
import sys
import threading
import time
from functools import partial
from unittest import mock

import numpy as np
import pytest
from _support import (
    APART,
    CHILDREN,
    FLAT,
    LEVELS,
    SECONDS,
    TWO_LEVELS,
    WORLD,
    check_works,
    comms,
    mapped,
    new_comm,
    on_both,
    on_four,
    on_two,
    opened,
    outcome,
    own_memory,
    run,
    run_in_threads,
)
from mpi4py import MPI

import han
from han.runtime.alike import ALIKE
from han.runtime.state import State

usual = on_two
LARGE = 60_000  # elements, in many pieces
ODD = 1  # the rank that fails

# ---- requests that are dropped ----------------------------------------------------------------


def started(comm, kind, n):
    """Start an allreduce of ones; return the request and the array of the result."""
    total = np.zeros(n)
    if kind == "nonblocking":
        return comm.Iallreduce(np.ones(n), total), total
    request = comm.Allreduce_init(np.ones(n), total)
    request.Start()
    return request, total


def start_and_drop(comm, kind, n, cyclic):
    """Start a request, and leave it and its buffers to the garbage collector."""
    request, _ = started(comm, kind, n)
    if cyclic:
        ring = [request]
        ring.append(ring)
        del ring
    del request, _
    gc.collect()


@on_four
def test_requests_that_one_rank_drops_complete_for_its_peers(mpi_ranks):
    for comm, other in zip(comms(), comms(), strict=True):
        drops = ((False, 1), (False, LARGE), (True, LARGE))
        for kind, (cyclic, n) in itertools.product(("nonblocking", "persistent"), drops):
            for k in range(comm.size):
                if comm.rank == k:
                    start_and_drop(comm, kind, n, cyclic)
                else:
                    request, total = started(comm, kind, n)
                    request.Wait()
                    assert (total == comm.size).all()
                    if kind == "persistent":
                        request.Free()
                (comm if k % 2 else other).Barrier()
                check_works(comm)


def test_requests_that_all_ranks_drop_leave_later_calls_right(mpi_ranks):
    for comm in comms():
        for kind, cyclic in itertools.product(("nonblocking", "persistent"), (False, True)):
            for _ in range(3):
                start_and_drop(comm, kind, LARGE, cyclic)
            check_works(comm)
            gc.collect()
            check_works(comm)


# ---- freeing with outstanding requests --------------------------------------------------------


@on_both
def test_free_completes_what_is_outstanding(mpi_ranks):
    for levels, n in itertools.product(LEVELS, (1, LARGE)):
        comm = new_comm(levels)
        rank, size = comm.rank, comm.size
        parts = [started(comm, kind, n) for kind in ("nonblocking", "persistent") * 2]
        data = np.full(n, rank)
        parts.append((comm.Ibcast(data, root=size - 1), data))
        with_gaps = np.full((n, 2), rank)
        column = MPI.INT64_T.Create_vector(n, 1, 2).Commit()
        parts.append((comm.Ibcast([with_gaps, 1, column], root=0), with_gaps))
        if rank % 2:
            parts[0][0].Wait()
        comm.Free()
        assert comm == MPI.COMM_NULL
        for request, _ in parts[:: 1 if rank % 2 else -1]:
            assert request.Wait() is True
            assert request.Test() is True
        assert all((total == size).all() for _, total in parts[:4])
        assert (data == size - 1).all()
        assert (with_gaps[:, 0] == 0).all()
        assert (with_gaps[1:-1, 1] == rank).all()
        with pytest.raises((han.RevokedError, ValueError)):
            parts[1][0].Start()
        for request, _ in parts:
            request.Free()
        column.Free()


def test_stopping_an_engine_again_keeps_no_references(mpi_ranks):
    comm = new_comm()
    comm.Allreduce(MPI.IN_PLACE, np.ones(4))
    engine = comm._han.parts.engines.own
    comm.Free()
    before = sys.getrefcount(None)
    for _ in range(100):
        engine.stop()
    assert sys.getrefcount(None) - before < 50


def test_freeing_what_mpi_does_not_free_frees_the_part_of_han(mpi_ranks):
    comm, second = han.Comm(WORLD), han.Comm(WORLD)
    check_works(comm)
    comm.Free()
    comm.Free()
    for freed in (comm, second):
        with pytest.raises(han.RevokedError, match="it has been freed"):
            freed.Barrier()
    WORLD.Barrier()
    check_works(han.Comm(WORLD))


def test_a_request_of_a_freed_communicator(mpi_ranks):
    for make in (lambda: han.Comm(WORLD.Dup()), han.Comm(WORLD).Dup):
        comm, total = make(), np.zeros(4)
        idle = comm.Allreduce_init(np.ones(4), np.zeros(4))
        started = comm.Allreduce_init(np.ones(4), total)
        started.Start()
        comm.Free()
        started.Wait()
        assert total.tolist() == [WORLD.size] * 4
        with pytest.raises(han.RevokedError, match=r"has been freed; free it after .* last Start"):
            idle.Start()
        idle.Free()
        started.Free()


def late_frees(act):
    """Free a han.Comm of nodes of one rank, on rank 0 late and after `act`; was han's own freed?"""
    comm = new_comm(APART)
    comm.Barrier()
    own = comm._han.health.notices.mail.comm
    if comm.rank == 0:
        time.sleep(0.3)
        act(comm)
    comm.Free()
    return own == MPI.COMM_NULL


@on_four
def test_ranks_that_hear_late_of_an_error_free_with_the_others(mpi_ranks):
    """Else a communicator of rank 2 alone could get a number that others use, and messages."""

    def miss(comm):
        with pytest.raises(ZeroDivisionError), comm._han.health.preparing():
            raise ZeroDivisionError

    assert WORLD.allgather(late_frees(miss)) == [True] * 4


@on_four
def test_no_rank_frees_what_another_one_has_given_up(mpi_ranks):
    begun = time.monotonic()
    freed = late_frees(lambda comm: comm._han.health.give_up(ZeroDivisionError("no")))
    assert WORLD.allgather(freed) == [False] * 4
    assert time.monotonic() < begun + SECONDS


def test_free_completes_what_its_owner_has_dropped(mpi_ranks):
    for kind, _ in itertools.product(("nonblocking", "persistent"), range(5)):
        comm = new_comm()
        if comm.rank == ODD:
            start_and_drop(comm, kind, LARGE, cyclic=True)
            comm.Free()
        else:
            request, total = started(comm, kind, LARGE)
            comm.Free()
            request.Wait()
            assert (total == WORLD.size).all()


# ---- failures before a run --------------------------------------------------------------------


ALLREDUCE = {
    "blocking": lambda comm: comm.Allreduce(np.ones(70), np.empty(70)),
    "nonblocking": lambda comm: comm.Iallreduce(np.ones(70), np.empty(70)).Wait(),
    "persistent": lambda comm: run(comm.Allreduce_init(np.ones(70), np.empty(70))),
}
BCAST = {  # of the column of a matrix, which the root packs
    "blocking": lambda comm, column: comm.Bcast(column, root=ODD),
    "nonblocking": lambda comm, column: comm.Ibcast(column, root=ODD).Wait(),
    "persistent": lambda comm, column: run(comm.Bcast_init(column, root=ODD)),
}
ERRORS = {
    "memory": lambda: MemoryError("no room for a plan"),
    "interrupt": lambda: KeyboardInterrupt(),
    "value": lambda: ValueError("what is this"),
}


def fails_on_one_rank(error, patch, call):
    """Make a call that a patch lets fail on rank ODD, and check what all ranks raise."""
    with patch if WORLD.rank == ODD else contextlib.nullcontext():
        raised, seconds = outcome(call)
    rows = WORLD.allgather((type(raised).__name__, str(raised), seconds))
    if WORLD.rank == ODD:
        assert raised is error, rows
    else:
        assert isinstance(raised, han.PeerError), rows
        assert f"rank {ODD} raised" in str(raised), rows
        said = "interrupt" if isinstance(error, KeyboardInterrupt) else str(error)
        assert said in str(raised).lower(), rows
        assert isinstance(error, KeyboardInterrupt) or type(error).__name__ in str(raised), rows
    assert max(seconds for _, _, seconds in rows) < SECONDS, rows
    WORLD.Barrier()


PLACES = (
    "han.runtime.maker.Maker.program",
    "han.runtime.maker.native_plan",
    "han.message.message._op",
    "han.tuning.planner.Planner.decide",
)


@on_four
@pytest.mark.parametrize("place", PLACES)
def test_a_failure_in_planning_reaches_all_ranks(mpi_ranks, place):
    for levels, call, make in itertools.product(LEVELS, ALLREDUCE.values(), ERRORS.values()):
        ALIKE.clear()
        comm, error = new_comm(levels), make()
        fails_on_one_rank(error, mock.patch(place, side_effect=error), partial(call, comm))


def test_a_failure_in_packing_reaches_all_ranks(mpi_ranks):
    matrix = np.zeros((500, 2))
    column = MPI.DOUBLE.Create_vector(500, 1, 2).Commit()
    for levels, call, make in itertools.product(LEVELS, BCAST.values(), ERRORS.values()):
        comm, error = new_comm(levels), make()
        pack = mock.Mock(side_effect=error)
        fails_on_one_rank(
            error,
            mock.patch("han.message.blocks.packer", return_value=pack),
            partial(call, comm, [matrix, 1, column]),
        )
    column.Free()


def test_a_persistent_start_that_fails_after_others_went_well_reaches_all_ranks(mpi_ranks):
    matrix = np.zeros((500, 2))
    column = MPI.DOUBLE.Create_vector(500, 1, 2).Commit()
    for make in ERRORS.values():
        comm, error = new_comm(), make()
        pack = mock.Mock()
        with mock.patch("han.message.blocks.packer", return_value=pack):
            request = comm.Bcast_init([matrix, 1, column], root=ODD)
        for _ in range(3):
            run(request)
        WORLD.Barrier()  # a rank still in an earlier call would hear of the error there
        pack.side_effect = error
        fails_on_one_rank(error, contextlib.nullcontext(), partial(run, request))
    column.Free()


# ---- failures of one request ------------------------------------------------------------------


@on_four
@pytest.mark.parametrize("levels", LEVELS)
def test_after_a_timeout_of_one_request_the_rest_is_told_at_once(mpi_ranks, levels):
    timeout = 1.5
    comm = new_comm(levels, timeout)
    requests = [comm.Allreduce_init(np.ones(9), np.empty(9)) for _ in range(2)]
    missing = comm.size - 1
    errors = []
    if comm.rank != missing:
        for request in requests:
            request.Start()
        requests.append(comm.Iallreduce(np.ones(9), np.empty(9)))
        with pytest.raises((han.CollectiveTimeoutError, han.PeerError)):
            requests[0].Wait()
        calls = [
            *(r.Wait for r in requests[1:]),
            requests[0].Start,
            comm.Barrier,
            comm.Ibarrier,
            partial(comm.Allreduce, np.ones(9), np.empty(9)),
            comm.Barrier_init,
            comm.Dup,
        ]
        errors = [outcome(call) for call in calls]
    WORLD.Barrier()
    assert all(isinstance(error, han.RevokedError) for error, _ in errors), errors
    assert sum(seconds for _, seconds in errors) < timeout, errors


# ---- creating and freeing communicators -------------------------------------------------------


def test_memory_of_freed_communicators_goes(mpi_ranks, monkeypatch):
    """The communicators have requests that were never freed, or were dropped while active."""
    with own_memory(monkeypatch) as place:
        for k in range(6):
            comm = new_comm(TWO_LEVELS if k % 2 else FLAT)
            kept = comm.Allreduce_init(np.ones(LARGE), np.empty(LARGE))
            start_and_drop(comm, "persistent", LARGE, cyclic=True)
            start_and_drop(comm, "nonblocking", LARGE, cyclic=False)
            run(kept)
            assert mapped(place) or (comm.size == 2 and k % 2)
            comm.Free()
            del kept
            assert not mapped(place)
            WORLD.Barrier()
            assert not list(place.iterdir())


BROKEN = (
    "han.memory.channel.Channel.introduce",
    "han.ranks.discover._look",
    "os.sched_getaffinity",
    "mmap.mmap",
)


def broken(place, **how):
    """Return a patch that lets a part of the set-up fail on rank ODD."""
    if WORLD.rank != ODD:
        return contextlib.nullcontext()
    how = how or {"side_effect": OSError(errno.EMFILE, "Too many open files")}
    return mock.patch(place, **how)


@on_four
def test_a_set_up_that_fails_on_one_rank_fails_on_all(mpi_ranks, monkeypatch):
    shared = LEVELS[: WORLD.size // 2]  # nodes of one rank share no memory
    with own_memory(monkeypatch) as place:
        for levels, what, _ in itertools.product(shared, BROKEN, range(2)):
            with broken(what), pytest.raises(han.HanError, match=f"rank {ODD}") as caught:
                new_comm(levels)
            assert "Too many open files" in str(caught.value), what
            WORLD.Barrier()
            assert not list(place.iterdir())
            assert not mapped(place)
            with opened(new_comm(levels)) as comm:
                check_works(comm)


@contextlib.contextmanager
def watched():
    """Yield two lists: the communicators that get a State from now on, and those freed since."""
    made, freed, make = [], [], State.__init__
    key = MPI.Comm.Create_keyval(delete_fn=lambda comm, keyval, number: freed.append(number))

    def watch(state, comm, *arguments, **more):
        made.append(len(made))
        comm.Set_attr(key, made[-1])
        make(state, comm, *arguments, **more)

    with mock.patch.object(State, "__init__", watch):
        yield made, freed


def test_a_child_whose_set_up_fails_tries_again_in_its_next_call(mpi_ranks, monkeypatch):
    with own_memory(monkeypatch) as place, opened(new_comm()) as comm:
        before = mapped(place)
        for name, make in CHILDREN.items():
            number = ODD if name != "Split" else comm.size - 1 - ODD
            child = make(comm)
            with (
                watched() as (made, freed),
                broken("han.memory.shared.Lending.at", return_value=None),
                broken("han.memory.channel.Channel.introduce"),
                pytest.raises(han.SharedMemoryError, match=f"rank {number}"),
            ):
                child.Barrier()
            assert made == [0]
            assert mapped(place) == before
            check_works(child)
            child.Free()
            comm._han.parts.nest.clear()
            assert freed == [0]
            check_works(comm)
        assert mapped(place) == before
        WORLD.Barrier()
        assert not list(place.iterdir())


# ---- operations in Python ---------------------------------------------------------------------


def python_op(first=lambda: None):
    """Return an MPI.Op that adds in Python, after a call of `first`."""

    def add(one, other, datatype):
        first()
        target = np.frombuffer(other, "f8")
        np.add(np.frombuffer(one, "f8"), target, out=target)

    return MPI.Op.Create(add, commute=True)


def test_two_threads_with_operations_in_python_do_not_deadlock(mpi_ranks):
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        pytest.skip("MPI gives no THREAD_MULTIPLE")
    op = python_op()

    def work(comm):
        mine, total = np.full(300, comm.rank + 1.0), np.empty(300)
        for _ in range(200):
            total[:] = 0
            comm.Allreduce(mine, total, op)
            assert (total == comm.size * (comm.size + 1) / 2).all()

    for levels in ((FLAT, FLAT), (FLAT, TWO_LEVELS), (TWO_LEVELS, TWO_LEVELS)):
        comms = [new_comm(each) for each in levels]
        run_in_threads(work, *((comm,) for comm in comms))
        for comm in comms:
            comm.Free()
    op.Free()


LIBNBC = [{"use": {"levels": {FLAT[0]["name"]: {"submodule": "libnbc"}}}}]


def test_plans_are_made_while_an_operation_in_python_runs(mpi_ranks):
    """Some MPI libraries lock during the operation; a rank must not wait for it with the GIL."""
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        pytest.skip("MPI gives no THREAD_MULTIPLE")
    inside = threading.Event()

    def slow():
        inside.set()
        time.sleep(0.2)

    def work(comm, op, wait):
        if wait:
            inside.wait(2)
        total = np.zeros(3)
        comm.Allreduce(np.ones(3), total, op)
        assert (total == comm.size).all()

    for rules in ([], LIBNBC):
        inside.clear()
        ops = [python_op(slow), python_op()]
        with opened(new_comm()) as comm, opened(new_comm(rules=rules)) as other:
            run_in_threads(work, (comm, ops[0], False), (other, ops[1], True))
        for op in ops:
            op.Free()


INSIDE = {
    "Barrier": lambda comm: comm.Barrier(),
    "Allreduce": lambda comm: comm.Allreduce(np.ones(5), np.empty(5)),
    "Bcast": lambda comm: comm.Bcast(np.ones(5), root=0),
    "Ibarrier": lambda comm: comm.Ibarrier(),
    "Allreduce_init": lambda comm: comm.Allreduce_init(np.ones(5), np.empty(5)),
}


def test_a_collective_inside_of_an_operation_is_refused(mpi_ranks):
    for comm in comms():
        check_works(comm)
        comm.Bcast(np.ones(5), root=0)
        for what, call in INSIDE.items():
            caught, inside = [], partial(call, comm)

            op = python_op(lambda caught=caught, inside=inside: caught.append(outcome(inside)[0]))
            total = np.empty(40)
            comm.Allreduce(np.ones(40), total, op)
            assert (total == comm.size).all(), what
            comm.Iallreduce(np.ones(40), total, op).Wait()
            assert (total == comm.size).all(), what
            assert all(isinstance(error, RuntimeError) for error in caught), (what, caught)
            assert not any(isinstance(error, han.RevokedError) for error in caught), caught
            assert all("operation" in str(error) for error in caught), (what, caught)
            assert any(WORLD.allgather(len(caught))), what
            check_works(comm)
            op.Free()


def test_waiting_inside_of_an_operation_leaves_the_request_as_it_is(mpi_ranks):
    for finish in ("Wait", "Test", "Get_status", "Free"):
        with opened(new_comm()) as one, opened(new_comm()) as other:
            data, refused, request = np.zeros(50_000), [], None
            if one.rank == 0:
                request = other.Ibcast(data, root=1)

            def complete(request=request, refused=refused, finish=finish):
                if request is not None:
                    refused.append(outcome(getattr(request, finish))[0])

            op = python_op(complete)
            one.Allreduce(np.ones(5), np.empty(5), op)
            if request is None:
                other.Ibcast(np.full(50_000, 7.0), root=1).Wait()
            else:
                assert refused, finish
                assert all(isinstance(e, RuntimeError) for e in refused), (finish, refused)
                assert request.active, finish
                request.Wait()
                assert (data == 7).all(), finish
            op.Free()


def test_an_operation_that_the_mpi_library_runs_is_refused_too(mpi_ranks):
    with opened(new_comm(rules=LIBNBC)) as comm:
        caught = []
        op, total = python_op(lambda: caught.append(outcome(comm.Barrier)[0])), np.empty(5)
        comm.Allreduce(np.ones(5), total, op)
        assert (total == comm.size).all()
        assert any(WORLD.allgather(len(caught)))
        assert all(isinstance(error, RuntimeError) for error in caught), caught
        check_works(comm)
        op.Free()


def test_an_older_error_of_all_ranks_is_nobodys_business(mpi_ranks):
    """Rank 1 has its second error late; rank 0's next call need not wait, and must not fail."""
    with opened(new_comm(timeout=3.0)) as comm:
        for late in (False, True):
            if late and comm.rank == 1:
                WORLD.recv(source=0)
            with pytest.raises(han.ArgumentError):
                comm.Bcast("text", 0)
            WORLD.Barrier() if not late else None
        data = np.full(2, 5.0 - 5 * comm.rank)
        comm.Bcast(data, 0)
        if comm.rank == 0:
            WORLD.send(None, 1)
        assert (data == 5).all()
        check_works(comm)
