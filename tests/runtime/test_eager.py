"""Eager blocks without MPI's ranks: what is written into them, read from them, and refused."""

import pickle
import threading

import numpy as np
import pytest
from threaded import run_in_threads

import han.object_moves  # noqa: F401 - it tells the compiled module how to pickle
from han import _native
from han.common.errors import MismatchError
from han.runtime.eager import BLOCK, EAGER_ROOM, Call, Eager, Large, alike

RANKS = 4


def data_of(nbytes: int) -> bytes:
    """Return a pickled object, its size, of `nbytes` bytes."""
    data = pickle.dumps(nbytes)
    return data + bytes(nbytes - len(data))  # nobody reads what follows the end of the object


class World:
    """Ranks whose collectives of bytes move what their blocks hold, when all have come."""

    def __init__(self) -> None:
        self.eagers = [Eager(RANKS) for _ in range(RANKS)]
        self.barrier = threading.Barrier(RANKS, timeout=20)
        self.arrays: list[tuple[np.ndarray, ...]] = [()] * RANKS

    def allgather(self, rank: int):
        def run(one, every):
            self.arrays[rank] = one.copy(), every
            self.barrier.wait()
            every[:] = np.concatenate([each[0] for each in self.arrays])
            self.barrier.wait()
            return True

        return run

    def alltoall(self, rank: int):
        def run(in_place, every):
            assert in_place is None
            self.arrays[rank] = (every.copy(),)
            self.barrier.wait()
            place = slice(rank * BLOCK, (rank + 1) * BLOCK)
            every[:] = np.concatenate([each[0][place] for each in self.arrays])
            self.barrier.wait()
            return True

        return run

    def call(self, act):
        """Let each rank act in a thread of its own; return what they return."""
        return run_in_threads(act, *enumerate(self.eagers))


def test_objects_that_fit_arrive_and_larger_ones_leave_their_sizes():
    for nbytes in (28, EAGER_ROOM - 1, EAGER_ROOM, EAGER_ROOM + 1, 5000):
        world = World()
        sizes = [28, nbytes, 30, 28]

        def act(rank, eager, world=world, sizes=sizes):
            data = data_of(sizes[rank])
            assert len(data) == sizes[rank]
            found = eager.blocks.tell(world.allgather(rank), data, Call.GATHER, 2, rank == 2)
            return found.sizes(2, Call.GATHER) if isinstance(found, Large) else found

        found = world.call(act)
        if nbytes > EAGER_ROOM:
            assert found == [sizes] * RANKS
        else:
            assert found[2] == sizes
            assert found[0] == [data_of(n) for n in sizes]


def test_blocks_that_come_as_long_as_they_are():
    """A block of an object that is too large is a head."""
    blocks, most = Eager(2).blocks, 400
    blocks.most, head = most, BLOCK - EAGER_ROOM
    for nbytes in (28, 300, most - head, most - head + 1, 5000):
        for sender in (False, True):
            data, sent = data_of(nbytes), []

            def run(one, every, root, sender=sender, sent=sent):
                assert root == 1
                sent.append(bytes(one))
                if not sender:
                    for k in range(2):
                        every[k * most : k * most + len(one)] = one
                return True

            found = blocks.gather_up_to(run, data, Call.GATHER, 1, not sender)
            fits = nbytes <= most - head
            assert len(sent[0]) == head + nbytes * fits
            if sender:
                assert found is None
            elif fits:
                assert found == [nbytes] * 2
            else:
                assert found.sizes(1, Call.GATHER) == [nbytes] * 2
                assert [*found.each()] == [None, None]
            assert blocks.done == (fits or False)


def test_ranks_agree_on_blocks_for_large_objects():
    cases = [  # what rank 1 sends to each rank; whether blocks of one size are used
        ([5000, 5000, 4000, 5000], False),
        ([900, 900, 900, 900], False),
        ([400, 400, 380, 400], True),
    ]
    for sizes, even in cases:
        world = World()

        def act(rank, eager, world=world, sizes=sizes):
            items = [data_of(n) for n in (sizes if rank == 1 else [240, 28, 28, 28])]
            found = eager.blocks.alltoall(world.alltoall(rank), items, Call.ALLTOALL, 0)
            return found.sizes(0, Call.ALLTOALL), found.stride(RANKS)

        found = world.call(act)
        assert [told[1] for told in found] == [found[0][1]] * RANKS
        assert bool(found[0][1]) == even, (sizes, found)
        wanted = [[240 if not rank else 28] * RANKS for rank in range(RANKS)]
        for rank in range(RANKS):
            wanted[rank][1] = sizes[rank]
        assert [told[0] for told in found] == wanted


