"""Collectives on shared arrays: results, agreement of all ranks, and reading arrays in place."""

import gc
from unittest import mock

import numpy as np
import pytest
from _support import (
    FLAT,
    LEVELS,
    Reference,
    comm_on,
    data_of,
    error_of,
    in_python,
    mpi_op,
    new_comm,
    on_both,
    on_two,
    opened,
    run,
)
from machines import topology_of
from mpi4py import MPI

import han
from han.cli import info as _cli_info
from han.memory import arena
from han.model.program import PEER

usual = on_two
COUNTS = (1, 1000, 40_001)  # less than a line, shares of less than a block, several pieces
KINDS = (("float64", "sum"), ("int32", "max"), ("uint8", "bxor"))
SOCKETS = topology_of([[0, 0, 1], [0, 0, 0]], 1)  # two sockets of one node


def solo(names, fused, **more):
    """Return rules for solo on all levels; `more` are parameters, `fused` is the allreduce."""
    level = {"submodule": "solo", "algorithm": "pull", "chunk": "32KiB", **more}
    pull = dict.fromkeys(names, level)
    own = {key: value for key, value in level.items() if key != "tree"}  # pull alone reads it
    split = {**pull, names[-1]: {**own, "algorithm": fused}}
    return {
        "rules": [
            {"when": {"collective": "allreduce"}, "use": {"levels": split}},
            {"use": {"levels": pull}},
        ]
    }


def newest(comm):
    """Return the native plan that was made last."""
    living = comm._han.parts.maker.living
    return living[max(living)]


def reads_peers(comm):
    """Return whether the newest plan reads mapped buffers of peers."""
    return bool((newest(comm).program.code["base"] >= PEER).any())


def by_solo(comm):
    """Return whether the newest plan uses solo on all levels."""
    choice = comm._han.parts.planner.rules.decide(newest(comm).signature, blocking=False).choice
    return {level.submodule for level in choice.levels} == {"solo"}


def array(comm, like, shared=True):
    made = comm.empty(like.size, like.dtype) if shared else np.empty_like(like)
    made[:] = like
    return made


def runs_mapped(comm, request):
    """Run a request; return whether it reads mapped buffers where ranks share memory."""
    before = request._engine.alternatives
    run(request, 2)
    if comm._han.parts.topology.whole is None:
        return newest(comm).signature.mapped
    return request._engine.alternatives > before


def reduction(comm, reference, dtype, op, count, root, in_place):
    """Run a persistent reduction to `root`, or (None) to all, twice, and check its results."""
    gets = root is None or root == comm.rank
    data, wanted = data_of(comm.rank, dtype, count, op), reference(dtype, op, count)
    send, recv = array(comm, data), array(comm, np.zeros_like(data))
    operand = MPI.IN_PLACE if in_place and gets else send
    if root is None:
        request = comm.Allreduce_init(operand, recv, mpi_op(op))
    else:
        request = comm.Reduce_init(operand, recv if gets else None, mpi_op(op), root)
    partial = (
        root is not None and comm._han.parts.topology.depth > 1
    )  # partial results are not in mapped memory
    before = request._engine.alternatives
    for turn in range(2):
        recv[:] = data if in_place else turn
        run(request)
        if gets:
            np.testing.assert_allclose(recv, wanted, rtol=1e-14 if op == "sum" else 0)
        np.testing.assert_array_equal(send, data)
    assert request._engine.alternatives == before + 2 or partial
    request.Free()


def broadcast(comm, dtype, count, root):
    wanted = data_of(root, dtype, count)
    buffer = array(comm, wanted if comm.rank == root else np.zeros_like(wanted))
    request = comm.Bcast_init(buffer, root)
    before = request._engine.alternatives
    for _ in range(2):
        run(request)
        np.testing.assert_array_equal(buffer, wanted)
        if comm.rank != root:
            buffer[:] = 0
    assert request._engine.alternatives == before + 2
    request.Free()


def conform(comm):
    reference, last = Reference(comm), comm.size - 1
    for turn, count in enumerate(COUNTS):
        dtype, op = KINDS[turn]
        roots = (0, last) if turn % 2 else (last, 0)
        for in_place, root in zip((False, True), roots, strict=True):
            reduction(comm, reference, dtype, op, count, None, in_place)
            reduction(comm, reference, dtype, op, count, root, in_place)
        broadcast(comm, dtype, count, roots[0])


