"""New communicators before and in their first call, which sets them up."""

import time

import numpy as np
import pytest
from _support import (
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
    settings,
)
from mpi4py import MPI

import han
from han import attached
from han.memory import arena
from han.model.topology import MAX_LEVELS
from han.runtime.making import TOLD

usual = on_two
CALLS = {
    "blocking": lambda comm: comm.Barrier(),
    "persistent": lambda comm: comm.Barrier_init().Free(),
    "trace": lambda comm: comm.trace(),
}


def is_shared(a):
    return arena.holds(a.ctypes.data, a.nbytes)


def is_used(comm):
    return "not used yet" not in repr(comm)


def test_a_communicator_that_is_never_used_takes_no_memory(mpi_ranks, monkeypatch):
    with own_memory(monkeypatch) as place, opened(new_comm()) as comm:
        before = mapped(place)
        many = [make(comm) for make in CHILDREN.values() for _ in range(20)]
        assert not any(map(is_used, many))
        assert mapped(place) == before
        for child in many:
            child.Free()
            assert child == MPI.COMM_NULL
        check_works(comm)


@on_both
def test_every_kind_of_first_call_sets_up_whenever_the_ranks_come(mpi_ranks):
    for comm in comms():
        for late, (name, call) in enumerate(CALLS.items()):
            child = comm.Split(0, -comm.rank)
            if comm.rank == late % comm.size:
                time.sleep(0.05)
            call(child)
            assert is_used(child), name
            check_works(child)
            child.Free()


def test_nonblocking_first_calls_wait_for_nobody(mpi_ranks, comm):
    """Ranks may start them on two communicators in different orders, and before a message."""
    with opened(comm.Dup()) as one, opened(comm.Split(0)) as other:
        for number in range(3):
            data, total = np.full(4, number + comm.rank), np.zeros(4, int)
            first, second = (one, other) if comm.rank else (other, one)
            requests = [first.Ibarrier(), second.Ibarrier()]
            if comm.rank:
                comm.recv(source=0)
            requests.append(one.Iallreduce(data, total))
            if not comm.rank:
                comm.send(None, dest=1)
            han.Request.Waitall(requests)
            assert (total == 2 * number + 1).all()
            assert [is_used(one), is_used(other)] == [number > 0, number > 1]
            (one, other, one)[number].Barrier()
        check_works(one)
        check_works(other)


@on_both
def test_buffers_in_a_list_of_their_own_are_quick_and_left_to_mpi_alike(mpi_ranks, comm):
    """mpi4py does not take ``[array]``."""
    with opened(new_comm(TWO_LEVELS)) as apart:
        send, total, blocks = np.ones(4), np.zeros(4), np.zeros(4 * comm.size)
        comm.Iallreduce([send], [total]).Wait()
        assert (total == comm.size).all()
        for one in (comm, apart):
            one.Allreduce([send], [total])
            one.Gather([send], [blocks] if one.rank == 0 else None)
            one.Allgather([send], [blocks])
            assert (total == comm.size).all()
            assert (blocks == 1).all()
            blocks[:] = 0


def test_explain_tells_that_nothing_is_decided_yet(mpi_ranks, comm):
    with opened(comm.Dup()) as child:
        if comm.rank:
            with pytest.raises(han.HanError, match="call Barrier"):
                child.explain("bcast", 8)
            with pytest.raises(han.HanError, match="call Barrier"):
                child.plan("bcast", 8)
        child.Barrier()
        assert child.explain("bcast", 8).rule


@on_four
def test_a_group_of_a_communicator_that_inherits_nothing(mpi_ranks):
    """It does not set up the whole communicator, as some ranks do not take part."""
    plain = MPI.COMM_WORLD.Dup()
    comm = han.Comm.fromhandle(plain.handle)
    if comm.rank:
        part = comm.Create_group(comm.group.Excl([0]))
        check_works(part)
        part.Free()
    assert not is_used(comm)
    check_works(comm)
    comm.Free()


def test_what_is_not_collective_does_not_wait_for_a_first_call(mpi_ranks, comm):
    with opened(comm.Dup()) as child:
        if comm.rank:
            assert child.cache_info().made == 0
            assert child.zeros(3).sum() == 0
            assert is_shared(child.asarray(np.ones(3)))
            with han.shared_arrays(child):
                assert is_shared(np.empty(3))
        WORLD.Barrier()
        assert not is_used(child)
        check_works(child)