def test_heads_tell_of_different_calls():
    world = World()

    def act(rank, eager):
        call = Call.REDUCE if rank == 3 else Call.ALLGATHER
        found = eager.blocks.tell(world.allgather(rank), data_of(28), call, 0, True)
        with pytest.raises(MismatchError) as error:
            found.sizes(0, call)
        assert found.sizes(0, Call.REDUCE, Call.ALLGATHER) == [28] * RANKS
        assert found.items() == [data_of(28)] * RANKS
        return str(error.value)

    text = "rank 0 is in allgather of objects; rank 3 is in reduce of objects (root 0)"
    assert all(text in said for said in world.call(act))


def test_a_call_inside_another_one_has_its_own_blocks():
    """As in a signal handler, which Python runs while a rank waits."""
    eager, inner = Eager(1), []

    def copies(one, every):
        every[:] = one
        return True

    def interrupted(one, every):
        if len(inner) < 2:
            inner.append(eager.within)
            inner.append(eager.blocks.tell(copies, pickle.dumps("inner"), Call.GATHER, 0, True))
            assert eager.within == "allgather of objects"
        return copies(one, every)

    for _ in range(2):
        inner.clear()
        outer = eager.blocks.tell(interrupted, pickle.dumps("outer"), Call.ALLGATHER, 0, True)
        assert (outer, inner) == (["outer"], ["allgather of objects", ["inner"]])


def test_a_collective_without_a_plan_or_with_an_error_gives_its_blocks_back():
    def fails(*arguments):
        raise RuntimeError("the collective failed")

    used = []

    def notes(*arguments):
        used.append([id(each) for each in arguments if isinstance(each, np.ndarray)])
        return False

    for call in (
        lambda blocks, run: blocks.tell(run, b"a", Call.ALLGATHER, 0, True),
        lambda blocks, run: blocks.bcast(run, b"a", Call.BCAST, 0),
        lambda blocks, run: blocks.scatter(run, [b"a"] * RANKS, Call.SCATTER, 0),
        lambda blocks, run: blocks.alltoall(run, [b"a"] * RANKS, Call.ALLTOALL, 0),
    ):
        eager = Eager(RANKS)
        used.clear()
        for _ in range(2):
            assert call(eager.blocks, notes) is eager.blocks.unplanned
            with pytest.raises(RuntimeError, match="the collective failed"):
                call(eager.blocks, fails)
            assert eager.within == ""
        assert used[0] == used[1] != []


def test_wrong_arguments_are_refused():
    blocks = Eager(RANKS).blocks
    for error, call in (
        (TypeError, lambda: blocks.tell(len, bytearray(3), 1, 0, True)),
        (TypeError, lambda: blocks.tell(len, b"a", "b", 0, True)),
        (TypeError, lambda: blocks.tell(len)),
        (ValueError, lambda: blocks.alltoall(len, [b"a"], 1, 0)),
        (ValueError, lambda: blocks.scatter(len, (b"a",) * RANKS, 1, 0)),
        (TypeError, lambda: blocks.scatter(len, [1] * RANKS, 1, 0)),
        (TypeError, lambda: _native.Eager()),
        (TypeError, lambda: _native.Eager.__new__(_native.Eager)),
        (ValueError, lambda: _native.Eager(bytearray(3), bytearray(3), 0, 0, len)),
    ):
        with pytest.raises(error):
            call()


def test_blocks_of_one_size_take_at_most_twice_the_bytes():
    assert alike([10, 10, 10]) == 10
    assert alike([10, 5, 5]) == 10
    assert alike([10, 4, 4]) == 10
    assert alike([12, 2, 2]) == 0
