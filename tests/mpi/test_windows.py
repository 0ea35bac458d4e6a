"""Collectives on arrays in MPI's shared windows: read in place, agreed by all ranks, and freed."""

import gc
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from _support import COLLECTIVES, FLAT, TWO_LEVELS, WORLD, data_of, error_of, new_comm, opened, run
from mpi4py import MPI
from test_shared_arrays import newest, reads_peers

from han.cli import info as _cli_info

COUNT = 40_001  # elements of a block: large enough for the built-in choice to read it in place
BLOCKS = ("gather", "scatter", "allgather")
MAPPED = (*COLLECTIVES[:3], *BLOCKS)
SIZE = WORLD.size
WINDOW = (2 * SIZE + 2) * COUNT * 8  # bytes of a rank's segment, for all its buffers


class Places:
    """Allocates arrays in a rank's segment of a window, one behind the other."""

    def __init__(self, win, rank):
        self.memory, self.at = win.Shared_query(rank)[0], 8

    def __call__(self, like):
        made = np.ndarray(like.shape, like.dtype, self.memory, self.at)
        self.at += like.nbytes + 8
        made[:] = like
        return made


def ordinary(like):
    return like.copy()


@contextmanager
def window(comm, nbytes=WINDOW, over=None, **info):
    """Allocate a window and attach it."""
    hints = MPI.Info.Create({key: str(value) for key, value in info.items()})
    win = MPI.Win.Allocate_shared(nbytes, 8, hints, over or comm)
    hints.Free()
    comm.attach_window(win)
    yield win
    win.Free()


def mapped(comm):
    """Return whether the newest plan is for mapped buffers, and check that some rank reads them."""
    said = newest(comm).signature.mapped
    assert comm.allreduce(reads_peers(comm), MPI.LOR) == said
    return said


def check(comm, name, send_in, recv_in, root, in_place):
    """Run a persistent call twice and check its results; return whether its buffers were mapped."""
    size, rank, at_root = comm.size, comm.rank, comm.rank == root
    spreads, collects = name == "scatter", name in ("gather", "allgather")
    whole = [data_of(r, "float64", COUNT * (size if spreads else 1), "sum") for r in range(size)]
    mine, out = whole[rank].copy(), np.zeros(COUNT * (size if collects else 1))
    if name == "bcast":
        buffer = send_in(mine)
        request = comm.Bcast_init(buffer, root)
        result, wanted = buffer, whole[root]
    else:
        gets = at_root or name in ("allreduce", "allgather", "scatter")
        sends = at_root or not spreads
        in_place = in_place and gets and (at_root or not spreads)
        send, recv = send_in(mine) if sends else None, recv_in(out) if gets else None
        if in_place and spreads:
            recv = MPI.IN_PLACE
        elif in_place:
            part = recv[rank * COUNT :][:COUNT] if collects else recv
            part[:], send = mine, MPI.IN_PLACE
        rooted = () if name in ("allreduce", "allgather") else (root,)
        op = (MPI.SUM,) if name in ("reduce", "allreduce") else ()
        request = getattr(comm, f"{name.capitalize()}_init")(send, recv, *op, *rooted)
        result = None if recv is MPI.IN_PLACE else recv
        wanted = {
            "reduce": lambda: sum(whole), "allreduce": lambda: sum(whole),
            "gather": lambda: np.concatenate(whole), "allgather": lambda: np.concatenate(whole),
            "scatter": lambda: whole[root][rank * COUNT :][:COUNT],
        }[name]()  # fmt: skip
    found = mapped(comm)
    for turn in range(2):
        if turn and name == "bcast" and not at_root:
            buffer[:] = 0
        elif turn and in_place and name in ("reduce", "allreduce"):
            result[:] = mine
        run(request)
        if result is not None:
            np.testing.assert_allclose(result, wanted, rtol=1e-14, err_msg=name)
    request.Free()
    return found