def test_another_handle_finds_what_a_communicator_inherits(mpi_ranks, comm):
    child = comm.Dup()
    one, other = han.Comm.fromhandle(child.handle), han.Comm.fromhandle(child.handle)
    assert not is_used(one)
    check_works(one)
    assert child._han is one._han
    assert one._han.parts.config == comm._han.parts.config
    other.Free()
    assert one._han.closed


def test_another_handle_of_an_idup_finds_what_it_inherits(mpi_ranks, comm):
    """MPI would lose an attribute of a communicator whose request is under way."""
    for _ in range(3):  # MPI may give the handle of a freed communicator to the next one
        child, request = comm.Idup()
        request.Wait()
        other = han.Comm.fromhandle(child.handle)
        assert not is_used(other)
        check_works(other)
        assert other._han.parts.config == comm._han.parts.config
        assert other._han.health.notices.mail is comm._han.health.notices.mail
        assert child._han is other._han
        child.Free()
    plain = WORLD.Dup()
    assert attached.kept(plain) is None
    plain.Free()


def test_a_configuration_must_be_the_inherited_one(mpi_ranks, comm):
    with opened(comm.Dup()) as child:
        with pytest.raises(han.ConfigError, match="another configuration"):
            han.Comm(MPI.Intracomm(child), config={"levels": FLAT, "memory": "4MiB"})
        check_works(child)


@on_both
def test_children_of_a_communicator_that_is_not_used_yet(mpi_ranks):
    comm = new_comm()
    child = comm.Dup()
    grandchild, request = child.Idup()
    request.Wait()
    assert not is_used(child)
    if comm.rank:  # collective over the group only
        others = child.Create_group(child.group.Excl([0]))
        check_works(others)
        others.Free()
    assert not is_used(child)
    comm.Free()
    child.Free()
    check_works(grandchild)
    grandchild.Free()


@on_both
def test_making_communicators_does_not_set_up_the_one_they_are_made_of(mpi_ranks):
    for levels in LEVELS:
        with opened(new_comm(levels)) as comm, opened(comm.Dup()) as child:
            for name, make in CHILDREN.items():
                with opened(make(child)) as grandchild:
                    if name != "Create_cart":
                        check_works(grandchild)
                    with opened(grandchild.Split(0)) as last:
                        check_works(last)
            half = child.Split(comm.rank % 2)
            inter = half.Create_intercomm(0, comm, 1 - comm.rank % 2, 7)
            with opened(inter.Merge()) as whole:
                check_works(whole)
            inter.Free()
            assert not is_used(half)
            half.Free()
            assert not is_used(child)
            check_works(child)


@on_both
def test_wrong_arguments_leave_a_communicator_that_is_not_used_yet_usable(mpi_ranks, comm):
    with opened(comm.Dup()) as child:
        last = comm.size - 1
        error, _ = outcome(lambda: child.Split("red" if comm.rank == last else 0))
        assert type(error) is (TypeError if comm.rank == last else han.PeerError)
        assert comm.rank == last or f"Split: rank {last} raised TypeError" in str(error)
        with pytest.raises(han.MismatchError, match="Create_cart: the ranks do not agree"):
            child.Create_cart([comm.size], [comm.rank == 0])
        assert not is_used(child)
        for make in CHILDREN.values():
            make(child).Free()
        check_works(child)


def test_ranks_come_to_split_a_communicator_that_is_not_used_yet_at_any_time(mpi_ranks, comm):
    with opened(comm.Dup()) as child:
        data, total = np.ones(2), np.zeros(2)
        request = child.Iallreduce(data, total)  # MPI's, which does not keep the buffers
        if comm.rank:
            time.sleep(0.3)
        with opened(child.Split(0)) as part:
            check_works(part)
        request.Wait()
        assert (total == comm.size).all()


def test_a_child_may_be_used_first_after_its_parent_is_freed(mpi_ranks):
    comm = new_comm()
    child = comm.Split(0)
    comm.Free()
    check_works(child)
    child.Free()


def test_an_error_of_one_rank_in_the_set_up_makes_the_communicator_unusable(mpi_ranks, monkeypatch):
    comm = han.Comm(MPI.COMM_SELF.Dup())
    child = comm.Dup()
    with monkeypatch.context() as patch:
        patch.setattr("han.memory.shared.Lending.channels", interrupted)
        with pytest.raises(KeyboardInterrupt):
            child.Barrier()
    for call in (child.Barrier, child.Idup, lambda: child.empty(3), child.cache_info):
        with pytest.raises(han.RevokedError, match="KeyboardInterrupt: here"):
            call()
    child.Free()
    assert child == MPI.COMM_NULL
    check_works(comm)
    comm.Free()


