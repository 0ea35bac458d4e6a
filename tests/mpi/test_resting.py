"""Children of the same ranks take over what a freed one had; errors and leftovers of that."""

import contextlib
import time
from itertools import islice, permutations
from unittest import mock

import numpy as np
import pytest
from _support import WORLD, check_works, impatient, new_comm, opened, taken
from mpi4py import MPI

import han
from han.memory.arena import process_arena
from han.memory.loans import take_back
from han.ranks.meeting import Meeting
from han.runtime.measured import MOST_RESTED

on_all = pytest.mark.mpi(ranks=[1, 2, 3, 5], timeout=90, unit="s")
usual = pytest.mark.mpi(ranks=[2, 3], timeout=60, unit="s")


def used(comm, size=1):
    """Make a call on a communicator; return its State."""
    out = np.empty(size)
    comm.Allreduce(np.full(size, comm.rank + 1.0), out)
    assert (out == comm.size * (comm.size + 1) / 2).all()
    return comm._han


def taken_over(comm):
    """Whether the next child of all ranks takes over what one had that is freed now."""
    first = comm.Split()
    engine = used(first).parts.engines.own
    first.Free()
    second = comm.Split()
    same = used(second).parts.engines.own is engine
    second.Free()
    return same


@contextlib.contextmanager
def without_heir():
    """Yield a child of all ranks; the next one takes over nothing of it."""
    with opened(new_comm()) as parent:
        child = parent.Split()
        engine = used(child).parts.engines.own
        yield child
        child.Free()
        child = parent.Split()
        assert used(child).parts.engines.own is not engine
        check_works(child)
        child.Free()


@on_all
def test_a_child_takes_over_what_a_freed_one_of_the_same_ranks_had(comm):
    used(comm)
    assert taken_over(comm)
    for size in (1, 100, 100_000, 1, 3_000_000):
        child = comm.Split()
        used(child, size)
        check_works(child)
        found = np.array([child.rank == 0], "i4")
        child.Ibcast(found, 0).Wait()
        assert found[0]
        calls = child.cache_info()
        assert calls.hits + calls.misses < 10 * child.size + 10
        child.Free()


def test_handles_of_the_freed_communicator_stay_dead(comm):
    child = comm.Split()
    state = used(child)
    child.Free()
    other = comm.Split()
    used(other)
    with pytest.raises(han.RevokedError, match="it has been freed"):
        state.health.live()
    assert not state.calls.barrier()
    check_works(other)
    other.Free()


def test_a_communicator_that_was_traced_leaves_nothing(comm):
    child = comm.Split()
    engine = used(child).parts.engines.own
    with child.trace() as trace:
        child.Barrier()
        child.Free()
        other = comm.Split()
        assert used(other).parts.engines.own is not engine
        other.Barrier()
    assert len(trace.times) == 1  # those of the freed one only
    with pytest.raises(han.RevokedError):
        trace.timeline()
    check_works(other)
    other.Free()


def test_children_alive_at_once_are_apart(comm):
    for _ in range(3):
        children = [comm.Split() for _ in range(3)]
        engines = {used(child).parts.engines.own for child in children}
        assert len(engines) == 3
        for child in children:
            check_works(child)
        for child in children[:: 1 if comm.rank else -1]:
            child.Free()


def test_requests_under_way_are_complete_before_another_child_follows(comm):
    """Ranks that are early or late have counted the same calls."""
    for turn in range(30):
        child, out = comm.Dup(), np.empty(1000)
        engine = used(child).parts.engines.own
        if turn % comm.size == comm.rank:
            time.sleep(0.002)
        request = child.Iallreduce(np.ones(1000), out)
        child.Free()
        assert request.Test()
        assert (out == comm.size).all()
    assert used(comm.Dup()).parts.engines.own is engine


def test_orders_of_ranks_are_told_apart(comm):
    for turn in range(4):
        child = comm.Split(0, comm.rank * (-1) ** turn)
        assert child.rank == (comm.size - 1 - comm.rank if turn % 2 else comm.rank)
        used(child)
        check_works(child)
        child.Free()


def test_children_of_freed_children_are_taken_over_too(mpi_ranks):
    """Also where the inner one lives longer than the one that it was made from."""
    engines, during, before = [], [], taken()
    with opened(new_comm()) as parent:
        for outlives in (False, True, False, True, False):
            outer = parent.Split()
            used(outer)
            inner = outer.Split(0, -outer.rank)
            for child in (inner, outer) if not outlives else (outer, inner):
                engines.append(used(child).parts.engines.own)
                check_works(child)
                child.Free()
                if child is outer and outlives:
                    check_works(inner)
                    used(inner)
            during.append(taken())
        assert len(set(engines)) == 2
        assert len(set(during[1:])) == 1
        assert len(parent._han.parts.nest) == 1
    assert taken() == before