def everything(comm, send_in, recv_in, expected=True, part=slice(None)):
    """Check (a part of) all calls that can read mapped buffers.

    `send_in` and `recv_in` return a new allocator of arrays for each call.
    """
    calls = [(name, in_place) for in_place in (False, True) for name in MAPPED]
    for turn, (name, in_place) in enumerate(calls[part]):
        found = check(comm, name, send_in(), recv_in(), turn % comm.size, in_place)
        assert found == expected, (name, in_place)
    comm.Barrier()  # the next calls may use memory that peers still read


@pytest.mark.mpi(ranks=[2, 3], timeout=60, unit="s")
def test_windows_are_read_where_they_are_wherever_in_them_buffers_lie(mpi_ranks):
    with (
        mock.patch("han.memory.shared.refusal", return_value="not tried"),
        opened(new_comm(FLAT)) as comm,
    ):
        rank, following = comm.rank, (comm.rank + 1) % comm.size
        with window(comm) as one, window(comm, alloc_shared_noncontig="true") as two:
            everything(comm, lambda: Places(one, rank), lambda: Places(two, rank))
            everything(
                comm,
                lambda: Places(two, following),
                lambda: Places(one, rank),
                part=slice(0, None, 5),
            )
            # some ranks pass shared arrays and others arrays in windows
            some = (lambda: Places(one, rank)) if rank % 2 else (lambda: comm.asarray)
            everything(comm, some, lambda: Places(two, following), part=slice(1, None, 2))
            # if one rank passes ordinary arrays, no rank reads mapped buffers
            send, recv = (lambda: Places(one, rank)), (lambda: Places(two, rank))
            odd = (lambda: ordinary, lambda: ordinary) if rank == 0 else (send, recv)
            everything(comm, *odd, expected=False, part=slice(2, None, 4))
            text = _cli_info.as_text(_cli_info.collect(comm))
            assert "windows    2 attached" in text
            explained = str(comm.explain("allreduce", 8 * COUNT, shared=True))
            assert "solo split" in explained
            assert "reads     shared arrays and arrays in 2 attached windows" in explained
        # an array across all segments, which are contiguous by default
        with window(comm, 8 * COUNT) as one:
            whole = np.ndarray(COUNT * comm.size, float, over_all(one, comm.size))
            block = comm.zeros(COUNT)
            if rank == 0:
                whole[:] = np.arange(whole.size)
            comm.Barrier()
            request = comm.Scatter_init(whole if rank == 0 else None, block)
            assert mapped(comm)
            run(request)
            np.testing.assert_array_equal(block, np.arange(whole.size)[rank * COUNT :][:COUNT])
            request.Free()
        text = _cli_info.as_text(_cli_info.collect(comm))
        assert "windows    none attached" in text


def over_all(win, size):
    """Return the memory of all segments of a window, which are contiguous."""
    first = win.Shared_query(0)[0]
    return MPI.memory.fromaddress(first.address, first.nbytes * size)


