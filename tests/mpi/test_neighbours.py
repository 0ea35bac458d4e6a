"""Neighbourhood collectives on grids and graphs, as the edges of all ranks tell."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import accumulate, product
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pytest
from _support import (
    APART,
    FLAT,
    FORMS,
    TWO_BY_TWO,
    comm_with,
    finish,
    interleaved,
    method_of,
    new_comm,
    opened,
    outcome,
)
from mpi4py import MPI
from tensors import OnDevice

import han
from han.common.errors import ArgumentError, ArgumentTypeError, HanError, RevokedError
from han.message.neighbours import Edges, Form, message_of

WORLD = MPI.COMM_WORLD
SIZE, RANK = WORLD.size, WORLD.rank
TWO = MPI.DOUBLE.Create_contiguous(2).Commit()
NODES = {"one": FLAT, "alone": APART, "pairs": TWO_BY_TWO}
MOST = (0, 1, 700, 4097, 30_000)  # elements of a block: in cells, and beyond
on_ranks = pytest.mark.mpi(ranks=[1, 2, 3, 4, 5], timeout=120, unit="s")
on_few = pytest.mark.mpi(ranks=[2, 3], timeout=120, unit="s")


def grid(*periods: bool) -> Callable[[han.Comm], Any]:
    def make(comm: han.Comm) -> Any:
        return comm.Create_cart(MPI.Compute_dims(SIZE, len(periods)), periods)

    return make


def star(comm: han.Comm) -> Any:
    if SIZE == 1:
        return comm.Create_graph([1], [0])  # mpi4py takes one without edges for no rank
    edges = [*range(1, SIZE), *[0] * (SIZE - 1)]
    return comm.Create_graph([SIZE - 1 + r for r in range(SIZE)], edges)


def drawn(most: int) -> Callable[[han.Comm], Any]:
    """Return what makes a random graph, in which a rank is named up to `most` times by another."""

    def make(comm: han.Comm) -> Any:
        times = [[Random(100 * s + t).randint(0, most) for t in range(SIZE)] for s in range(SIZE)]
        sources = [s for s in range(SIZE) for _ in range(times[s][RANK])]
        targets = [t for t in range(SIZE) for _ in range(times[RANK][t])]
        mixed = Random(RANK)
        mixed.shuffle(sources)
        mixed.shuffle(targets)
        return comm.Create_dist_graph_adjacent(sources, targets)

    return make


def full(comm: han.Comm) -> Any:
    others = [rank for rank in range(SIZE) if rank != RANK]
    return comm.Create_dist_graph_adjacent(others, others)


SHAPES = {
    "full": full,
    "line": grid(False),
    "ring": grid(SIZE > 2),
    "grid": grid(SIZE not in (1, 2, 4), False),  # no periodic dimension of two processes
    "star": star,
    "graph": drawn(1),
    "graph of double edges": drawn(3),
}


class Edge(NamedTuple):
    """An edge from one rank to another: its places among the blocks of both."""

    source: int
    target: int
    sent: int
    taken: int

    def data(self, count: int, same: bool) -> np.ndarray:
        return np.arange(count) + 1e6 * self.source + 1e3 * (0 if same else self.sent)


def edges_of(comm: MPI.Topocomm) -> list[Edge]:
    """Return the edges of all ranks, as MPI pairs them."""
    there = WORLD.allgather(comm.inoutedges)
    found = []
    for source, (_, targets) in enumerate(there):
        for k, target in enumerate(targets):
            if target < 0:
                continue
            places = [j for j, s in enumerate(there[target][0]) if s == source]
            number = targets[:k].count(target)  # of the edges between these two
            found.append(Edge(source, target, k, places[number]))
    return found


def laid(blocks: list[np.ndarray], gap: int) -> tuple[np.ndarray, list[int], list[int]]:
    """Return an array of blocks with gaps, their counts and where they begin."""
    starts = [*accumulate((b.size + gap for b in blocks), initial=gap)]
    whole = np.full(starts[-1], -1.0)
    for block, at in zip(blocks, starts, strict=False):
        whole[at : at + block.size] = block
    return whole, [b.size for b in blocks], starts[:-1]


class Exchange:
    """Calls on one communicator, and what they should receive."""

    def __init__(self, comm: Any) -> None:
        self.comm, edges = comm, edges_of(comm)
        self.out = {e.sent: e for e in edges if e.source == RANK}
        self.into = {e.taken: e for e in edges if e.target == RANK}
        self.sources, self.targets = map(len, comm.inoutedges)

    def check(self, form: str, most: int) -> None:
        self._equal("Neighbor_allgather", form, most, same=True)
        self._equal("Neighbor_alltoall", form, most, same=False)
        self._counted("Neighbor_allgatherv", form, most, gap=3, same=True)
        self._counted("Neighbor_alltoallv", form, most, gap=0, same=False)
        self._counted("Neighbor_alltoallv", form, most, gap=2, same=False)

    def _equal(self, name: str, form: str, count: int, same: bool) -> None:
        if same:
            send = Edge(RANK, 0, 0, 0).data(count, same)
        else:
            send = np.full((self.targets, count), -2.0)
            for k, edge in self.out.items():
                send[k] = edge.data(count, same)
        result = np.full((self.sources, count), -1.0)
        wanted = result.copy()
        for j, edge in self.into.items():
            wanted[j] = edge.data(count, same)
        finish(method_of(self.comm, form, name)(send, result))
        assert result.tolist() == wanted.tolist(), (name, form, count)

    def _counted(self, name: str, form: str, most: int, gap: int, same: bool) -> None:
        def count(edge: Edge | None) -> int:
            if edge is None:
                return 2  # beyond the edge of a grid
            return most * (edge.source + 1 + (0 if same else edge.sent)) // (SIZE + 6)

        received = [self.into.get(j) for j in range(self.sources)]
        blocks = [e.data(count(e), same) if e else np.full(2, -1.0) for e in received]
        wanted, counts, starts = laid(blocks, gap)
        result = np.full(wanted.size, -1.0)
        send: Any = Edge(RANK, 0, 0, 0).data(count(Edge(RANK, 0, 0, 0)), same)
        if not same:
            sent = [self.out.get(k) for k in range(self.targets)]
            data = [e.data(count(e), same) if e else np.full(2, -2.0) for e in sent]
            whole, given, places = laid(data, gap)
            send = [whole, (given, places), MPI.DOUBLE]
        finish(method_of(self.comm, form, name)(send, [result, (counts, starts), MPI.DOUBLE]))
        assert result.tolist() == wanted.tolist(), (name, form, most, gap)
        if not same:
            result[:] = -1.0
            call = method_of(self.comm, form, "Neighbor_alltoallw")
            finish(call(typed(whole, given, places), typed(result, counts, starts)))
            assert result.tolist() == wanted.tolist(), (form, most, gap)


def typed(array: np.ndarray, counts: list[int], starts: list[int]) -> list[Any]:
    """Return blocks as a program passes those with types of their own."""
    types = [MPI.DOUBLE if n % 2 else TWO for n in counts]
    numbers = [n if n % 2 else n // 2 for n in counts]
    return [array, numbers, [8 * start for start in starts], types]


@on_ranks
@pytest.mark.parametrize("levels", NODES.values(), ids=[*NODES])
def test_blocks_arrive_where_the_topology_says(mpi_ranks, levels):
    with opened(new_comm(levels)) as comm:
        for make in SHAPES.values():
            with opened(make(comm)) as shaped:
                calls = Exchange(shaped)
                for form in FORMS:
                    for most in MOST:
                        calls.check(form, most)
                assert shaped.cache_info().currsize > 0


@pytest.mark.mpi(ranks=[6, 9], timeout=120, unit="s")
def test_ranks_of_a_node_need_not_be_consecutive(mpi_ranks):
    """Nodes have three ranks, one and two, in a mixed order."""
    with opened(comm_with(WORLD, interleaved(SIZE))) as comm:
        for shape in ("full", "ring", "graph", "graph of double edges"):
            with opened(SHAPES[shape](comm)) as shaped:
                calls = Exchange(shaped)
                for form, most in product(FORMS, (1, 300, 30_000)):
                    calls.check(form, most)


@on_few
def test_results_are_those_of_the_library(mpi_ranks):
    with opened(new_comm()) as comm:
        for shape in ("line", "star", "graph"):
            with opened(SHAPES[shape](comm)) as shaped:
                sources, targets = map(len, shaped.inoutedges)
                send, one = np.arange(5.0 * targets) + 100 * RANK, np.arange(5.0) + 100 * RANK
                for name, data in (("Neighbor_alltoall", send), ("Neighbor_allgather", one)):
                    result, wanted = np.full((2, sources * 5), -1.0)
                    getattr(shaped, name)(data, result)
                    getattr(MPI.Topocomm, name)(shaped, data, wanted)
                    assert result.tolist() == wanted.tolist(), (shape, name)


@on_few
@pytest.mark.parametrize("shape", ["graph", "ring"])
def test_repeated_calls_of_any_sizes_are_served_quickly(mpi_ranks, shape):
    with opened(new_comm()) as comm, opened(SHAPES[shape](comm)) as shaped:
        calls, (sources, targets) = Exchange(shaped), map(len, shaped.inoutedges)
        calls.check("{}", 5)
        before = shaped.cache_info().hits
        calls.check("{}", 700)
        shaped.Neighbor_alltoall([np.ones((targets, 7)), 7, MPI.DOUBLE], np.zeros((sources, 7)))
        shaped.Neighbor_allgatherv(np.ones(7), [np.zeros(sources * 7), [7] * sources])
        assert shaped.cache_info().hits == before + 9


@on_few
def test_grids_with_one_process_on_both_sides_are_the_librarys(mpi_ranks):
    with opened(new_comm()) as comm:
        for periods in ((False, True), (True, True)):
            with opened(grid(*periods)(comm)) as shaped:
                sources, targets = map(len, shaped.inoutedges)
                send = np.arange(3.0 * targets) + 100 * RANK
                for form in FORMS:
                    result, wanted = np.full((2, 3 * sources), -1.0)
                    call = method_of(shaped, form, "Neighbor_alltoall")
                    finish(call([send], result))
                    finish(getattr(MPI.Topocomm, call.__name__)(shaped, send, wanted))
                    assert result.tolist() == wanted.tolist()


@on_few
def test_types_with_gaps_are_packed(mpi_ranks):
    pairs = MPI.DOUBLE.Create_vector(2, 1, 2).Create_resized(0, 32).Commit()
    with opened(new_comm()) as comm, opened(SHAPES["line"](comm)) as shaped:
        below, above = shaped.Shift(0, 1)
        send = np.arange(8.0) + 100 * RANK
        wanted = np.full(8, -1.0)
        if below >= 0:
            wanted[:4:2] = [4 + 100 * below, 6 + 100 * below]
        if above >= 0:
            wanted[4::2] = [100 * above, 2 + 100 * above]
        for turn in range(3):
            hits, into = shaped.cache_info().hits, np.full((2, 8), -1.0)
            shaped.Neighbor_alltoall([send, 1, pairs], [into[0], 1, pairs])
            shaped.Neighbor_alltoallv([send, [1, 1], pairs], [into[1], [1, 1], pairs])
            assert into.tolist() == [wanted.tolist()] * 2, turn
        assert shaped.cache_info().hits == hits + 2
    pairs.Free()


@on_few
def test_columns_of_one_matrix_are_exchanged_quickly(mpi_ranks):
    """What is sent and received lies in one array, and has no byte in common."""
    kinds = [MPI.DOUBLE.Create_subarray([4, 5], [4, 1], [0, k]).Commit() for k in (1, 3, 0, 4)]
    once = [1, 1], [0, 0]
    with opened(new_comm()) as comm, opened(SHAPES["line"](comm)) as shaped:
        below, above = shaped.Shift(0, 1)
        for form, _ in product(FORMS, range(3)):
            hits, matrix = shaped.cache_info().hits, np.arange(20.0).reshape(4, 5) + 100 * RANK
            wanted = matrix.copy()
            if below >= 0:
                wanted[:, 0] += 3 - 100
            if above >= 0:
                wanted[:, 4] += 100 - 3
            call = method_of(shaped, form, "Neighbor_alltoallw")
            finish(call([matrix, *once, kinds[:2]], [matrix, *once, kinds[2:]]))
            assert matrix.tolist() == wanted.tolist()
            assert form.endswith("_init") or shaped.cache_info().hits == hits + 1 or not hits
        if below >= 0 and above >= 0:
            with pytest.raises(ArgumentError, match="overlap"):
                shaped.Neighbor_alltoallw([matrix, *once, kinds[:2]], [matrix, *once, kinds[1:3]])
    for kind in kinds:
        kind.Free()


@on_few
def test_blocks_beyond_the_edge_may_lie_anywhere(mpi_ranks):
    """Nothing is read or written there: they may overlap others, and need no memory."""
    with opened(new_comm()) as comm, opened(SHAPES["line"](comm)) as shaped:
        below, above = shaped.Shift(0, 1)
        halo = [0 if below >= 0 else 10**6, 4 if above >= 0 else 10**6]
        for _ in range(3):
            cells = np.array([7.0, RANK, RANK, RANK, 7.0])
            sent, received = ([1, 1], [1, 3]), ([1, 1], halo)
            shaped.Neighbor_alltoallv([cells, sent, MPI.DOUBLE], [cells, received, MPI.DOUBLE])
            around = [7.0 if neighbour < 0 else neighbour for neighbour in (below, above)]
            assert cells.tolist() == [around[0], RANK, RANK, RANK, around[1]]


@on_few
def test_types_that_begin_before_their_place(mpi_ranks):
    before = MPI.DOUBLE.Create_hindexed([1], [-8]).Create_resized(-8, 8).Commit()
    with opened(new_comm()) as comm, opened(SHAPES["line"](comm)) as shaped:
        send, into = np.array([RANK, RANK + 0.5]), np.full(2, -1.0)
        for _ in range(3):
            blocks = [1, 1], [1, 2]
            shaped.Neighbor_alltoallv([send, blocks, before], [into, blocks, before])
        below, above = shaped.Shift(0, 1)
        wanted = [below + 0.5 if below >= 0 else -1, above if above >= 0 else -1]
        assert into.tolist() == wanted
    before.Free()


@on_few
def test_a_communicator_that_was_freed_raises(mpi_ranks):
    with opened(new_comm()) as comm:
        for periods in ((False,), (False, True)):  # han's, and the library's
            shaped = grid(*periods)(comm)
            shaped.Free()
            with pytest.raises(RevokedError):
                shaped.Neighbor_alltoall(np.zeros(4), np.zeros(4))


@on_few
def test_a_rank_without_neighbours_tells_of_devices_and_mistakes(mpi_ranks):
    with opened(new_comm()) as comm:
        around = [0] if RANK == 0 else []
        with opened(comm.Create_dist_graph_adjacent(around, around)) as shaped:
            for _ in range(3):
                result = np.zeros(2)
                shaped.Neighbor_alltoall(np.ones(2), result)
                assert result.tolist() == [float(RANK == 0)] * 2
                result[:], hits = 0, shaped.cache_info().hits
                blocks = [1] * len(around), [8] * len(around), [MPI.DOUBLE] * len(around)
                shaped.Neighbor_alltoallw([np.ones(2), *blocks], [result, *blocks])
                assert result.tolist() == [0, float(RANK == 0)]
            assert shaped.cache_info().hits == hits + 1
            edges, there = Edges(shaped), OnDevice(np.zeros(2))
            with pytest.raises(ArgumentTypeError):
                message_of(edges, False, Form.EQUAL, 5, np.zeros(2))
            for same, form in product((True, False), (Form.EQUAL, Form.COUNTED)):
                assert message_of(edges, same, form, there, there).signature.device
            if not around:
                empty = [there, [], [], []]
                assert message_of(edges, False, Form.TYPED, empty, empty).signature.device


@on_few
def test_wrong_arguments_are_refused(mpi_ranks):
    with opened(new_comm()) as comm, opened(SHAPES["ring"](comm)) as shaped:
        fine = np.zeros(4)
        wrong = {
            "cannot share evenly": (np.zeros(3), fine),
            "not allowed": (MPI.IN_PLACE, fine),
            "read-only": (fine, np.broadcast_to(0.0, (4,)).copy()),
        }
        wrong["read-only"][1].flags.writeable = False
        for text, buffers in wrong.items():
            with pytest.raises(ArgumentError, match=text):
                shaped.Neighbor_alltoall(*buffers)
        with pytest.raises(ArgumentError, match="one for each"):
            shaped.Neighbor_alltoallv([fine, [1] * 3], [np.zeros(4), [1] * 3])
        shaped.Neighbor_alltoall(fine, np.zeros(4))


@on_few
def test_sizes_that_differ_raise_on_both_ranks(mpi_ranks):
    with opened(new_comm()) as comm, opened(SHAPES["ring"](comm)) as shaped:
        fine = np.zeros(4)
        mine = np.zeros(2 if RANK else 4)
        error, seconds = outcome(lambda: (shaped.Neighbor_alltoall(mine, fine), shaped.Barrier()))
        assert isinstance(error, HanError)
        assert seconds < 10


@pytest.mark.mpi(ranks=[4], timeout=120, unit="s")
@pytest.mark.parametrize("count", [10, 100_000])
@pytest.mark.parametrize("wrong", range(4))
def test_sizes_that_differ_where_ranks_share_blocks(mpi_ranks, wrong, count):
    """A rank expects more of each of the others, or less; some of it is handed on to it."""
    for more in (1, -1):
        with opened(new_comm(TWO_BY_TWO, 3)) as comm, opened(full(comm)) as shaped:
            shaped.Neighbor_allgather(np.full(count, RANK), np.empty(3 * count, int))
            WORLD.Barrier()  # so that no rank hears of the next call's error in this one
            send, most = np.zeros(count, int), 3 * (count + more if wrong == RANK else count)
            result = np.full(most + 8, -1)
            buffers = send, result[:most]
            error, _ = outcome(partial(shaped.Neighbor_allgather, *buffers))
            late, seconds = outcome(shaped.Barrier)
            assert isinstance(error or late, HanError)
            assert seconds < 10
            assert result[most:].tolist() == [-1] * 8


@pytest.mark.mpi(ranks=[4], timeout=120, unit="s")
def test_explain_tells_what_neighbours_share(mpi_ranks):
    with opened(new_comm(TWO_BY_TWO)) as comm, opened(full(comm)) as shaped:
        shaped.Barrier()  # sets the communicator up
        with pytest.raises(HanError, match="first call"):
            shaped.explain("neighbor_alltoall", 8)
        shaped.Neighbor_alltoall(np.zeros(3), np.zeros(3))
        parcels = shaped.explain("neighbor_alltoall", "1KiB")
        handed = shaped.explain("neighbor_allgather", "1MiB")
        assert parcels.decision.choice.composition == "lanes"
        assert "stages    sx, ix, ss" in str(handed)
        assert "alltoallv of blocks of up to 1MiB (12 edges)" in str(handed)
        assert shaped.explain("allreduce", 8).stages
        with opened(grid(False, True)(comm)) as library:
            library.Neighbor_alltoall(np.zeros(4), np.zeros(4))  # does not set it up
            with pytest.raises(ArgumentError, match="the MPI library's"):
                library.explain("neighbor_alltoall", 8)
            with pytest.raises(HanError, match="not set up yet"):
                library.explain("allreduce", 8)


@pytest.mark.mpi(ranks=[4], timeout=120, unit="s")
def test_a_rank_that_makes_no_first_call_is_named(mpi_ranks):
    """The ranks of a distributed graph tell each other their neighbours in the first call."""
    with opened(new_comm(TWO_BY_TWO, 2)) as comm:
        shaped = full(comm)
        shaped.Barrier()
        if RANK != 2:
            error, seconds = outcome(lambda: shaped.Neighbor_allgather(np.zeros(1), np.zeros(3)))
            assert isinstance(error, HanError)
            assert "neighbours" in str(error)
            assert seconds < 10
        WORLD.Barrier()


@pytest.mark.mpi(ranks=[4], timeout=120, unit="s")
def test_a_first_nonblocking_call_waits_for_nobody(mpi_ranks):
    """A rank may make it only after a message that another one sends behind its own."""
    with opened(new_comm(TWO_BY_TWO, 5)) as comm, opened(full(comm)) as shaped:
        shaped.Barrier()  # sets the communicator up
        for _ in range(2):
            if RANK == 1:
                WORLD.recv(source=0)
            result = np.full(3, -1.0)
            request = shaped.Ineighbor_allgather(np.full(1, float(RANK)), result)
            if RANK == 0:
                WORLD.send(None, 1)
            request.Wait()
            assert result.tolist() == [rank for rank in range(SIZE) if rank != RANK]
            shaped.Neighbor_allgather(np.full(1, float(RANK)), result)  # the ranks tell each other


@pytest.mark.mpi(ranks=[4], timeout=120, unit="s")
def test_a_rank_may_take_another_handle(mpi_ranks):
    """The ranks have told each other their neighbours, which a handle of one rank finds."""
    with opened(new_comm(TWO_BY_TWO, 5)) as comm, opened(full(comm)) as shaped:
        shaped.Neighbor_allgather(np.full(1, float(RANK)), np.zeros(3))
        handle = han.Distgraphcomm.f2py(shaped.py2f()) if RANK == 2 else shaped
        result = np.zeros(3)
        handle.Neighbor_allgather(np.full(1, float(RANK)), result)
        assert result.tolist() == [rank for rank in range(SIZE) if rank != RANK]