@pytest.mark.mpi(ranks=[2, 3], timeout=60, unit="s")
def test_results_are_right_where_nothing_but_mapped_memory_can_be_read(mpi_ranks):
    size = MPI.COMM_WORLD.size
    flat = topology_of([[0] * size], 0)
    cases = [(flat, "split", {})]
    if size == 3:
        cases += [(SOCKETS, "split", {}), (SOCKETS, "pull", {"algorithm": "spread"})]
        cases += [(flat, "split", {"tree": "chain"}), (flat, "split", {"algorithm": "spread"})]
    with mock.patch("han.memory.shared.refusal", return_value="not tried"):
        for topology, fused, more in cases:
            use = solo(topology.names, fused, **more)
            with opened(comm_on(MPI.COMM_WORLD, topology, **use)) as comm:
                conform(comm)


@on_both
def test_large_arrays_are_read_where_they_are_if_all_ranks_are_such(mpi_ranks):
    """The built-in choice reads shared arrays in place, unless one rank's array is ordinary."""
    count = 40_000
    for levels in LEVELS:
        with opened(new_comm(levels)) as comm:
            for odd in (None, 0, comm.size - 1):
                send = array(comm, np.arange(count) + comm.rank, comm.rank != odd)
                recv = array(comm, np.zeros(count, int))
                for call in (
                    lambda: comm.Allreduce_init(send, recv),  # noqa: B023
                    lambda: comm.Reduce_init(send, recv),  # noqa: B023
                    lambda: comm.Bcast_init(send),  # noqa: B023
                ):
                    before = send.copy()
                    request = call()
                    mapped = runs_mapped(comm, request)
                    assert mapped == (odd is None)
                    if comm._han.parts.topology.whole is None:
                        some = comm.allreduce(reads_peers(comm), MPI.LOR)
                        near = comm.size == 4  # each of two ranks has its own node
                        assert some == (mapped and near)
                    request.Free()
                    if comm.rank == 0:
                        np.testing.assert_array_equal(send, before)
                np.testing.assert_array_equal(send, np.arange(count))
                if comm.rank == 0:
                    total = comm.size * np.arange(count) + sum(range(comm.size))
                    np.testing.assert_array_equal(recv, total)
            if levels is FLAT:
                blocks_are_read_where_they_are(comm, 20_000)


def blocks_are_read_where_they_are(comm, count):
    """Check calls that move blocks; one in place would overwrite data that peers read by solo."""
    size, rank = comm.Get_size(), comm.Get_rank()
    counts = [count - 3 * r for r in range(size)]
    begins, own = sum(counts[:rank]), counts[rank]
    data = np.arange(size * count)
    send, every = array(comm, data + 1000 * rank), array(comm, 0 * data)
    block, total = slice(rank * count, (rank + 1) * count), size * data + 1000 * sum(range(size))
    exchanged = np.concatenate([data[block] + 1000 * r for r in range(size)])
    joined = np.concatenate([data[: counts[r]] + 1000 * r for r in range(size)])
    one, over = array(comm, data[:count]), array(comm, send)
    all_counts, some = sum(counts), send[: sum(counts)]
    for call, result, wanted, reads in (
        (lambda: comm.Alltoall_init(send, every), every, exchanged, True),
        (lambda: comm.Alltoall_init(MPI.IN_PLACE, over), over, exchanged, False),
        (lambda: comm.Reduce_scatter_block_init(send, one), one, total[block], True),
        (lambda: comm.Reduce_scatter_init(some, one[:own], counts), one[:own],
         total[begins:][:own], True),
        (lambda: comm.Allgatherv_init(send[:own], [every[:all_counts], counts]),
         every[:all_counts], joined, True),
    ):  # fmt: skip
        request = call()
        before = request._engine.alternatives
        assert by_solo(comm) == reads
        assert reads_peers(comm) == reads
        result[:] = send[: result.size] if not reads else 0
        run(request)
        assert (request._engine.alternatives > before) == reads
        np.testing.assert_array_equal(result, wanted)
        request.Free()