def test_a_child_lives_on_while_another_one_follows_its_parent(comm):
    outer = comm.Split()
    engine = used(outer).parts.engines.own
    first = outer.Split()
    used(first)
    outer.Free()
    outer = comm.Split()
    assert used(outer).parts.engines.own is engine
    second = outer.Split()
    assert used(second).parts.engines.own is not used(first).parts.engines.own
    out = np.empty(1000)
    request = first.Iallreduce(np.ones(1000), out)
    for child in (second, outer, first):
        check_works(child)
    request.Wait()
    assert (out == comm.size).all()
    for child in (outer, first, second):
        child.Free()
    assert comm._han.parts.nest.sets == 2, "of the same ranks, the later parts stay"


def test_ranks_that_do_not_all_have_the_parts_make_new_ones(comm):
    child = comm.Split()
    used(child)
    child.Free()
    if comm.rank == 0:  # as if this rank alone had dropped them
        comm._han.parts.nest.clear()
    child = comm.Split()
    used(child)
    check_works(child)
    child.Free()
    check_works(comm)


@impatient
def test_a_child_with_an_error_leaves_nothing(mpi_ranks):
    with without_heir() as child, pytest.raises(han.HanError):
        child.Bcast(object() if WORLD.rank == 0 else np.empty(1), 0)


def test_what_belongs_to_one_communicator_alone_is_not_taken_over(mpi_ranks):
    with without_heir() as child:
        kept = child.Allreduce_init(np.ones(1), np.empty(1))
    with pytest.raises(han.RevokedError):
        kept.Start()


def test_slots_of_requests_that_were_freed_are_taken_over(comm):
    slots = []
    for turn in range(6):
        child, out = comm.Dup(), np.empty((2, 1 + 9000 * (turn % 2)))
        requests = [child.Allreduce_init(np.full(each.shape, turn + 1.0), each) for each in out]
        for request in requests[:: 1 if child.rank else -1]:
            request.Start()
        for request in requests:
            request.Wait()
            request.Free()
        assert (out == child.size * (turn + 1)).all()
        check_works(child)
        slots.append(child._han.parts.persistent.slots)
        child.Free()
    assert len({*slots}) == 1


@pytest.mark.mpi(ranks=[2, 3, 5], timeout=60, unit="s")
def test_the_parts_of_few_sets_of_ranks_are_kept_and_freed_with_the_parent(mpi_ranks):
    before = taken()
    with opened(new_comm()) as parent:
        used(parent)
        for order in islice(permutations(range(parent.size)), MOST_RESTED + 8):
            child = parent.Split(0, order[parent.rank])
            used(child)
            child.Free()
        nest = parent._han.parts.nest
        assert 0 < len(nest) <= MOST_RESTED
        between = taken()
        for _ in range(20):
            child = parent.Split()
            used(child)
            child.Free()
        assert taken() == between
    assert taken() == before


@pytest.mark.mpi(ranks=[2], timeout=60, unit="s")
def test_memory_is_lent_no_more_if_the_first_step_raises(comm):
    used(comm)
    alone, arena = comm.Split(comm.rank), process_arena()
    take_back()
    before = arena.usage().taken
    with (
        mock.patch.object(Meeting, "numbers", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        alone.Barrier()
    take_back()
    assert arena.usage().taken <= before, "earlier loans may end meanwhile"


def test_what_is_free_of_calls_that_were_given_up_is_asked_before_others_use_it(comm):
    """Parts that a communicator leaves may serve another one, which gives a call up."""
    used(comm)
    child = comm.Split()
    parts = used(child).parts
    state, close = child._state, child._state.close

    def closed(**more):
        close(**more)
        parts.health._left_behind = True

    forget = mock.Mock()
    with mock.patch.object(state, "close", closed), mock.patch.object(child, "_forget", forget):
        child.Free()
    parts.health._left_behind = False
    forget.assert_not_called()
    assert child == MPI.COMM_NULL


def test_all_parts_end_if_some_cannot_be_given_back(comm):
    used(comm)
    child = comm.Split()
    left, wrong = [mock.Mock(), mock.Mock()], OSError("no room")
    left[0].drop.side_effect = wrong
    with (
        mock.patch.object(type(used(child).parts), "rest", lambda parts: [*left, parts]),
        pytest.raises(OSError, match="no room"),
    ):
        child.Free()
    left[1].drop.assert_called_once_with()
    used(comm)