@pytest.mark.mpi(ranks=4, timeout=60, unit="s")
def test_windows_of_nodes_and_of_other_communicators(mpi_ranks):
    """Each of two nodes has a window; ranks of a window's communicator are in another order."""
    half = WORLD.Split(WORLD.rank // 2, -WORLD.rank)
    turned = WORLD.Split(0, -WORLD.rank)
    for levels, over in ((TWO_LEVELS, half), (TWO_LEVELS, turned), (FLAT, turned)):
        with opened(new_comm(levels)) as comm, window(comm, over=over) as win:
            for name in MAPPED[: 3 if levels is TWO_LEVELS else 6]:
                place = Places(win, over.rank)
                assert check(comm, name, place, place, 3, False), name
    with opened(new_comm(FLAT)) as comm:
        win = MPI.Win.Allocate_shared(64, 8, MPI.INFO_NULL, half)
        name, text, _ = error_of(lambda: comm.attach_window(win))
        assert name == "ArgumentError"
        assert (
            "rank 0: win has 2 ranks and lacks some that share memory with this one: 2, 3" in text
        )
        assert len(set(comm.allgather(text))) == 1
        win.Free()
    half.Free()
    turned.Free()


def fails(comm, call, *words):
    """Check that a call raises the same ArgumentError on all ranks, and that later calls work."""
    name, text, _ = error_of(call)
    assert name == "ArgumentError", (name, text)
    assert all(word in text for word in words), text
    assert len(set(comm.allgather(text))) == 1
    send, recv = np.ones(3), np.empty(3)
    comm.Allreduce(send, recv)
    assert (recv == comm.size).all()


def shared_files():
    """Return the number of shared mappings in this process, without those of arenas."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return len([line for line in lines if " rw-s " in line and "memfd:han" not in line])


@pytest.mark.mpi(ranks=2, timeout=60, unit="s")
def test_wrong_windows_detached_ones_and_freed_ones(mpi_ranks):
    with opened(new_comm(FLAT)) as comm:
        wrong_windows(comm)
        freed_windows(comm)


def wrong_windows(comm):
    plain = MPI.Win.Allocate(64, 8, comm=comm)
    wins = [MPI.Win.Allocate_shared(64, 8, comm=comm) for _ in range(2)]
    attach, detach = comm.attach_window, comm.detach_window
    fails(comm, lambda: attach(plain), "rank 0", "not a window of shared memory", "Allocate_sh")
    fails(comm, lambda: attach("x" if comm.rank else wins[0]), "rank 1", "str is no MPI.Win")
    fails(comm, lambda: attach(MPI.WIN_NULL), "rank 0", "WIN_NULL")
    fails(comm, lambda: attach(wins[comm.rank]), "ranks 0 and 1 have passed different windows")
    fails(comm, lambda: detach(wins[0]), "detach_window: rank 0: win is not attached")
    attach(wins[0])
    attach(wins[0])  # has no effect
    fails(comm, lambda: attach(wins[comm.rank]), "ranks 0 and 1 have passed different windows")
    fails(comm, lambda: detach(wins[comm.rank]), "rank 1: win is not attached")
    attach(wins[1])
    fails(comm, lambda: detach(wins[comm.rank]), "different windows")
    detach(wins[0])
    fails(comm, lambda: detach(wins[0]), "not attached")
    with mock.patch("han.memory.segments._native") as native:
        native.map_again.side_effect = OSError(12, "Cannot allocate memory")
        if comm.rank:
            fails(comm, lambda: attach(wins[0]), "rank 1: Cannot allocate memory")
    if not comm.rank:
        fails(comm, lambda: attach(wins[0]), "rank 1: Cannot allocate memory")
    for win in (plain, *wins):
        win.Free()


def freed_windows(comm):
    """Check that a request keeps its own mapping and never accesses memory that MPI unmapped."""
    for request in [comm.Allreduce_init(np.ones(COUNT), np.ones(COUNT)) for _ in range(2)]:
        request.Free()  # their slots stay
    for end in ("detach", "free", "free, not mapped", "free while it runs", "free comm first"):
        before = shared_files()
        other = new_comm(FLAT) if end == "free comm first" else comm
        win = MPI.Win.Allocate_shared(WINDOW, 8, comm=comm)
        other.attach_window(win)
        place = Places(win, comm.rank)
        send, recv = place(np.full(COUNT, comm.rank + 1.0)), place(np.zeros(COUNT))
        odd = end == "free, not mapped" and comm.rank == 0  # rank 0 passes ordinary arrays
        send, recv = (send.copy(), recv.copy()) if odd else (send, recv)
        request = other.Allreduce_init(send, recv)
        assert mapped(other) == (end != "free, not mapped")
        request.Start()
        if end != "free while it runs":
            request.Wait()
            assert (recv == 3).all()
        if end == "detach":
            other.detach_window(win)
            recv[:] = 0
            run(request)
            assert (recv == 3).all()
            again = other.Allreduce_init(send, recv, MPI.MAX)  # does not read mapped buffers
            assert not mapped(other)
            again.Free()
        if end == "free comm first":
            request.Free()
            other.Free()
        del send, recv, place
        win.Free()
        request_after(comm, request, end)
        del request
        gc.collect()
        comm.Barrier()
        assert shared_files() == before, end


def request_after(comm, request, end):
    """Use a request whose window has been freed."""
    if end == "free comm first":
        return
    request.Wait()
    fails(comm, request.Start, "the shared window of a buffer has been freed")
    request.Free()