def test_programs_as_they_are_and_arrays_that_outlive_the_communicator(mpi_ranks):
    comm = new_comm()
    with han.shared_arrays(comm):
        x = np.linspace(0, 1, 50_000) * (comm.rank + 1)
        y = np.zeros_like(x)
    wanted = np.linspace(0, 1, 50_000) * 3
    request = comm.Allreduce_init(x, y)
    assert reads_peers(comm)
    assert "solo split" in str(comm.explain("allreduce", x.nbytes, shared=True))
    ordinary, alternative = str(comm.explain("allreduce", x.nbytes)).split("  or, where all")
    assert "solo" not in ordinary
    assert "solo split" in alternative
    run(request, 2)
    np.testing.assert_allclose(y, wanted)
    for call in (comm.Allreduce, lambda *a: comm.Iallreduce(*a).Wait()):
        y[:] = 0  # see test_alternatives.py
        call(x, y)
        np.testing.assert_allclose(y, wanted)
    again = comm.full(100_000, comm.rank + 1)  # beside other calls, on arrays that are freed
    for k in range(5):
        other = comm.asarray(np.arange(20_000) * k)
        total = comm.zeros(20_000, int)
        run(comm.Allreduce_init(other, total), 2)
        np.testing.assert_array_equal(total, 2 * k * np.arange(20_000))
        run(comm.Allreduce_init(MPI.IN_PLACE, again), 2)
        del other, total
        gc.collect()
    assert (again == 3 * 2**9).all()
    run(request, 2)
    request.Free()
    comm.Free()
    assert (x == np.linspace(0, 1, 50_000) * (MPI.COMM_WORLD.rank + 1)).all()
    np.testing.assert_allclose(y, wanted)
    for call in (lambda: comm.empty(3), lambda: comm.asarray([1])):
        name, text, _ = error_of(call)
        assert (name, "COMM_NULL" in text) == ("RevokedError", True)


@pytest.mark.any_library
def test_results_that_no_cache_holds(mpi_ranks, comm):
    """Ranks write such results by streaming stores, which need a fence before the flag."""
    count = (68 << 20) // 8
    send, recv, both = comm.empty(count), comm.empty(count), comm.empty((2, count // 2))
    requests = [
        comm.Allreduce_init(send, recv), comm.Allgather_init(send[: count // 2], both),
        comm.Bcast_init(recv),
    ]  # fmt: skip
    for turn in range(2):
        send[:] = np.arange(count) * (comm.rank + 1) + turn
        run(requests[0])
        np.testing.assert_array_equal(recv, np.arange(count) * 3 + 2 * turn)
        run(requests[1])
        for rank, block in enumerate(both):
            np.testing.assert_array_equal(block, np.arange(count // 2) * (rank + 1) + turn)
        recv[:] = send
        run(requests[2])
        np.testing.assert_array_equal(recv, np.arange(count) + turn)
    for request in requests:
        request.Free()


def test_elements_that_no_cell_holds_go_another_way(mpi_ranks, comm):
    large, each = MPI.BYTE.Create_contiguous(8192).Commit(), 8192 * 8
    op = MPI.Op.Create(in_python(np.maximum, np.uint8), commute=True)
    send, recv = comm.full(2 * each, comm.rank, np.uint8), comm.zeros(each, np.uint8)
    request = comm.Reduce_scatter_block_init([send, large], [recv, large], op)
    run(request, 2)
    assert (recv == 1).all()
    request.Free()
    op.Free()
    large.Free()


def cannot_move(comm, send):
    """Check that an array of a request cannot be resized, and that its name may be rebound."""
    recv = comm.zeros(send.size)
    request = comm.Allreduce_init(send, recv)
    first = send.copy()
    with pytest.raises(ValueError, match="cannot resize"):
        send.resize(10 * send.size)
    send = np.full(7, -1.0)  # the request keeps the former array
    gc.collect()
    run(request, 2)
    np.testing.assert_array_equal(recv, comm.size * first)
    request.Free()


def test_an_array_that_a_request_holds_cannot_move(mpi_ranks, comm):
    cannot_move(comm, comm.full(50_000, 2.0))
    cannot_move(comm, np.full(50_000, 3.0))
    grown = bytearray(8 * 50_000)
    request = comm.Bcast_init(grown)
    with pytest.raises(BufferError):
        grown.extend(b"more")
    run(request, 2)
    request.Free()
    grown.extend(b"more")


@on_both
def test_a_rank_that_cannot_map_is_known_to_all(mpi_ranks):
    real = arena.Mapped

    def refused(place, writes=False):
        if MPI.COMM_WORLD.rank == 1:
            raise PermissionError(13, "Permission denied")
        return real(place, writes)

    unknown = mock.patch("han.memory.arena._known", {})
    with unknown, mock.patch("han.memory.arena.Mapped", refused), opened(new_comm()) as comm:
        send, recv = comm.full(40_000, 1), comm.zeros(40_000, int)
        request = comm.Allreduce_init(send, recv)
        assert not reads_peers(comm)
        run(request, 2)
        assert (recv == comm.size).all()
        request.Free()
        text = "no: rank 1 cannot map the shared arrays of rank 0: Permission denied"
        assert text in _cli_info.as_text(_cli_info.collect(comm))
    with opened(new_comm()) as comm:
        request = comm.Allreduce_init(send, recv)
        assert reads_peers(comm)
        run(request, 2)
        assert (recv == comm.size).all()
        request.Free()
        assert "shared arrays memfd" in _cli_info.as_text(_cli_info.collect(comm))