def interrupted(*arguments):
    raise KeyboardInterrupt("here")


def test_every_handle_knows_that_the_set_up_failed_on_this_rank(mpi_ranks, monkeypatch):
    """Another attempt would wait for ranks that have gone on."""
    with opened(han.Comm(MPI.COMM_SELF.Dup())) as comm:
        plain, child = MPI.COMM_SELF.Dup(), comm.Dup()
        handles = [han.Comm.fromhandle(child.handle), child]
        for step in ("han.memory.shared.Lending.channels", "han.runtime.making.Birth.introduce"):
            with monkeypatch.context() as patch:
                patch.setattr(step, interrupted)
                first = plain if "introduce" in step else child
                with pytest.raises(KeyboardInterrupt):
                    han.Comm(MPI.Intracomm(first))
        handles += [han.Comm.fromhandle(each.handle) for each in (child, plain)]
        for handle in handles:
            for call in (handle.Barrier, handle.Split, lambda h=handle: han.Comm(MPI.Intracomm(h))):
                with pytest.raises(han.RevokedError, match="KeyboardInterrupt: here"):
                    call()
            handle.Free()
            assert handle == MPI.COMM_NULL


def test_every_handle_knows_that_a_split_failed_on_this_rank(mpi_ranks, monkeypatch):
    with opened(han.Comm(MPI.COMM_SELF.Dup())) as comm:
        child = comm.Dup()
        with monkeypatch.context() as patch:
            patch.setattr("han.ranks.meeting.Meeting.wait", interrupted)
            with pytest.raises(KeyboardInterrupt):
                child.Split()
        for handle in (child, han.Comm.fromhandle(child.handle)):
            with pytest.raises(han.RevokedError, match="KeyboardInterrupt: here"):
                handle.Split()
            handle.Free()


def test_a_first_call_ends_at_the_time_limit(mpi_ranks, monkeypatch):
    monkeypatch.setattr("han.ranks.meeting.SETUP_LEAST", 0.2)
    comm = new_comm(timeout=0.2)
    child = comm.Dup()
    if comm.rank == 0:
        error, seconds = outcome(child.Barrier)
        assert type(error) is han.CollectiveTimeoutError
        assert "rank 0 waited for 0.2 s in the making of a han.Comm" in str(error)
        assert seconds < SECONDS
        with pytest.raises(han.RevokedError, match="CollectiveTimeoutError"):
            child.Barrier()
        child.Free()
        assert child == MPI.COMM_NULL
    WORLD.Barrier()
    if comm.rank:  # completes the first step, which the other rank has given up
        told = np.zeros(TOLD + MAX_LEVELS, np.int64)
        MPI.Intracomm(child).Iallgather(told, np.empty(child.size * told.size, np.int64)).Wait()
    WORLD.Barrier()
    comm.Free()


ASKED = (
    "han.runtime.making.gather_facts",
    "han.memory.shared.refusal",
    "han.memory.shared.ask_places",
    "han.memory.shared.map_places",
)


@on_both
def test_a_child_does_not_ask_what_its_parent_knows(mpi_ranks, monkeypatch, comm):
    plain = WORLD.Split(0, -WORLD.rank)
    with opened(han.Comm(plain, settings(FLAT))) as asked:
        with monkeypatch.context() as patch:
            for name in ASKED:
                patch.delattr(name)
            child = comm.Split(0, -comm.rank)
            grandchild = child.Dup()
            for each in (child, grandchild):
                check_works(each)
        for each in (child, grandchild):
            assert each._han.parts.topology == asked._han.parts.topology
            assert each._han.parts.conditions == asked._han.parts.conditions
            shifts = each._han.parts.shared.mapping.shifts
            np.testing.assert_array_equal(shifts, asked._han.parts.shared.mapping.shifts)
            each.Free()


@on_four
def test_ranks_that_the_parent_lacks_are_asked(mpi_ranks, comm):
    with opened(comm.Split(comm.rank % 2)) as half:
        check_works(half)
        inter = half.Create_intercomm(0, comm, 1 - comm.rank % 2, 7)
        whole = inter.Merge(comm.rank % 2 == 1)
        assert half._han.parts.heritage.places(whole) is None
        check_works(whole)
        whole.Free()
        inter.Free()
