"""Collectives of Python objects: the results of mpi4py, of every size, and what bad input gets."""

import contextlib
import pickle
import signal
import time
from collections.abc import Callable
from functools import partial
from unittest.mock import Mock

import numpy as np
import pytest
from _support import (
    APART,
    FLAT,
    TWO_BY_TWO,
    TWO_LEVELS,
    impatient,
    new_comm,
    opened,
    run_in_threads,
    tiny_memory,
)
from mpi4py import MPI

import han
from han.object_moves import limits_of
from han.runtime.eager import BLOCK, EAGER_ROOM
from han.runtime.measured import BETWEEN_NODES, IN_NODE, MOST_LEFT

WORLD = MPI.COMM_WORLD
on_ranks = pytest.mark.mpi(ranks=[1, 2, 3, 5], timeout=60, unit="s")
on_three = pytest.mark.mpi(ranks=3, timeout=60, unit="s")
on_four = pytest.mark.mpi(ranks=4, timeout=60, unit="s")
HEAD = len(MPI.pickle.dumps(b"")) + 1
EAGER_HEAD = BLOCK - EAGER_ROOM


class Same:
    """An object that pickle cannot write, or not read."""

    def __init__(self, how: str) -> None:
        self.how = how

    def __reduce__(self) -> object:
        if self.how == "write":
            raise TypeError("it cannot be written")
        return _read, (self.how,)


def _read(how: str) -> object:
    raise ValueError("it cannot be read") if how == "read" else StopIteration


class Shown:
    """An object whose sum tells the rank that made it."""

    def __add__(self, other: object) -> object:
        return Told()


class Told:
    def __add__(self, other: object) -> object:
        return f"{WORLD.rank}"


def objects(rank: int) -> list[object]:
    """Return objects of a rank: small ones, large ones, those at the edge, of different sizes."""
    edge = [b"x" * (EAGER_ROOM - HEAD + k + rank % 2) for k in (-2, -1, 0, 1, 2)]
    for most in (IN_NODE.gathered, BETWEEN_NODES.gathered):
        edge += [b"x" * (most - EAGER_HEAD - HEAD + k + rank % 2) for k in (-4, -3, -2, -1, 0)]
    return [
        *(rank, 2.5 * rank, None, "x" * rank, (rank, "a"), {rank: [rank] * rank}, b"", *edge),
        np.float32(rank), np.zeros((2, 2), order="F") + rank, np.arange(40 * rank),
        distinct(3000, rank), bytes(distinct(10_000 * (rank == 1), 1)),
        distinct(3000, rank).tobytes(), distinct(3000 + 100 * rank, rank).tobytes(),
    ]  # fmt: skip


def distinct(count: int, rank: int) -> np.ndarray:
    """Return numbers of which no part is like another one, or like that of another rank."""
    return np.random.default_rng(rank).random(count)


def of_both(comm: han.Comm, name: str, *arguments: object) -> None:
    wanted, got = getattr(WORLD, name)(*arguments), getattr(comm, name)(*arguments)
    if isinstance(wanted, set):  # the order of its elements is open
        assert got == wanted, (name, arguments)
    else:
        assert written(got) == written(wanted), (name, arguments)


def written(got: object) -> list[bytes]:
    """Return an object, or each of a list, pickled: arrays may share the object of their type."""
    return [pickle.dumps(item) for item in (got if isinstance(got, list) else [got])]


@on_ranks
def test_objects_arrive_as_with_mpi4py(mpi_ranks):
    rank, size = WORLD.rank, WORLD.size
    for levels in (FLAT, TWO_BY_TWO):
        with opened(new_comm(levels)) as comm:
            for obj in objects(rank):
                of_both(comm, "allgather", obj)
                of_both(comm, "alltoall", [(obj, k) if k % 2 else rank for k in range(size)])
                for root in range(size):
                    of_both(comm, "bcast", obj, root)
                    of_both(comm, "gather", obj, root)
                    items = [(obj, k) for k in range(size)] if rank == root else None
                    of_both(comm, "scatter", items, root)
            of_both(comm, "scatter", None)
            of_both(comm, "alltoall", None)


OPERANDS = [
    (lambda rank: rank + 1, [MPI.SUM, MPI.PROD, MPI.MAX, MPI.MIN, MPI.BOR, MPI.LAND]),
    (lambda rank: 0.1 * (rank + 1), [MPI.SUM, MPI.MAX]),
    (lambda rank: np.float32(0.1 * rank), [MPI.SUM]),
    (lambda rank: rank != 1, [MPI.LAND, MPI.LOR, MPI.LXOR]),
    (lambda rank: (rank % 2, rank), [MPI.MAXLOC, MPI.MINLOC]),
    (lambda rank: str(rank), [MPI.SUM, lambda a, b: f"({a} {b})"]),
    (lambda rank: [rank], [MPI.SUM]),
    (lambda rank: {rank % 3}, [MPI.BOR, lambda a, b: sorted({*a, *b})]),
    (lambda rank: {rank: 1}, [lambda a, b: {**a, **b}]),
    (lambda rank: distinct(1000, rank), [MPI.SUM, MPI.PROD, lambda a, b: a - 2 * b]),
    (lambda rank: "ab" * 200_000, [MPI.SUM]),
]


@on_ranks
@pytest.mark.parametrize("levels", [FLAT, TWO_BY_TWO], ids=["one", "pairs"])
def test_objects_are_combined_in_the_order_of_mpi4py(mpi_ranks, levels):
    with opened(new_comm(levels)) as comm:
        for operand, ops in OPERANDS:
            for op in ops:
                for name in ("allreduce", "scan", "exscan"):
                    of_both(comm, name, operand(WORLD.rank), op)
                for root in range(WORLD.size):
                    of_both(comm, "reduce", operand(WORLD.rank), op, root)
        assert len(operand(0)) > IN_NODE.to_all // 3


@on_ranks
def test_some_objects_are_large(mpi_ranks):
    """On the root alone, elsewhere alone, on all ranks; a few bytes more than fit, or many."""
    rank, size = WORLD.rank, WORLD.size
    ops = [MPI.SUM, lambda a, b: f"({a}, {b})"]
    with opened(new_comm(TWO_BY_TWO)) as nodes, opened(new_comm()) as comm:
        of_both(nodes, "gather", "a" * 10_000 * (rank == 1))
        for count in (EAGER_ROOM, 10_000, IN_NODE.to_all):
            for who in ({0}, {1}, {size - 1}, {1, 2}, {*range(size)}):
                text = chr(97 + rank) * (count if rank in who else 3)
                for root in range(size):
                    of_both(comm, "gather", text, root)
                    for op in ops:
                        of_both(comm, "reduce", text, op, root)


@on_ranks
@pytest.mark.parametrize("config", [TWO_BY_TWO, FLAT], ids=["nodes", "one node"])
def test_objects_that_fit_take_one_step_to_the_root(mpi_ranks, config):
    """Those of a reduce that the root is not asked about fit too."""
    with opened(new_comm(config)) as comm:
        comm.gather(None)
        if comm.size == 1:
            return
        limits = limits_of(comm._han)
        one_node = comm._han.parts.topology.nodes == 1
        assert limits == (IN_NODE if one_node else BETWEEN_NODES)
        assert limits.asked >= limits.gathered - EAGER_HEAD
        before = comm._han.parts.engines.own.issued
        for count in (1, 1000, limits.gathered - 300):
            of_both(comm, "gather", distinct(count, comm.rank).tobytes()[: count + comm.rank])
        assert comm._han.parts.engines.own.issued == before + 3


@on_three
def test_a_gather_of_objects_and_one_of_blocks_are_told_apart(mpi_ranks):
    with opened(new_comm(APART)) as comm:
        comm.gather(None)
        every = [np.zeros(300), [100] * 3, MPI.DOUBLE] if comm.rank == 0 else None
        if comm.rank:
            comm.Gatherv(np.zeros(100), every)
            return
        with pytest.raises(han.MismatchError, match=r"a call of bytes"):
            comm.gather("a")


@on_three
def test_ranks_that_only_send_do_not_wait(mpi_ranks):
    with opened(new_comm()) as comm:
        for call in (lambda: comm.gather(comm.rank, 0), lambda: comm.reduce(comm.rank, MPI.SUM, 0)):
            if comm.rank:
                assert call() is None
                WORLD.send("done", 0, tag=7)
            else:
                assert [WORLD.recv(source=k, tag=7) for k in (1, 2)] == ["done"] * 2
                assert call() in ([0, 1, 2], 3)


@impatient
@on_three
def test_operations_and_objects_that_differ_between_ranks_give_one_result(mpi_ranks):
    rank = WORLD.rank
    with opened(new_comm()) as comm:
        for big in (1, 200):
            assert comm.allreduce([0] * big, lambda a, b: [rank]) == [0]
            mixed = MPI.SUM if rank else lambda a, b: a + b
            assert comm.allreduce([rank] * big, mixed) == [0] * big + [1] * big + [2] * big
            assert comm.bcast("next") == "next"
        kinds = WORLD.allgather(raised(lambda: comm.allreduce({1} if rank == 1 else 1))[0])
        assert kinds == ["TypeError", "PeerError", "PeerError"]
    with opened(new_comm()) as comm:
        assert comm.allreduce(Shown(), MPI.SUM) == "0"
        assert comm.allgather(rank) == [0, 1, 2]


@on_three
def test_results_are_copies(mpi_ranks):
    with opened(new_comm()) as comm:
        mine = [[WORLD.rank]]
        for made in (comm.bcast(mine, WORLD.rank * 0), comm.allgather(mine)[comm.rank]):
            assert made is not mine
        for got in (comm.allreduce(mine, lambda a, b: a), comm.scatter([mine] * 3)):
            got[0].append(5)
        assert mine == [[WORLD.rank]]


@on_four
def test_between_nodes_large_objects_differ_in_size(mpi_ranks):
    with opened(new_comm(TWO_LEVELS)) as comm:
        texts = ["a" * (9000 if (k + WORLD.rank) % 3 else 9) for k in range(WORLD.size)]
        of_both(comm, "scatter", texts if WORLD.rank == 1 else None, 1)
        of_both(comm, "alltoall", texts)
        of_both(comm, "allgather", texts[0])


@on_three
def test_objects_of_a_child_before_and_after_it_is_set_up(mpi_ranks):
    with opened(new_comm()) as comm:
        for colors in (1, 2):
            child = comm.Split(WORLD.rank % colors, WORLD.rank)
            members = [*range(WORLD.rank % colors, 3, colors)]
            for _ in range(2):
                assert child.allgather(WORLD.rank) == members
                assert child.allreduce(WORLD.rank) == sum(members)
                child.Barrier()
            child.Free()


def raised(call: Callable[[], object]) -> tuple[str, str]:
    """Return the name and the text of the error that a call raises."""
    try:
        call()
    except Exception as error:
        return type(error).__name__, str(error)
    return "", ""


@on_three
def test_a_child_that_makes_many_calls_of_objects_is_set_up(mpi_ranks):
    with opened(new_comm()) as comm:
        for turn in range(3):
            child = comm.Split(0, -WORLD.rank)
            handles = [child, child]
            if turn == 1 and WORLD.rank == 1:
                handles[1] = han.Comm.fromhandle(child.handle)
            for k in range(MOST_LEFT):
                assert handles[k % 2].allgather(k) == [k] * 3
            assert "not used yet" in repr(child)
            assert child.allgather(2 - child.rank) == [2, 1, 0]
            assert "not used yet" not in repr(child)
            child.Free()


# ---- what bad input gets ------------------------------------------------------------------------


@impatient
@pytest.mark.any_library
@on_three
def test_an_object_that_cannot_be_written_is_told_to_all(mpi_ranks):
    rank = WORLD.rank
    calls = {
        "allgather": lambda comm, obj: comm.allgather(obj),
        "bcast": lambda comm, obj: comm.bcast(obj, 1),
        "scatter": lambda comm, obj: comm.scatter([1, obj, 2] if rank == 1 else None, 1),
    }
    for name, call in calls.items():
        with opened(new_comm()) as comm:
            obj = Same("write") if rank == 1 else 5
            for _ in range(2):
                kind, text = raised(lambda call=call, comm=comm, obj=obj: call(comm, obj))
                if rank == 1:
                    assert (kind, text) == ("TypeError", "it cannot be written"), name
                else:
                    assert kind in ("PeerError", "RevokedError"), (name, kind, text)
                    assert "rank 1 raised TypeError: it cannot be written" in text, name


@on_three
def test_an_object_that_cannot_be_read_leaves_the_communicator_usable(mpi_ranks):
    with opened(new_comm()) as comm:
        for big in (1, 1000):
            kinds = [
                raised(lambda big=big: comm.bcast([Same("read")] * big))[0],
                raised(lambda big=big: comm.allgather([Same("read")] * big))[0],
            ]
            assert kinds == ["ValueError"] * 2
            assert comm.allgather(WORLD.rank) == [0, 1, 2]


@on_three
def test_what_the_root_alone_cannot_use_leaves_the_communicator_usable(mpi_ranks):
    """Ranks that send large objects are not left waiting."""

    def op(a: object, b: object) -> object:
        raise ZeroDivisionError("no")

    with opened(new_comm()) as comm:
        for big in (1, 1000):
            for root in range(3):
                kinds = [
                    raised(lambda big=big, root=root: comm.gather([Same("read")] * big, root))[0],
                    raised(lambda big=big, root=root: comm.reduce([1] * big, op, root))[0],
                ]
                errors = ["ValueError", "ZeroDivisionError"]
                assert kinds == (errors if comm.rank == root else ["", ""])
                assert comm.allgather(comm.rank) == [0, 1, 2]


@impatient
@pytest.mark.any_library
@on_four
def test_an_operation_on_many_bytes_that_raises_leaves_no_rank_waiting(mpi_ranks):
    """They are combined along a tree, on several ranks."""

    def op(a: str, b: str) -> str:
        if b[0] == wrong:
            raise ZeroDivisionError("no")
        return a + b

    text = "abcd"[WORLD.rank] * IN_NODE.to_all
    for wrong in "bcd":
        for root in (0, 1, 3):
            for call in (partial(han.Comm.reduce, root=root), han.Comm.allreduce, han.Comm.scan):
                comm = new_comm()
                kinds = WORLD.allgather(raised(partial(call, comm, text, op))[0])
                assert "ZeroDivisionError" in kinds, (wrong, root, kinds)
                assert {*kinds} <= {"ZeroDivisionError", "PeerError", "RevokedError", ""}
                assert kinds[root] or root != 1 or call is han.Comm.scan  # it waits for rank 0
                with contextlib.suppress(han.HanError):
                    comm.Free()


@on_three
def test_an_object_whose_reading_raises_stop_iteration(mpi_ranks):
    """A loop that it ends would return fewer objects, or wait for none of the later ones."""
    with opened(new_comm()) as comm:
        for big in (1, 1_000_000):
            obj = [Same("stop"), "x" * big] if comm.rank == 1 else "y" * 5 * big
            kinds = [
                raised(partial(comm.gather, obj, 0))[0],
                raised(partial(comm.reduce, obj, MPI.SUM, 0))[0] if big == 1 else "StopIteration",
            ]
            assert kinds == ["StopIteration"] * 2 or (comm.rank and not kinds[0]), kinds
            assert raised(partial(comm.allgather, obj))[0] == "StopIteration"
            assert comm.allgather(comm.rank) == [0, 1, 2]


@on_three
@pytest.mark.parametrize("name", ["gather", "reduce"])
def test_a_root_that_cannot_write_its_object_gets_no_old_one_later(mpi_ranks, name):
    """Ranks whose messages are under way need not wait: they hear of it in a later call.

    The root finds in a later call that others have made one in which it raised.
    """
    with opened(new_comm()) as comm:
        seen = []
        for k in range(50):
            obj = Same("write") if comm.rank == 1 and not k else [k] * 1000
            kind, text = raised(lambda obj=obj: seen.append(getattr(comm, name)(obj, root=1)))
            if comm.rank == 1 and not k:
                assert (kind, text) == ("TypeError", "it cannot be written")
            elif kind:
                told = "rank 1 raised TypeError: it cannot be written" in text
                assert told or (comm.rank == 1 and kind == "MismatchError"), (kind, text)
                break
            elif comm.rank == 1:
                want = [[k] * 1000] * 3 if name == "gather" else [k] * 3000
                assert seen[-1] == want
        assert kind or comm.rank == 1 or name == "gather"
        if not kind:  # ranks whose messages were under way hear of it when they wait
            kind, text = raised(comm.Barrier)
            assert kind in ("PeerError", "RevokedError"), (kind, text)


@impatient
@on_three
def test_an_operation_that_raises_is_told_to_all(mpi_ranks):
    def op(a: object, b: object) -> object:
        raise ZeroDivisionError("no")

    with opened(new_comm()) as comm:
        kind, text = raised(lambda: comm.allreduce([1], op))
        if WORLD.rank:
            assert kind == "PeerError"
            assert "ZeroDivisionError: no" in text
        else:
            assert kind == "ZeroDivisionError"
    with opened(new_comm()) as comm:
        assert raised(lambda: comm.allreduce("a", MPI.PROD))[0] == "TypeError"
        assert comm.allreduce(1) == 3


@on_three
def test_wrong_arguments(mpi_ranks):
    cases = [
        (lambda comm: comm.bcast(1, 3), MPI.Exception(MPI.ERR_ROOT).Get_error_string()),
        (lambda comm: comm.gather(1, "a"), "root: 'a' is not a rank"),
        (lambda comm: comm.reduce(1, root=-1), MPI.Exception(MPI.ERR_ROOT).Get_error_string()),
        (lambda comm: comm.alltoall([1]), "1 objects for 3 ranks; pass one for each"),
    ]
    for call, wanted in cases:
        with opened(new_comm()) as comm:
            kind, text = raised(lambda call=call, comm=comm: call(comm))
            assert wanted in text, (kind, text)
            assert kind.startswith(("Argument", "Exception", "Peer")), kind


@on_three
def test_different_calls_are_told_on_all_ranks(mpi_ranks):
    rank = WORLD.rank
    with opened(new_comm()) as comm:
        kind, text = raised(lambda: comm.allgather(1) if rank else comm.allreduce(1))
        assert kind == "MismatchError"
        assert "rank 0 is in allreduce of objects; rank 1 is in allgather of objects" in text
        kind, text = raised(lambda: comm.Split() if rank else comm.allgather(1))
        assert kind == "MismatchError"
        assert "the making of a communicator" in text
    with opened(new_comm(timeout=5.0)) as comm:

        def gather_twice() -> None:
            comm.gather(1, int(rank == 2))  # a rank that need not wait goes on
            comm.allgather(1)

        kind, text = raised(gather_twice)
        assert kind in ("MismatchError", "PeerError"), (kind, text)
        assert "root" in text
    with opened(new_comm(timeout=5.0)) as comm:
        kind, text = raised(lambda: comm.bcast(1) if rank else comm.allgather(1))
        assert kind in ("MismatchError", "PeerError", "RevokedError"), (kind, text)
        assert "of objects" in text


@on_three
def test_a_rank_that_does_not_come_is_named_with_the_call(mpi_ranks):
    with opened(new_comm(timeout=0.5)) as comm:
        comm.allgather(1)
        if WORLD.rank < 2:
            kind, text = raised(lambda: comm.allreduce(1))
            assert kind in ("CollectiveTimeoutError", "PeerError")
            assert "allreduce of objects: allgather of 256B" in text
        else:
            time.sleep(1.5)
            with contextlib.suppress(han.HanError):
                comm.allreduce(1)


# ---- threads, statistics ------------------------------------------------------------------------


@on_three
def test_a_signal_handler_may_call_while_a_call_waits(mpi_ranks):
    """All ranks call in their handlers while rank 0 lets the outer call wait."""
    with opened(new_comm()) as comm:
        heard = []
        before = signal.signal(
            signal.SIGUSR1, lambda *_: heard.append(comm.allgather(f"h{comm.rank}"))
        )
        try:
            comm.allgather(0)
            for turn in range(3):
                signal.raise_signal(signal.SIGUSR1)
                assert comm.allgather((turn, WORLD.rank)) == [(turn, r) for r in range(3)]
        finally:
            signal.signal(signal.SIGUSR1, before)
        assert heard == [["h0", "h1", "h2"]] * 3


@on_three
def test_a_signal_handler_may_call_before_large_objects_come(mpi_ranks):
    with opened(new_comm()) as comm:
        comm.allgather(0)
        calls, heard = comm._han.parts.engines.own, []
        before = calls.issued

        def handler(*_: object) -> None:
            if calls.issued == before:  # the call has not begun
                signal.setitimer(signal.ITIMER_REAL, 0.05)
                return
            for rank in (1, 2):
                WORLD.send("go", rank, tag=9)
            heard.append(comm.allgather(comm.rank))

        big = "x" * 3000
        if comm.rank:
            WORLD.recv(source=0, tag=9)
            assert comm.gather(big, root=0) is None
            assert comm.allgather(comm.rank) == [0, 1, 2]
            return
        old = signal.signal(signal.SIGALRM, handler)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            got = comm.gather(big, root=0)
        finally:
            signal.signal(signal.SIGALRM, old)
        assert got == [big] * 3
        assert heard == [[0, 1, 2]]


@on_three
def test_a_child_of_idup_counts_no_calls(mpi_ranks):
    """Nothing tells when MPI frees it, and its handle may be that of a later child."""
    with opened(new_comm()) as comm:
        child, request = comm.Idup()
        request.Wait()
        for _ in range(2 * MOST_LEFT):
            child.allgather(1)
        assert "not used yet" in repr(child)
        child.Free()
        later = comm.Split(0)
        for _ in range(MOST_LEFT):
            later.allgather(1)
        assert "not used yet" in repr(later)
        later.Free()


@on_three
def test_the_programs_own_pickle_functions(mpi_ranks):
    try:
        MPI.pickle.__init__(
            lambda obj: repr(obj).encode(), lambda data: f"<{bytes(data).decode()}>"
        )
        with opened(new_comm()) as comm:
            for big in (1, 200):
                text = "a" * big
                assert comm.allgather(text) == [f"<{text!r}>"] * 3
            child = comm.Split(0, -WORLD.rank)
            assert child.Get_rank() == 2 - WORLD.rank
            child.Free()
    finally:
        MPI.pickle.__init__()


@impatient
@pytest.mark.any_library
@on_three
def test_no_memory_for_a_large_object_is_told_to_all(mpi_ranks, monkeypatch):
    rank, big = WORLD.rank, distinct(5000, 0)
    calls = {
        "bcast": lambda comm: comm.bcast(big),
        "allgather": lambda comm: comm.allgather(big),
        "gather": lambda comm: comm.gather(big, 1),
        "gather of different sizes": lambda comm: comm.gather(bytes(10**6 * (2 * rank + 1)), 1),
        "scatter": lambda comm: comm.scatter([big] * 3),
        "alltoall": lambda comm: comm.alltoall([big] * 3),
        "alltoall of different sizes": lambda comm: comm.alltoall([bytes(5000 * rank)] * 3),
    }
    real = np.empty
    for name, call in calls.items():
        comm = new_comm(timeout=10.0)
        call(comm)
        if rank == 1:
            monkeypatch.setattr(np, "empty", Mock(side_effect=MemoryError("there is none")))
        kind, text = raised(lambda call=call, comm=comm: call(comm))
        monkeypatch.setattr(np, "empty", real)
        if rank == 1:
            assert kind == "MemoryError", name
        elif kind:  # a rank need not wait for rank 1
            assert "rank 1 raised MemoryError" in text, (name, kind, text)
        WORLD.Barrier()
        with contextlib.suppress(han.HanError):
            comm.Free()


@on_three
def test_a_child_without_room_to_be_set_up_leaves_its_objects_to_mpi4py(mpi_ranks, monkeypatch):
    with tiny_memory(8192) as place:
        monkeypatch.setenv("HAN_SHM_DIR", str(place))
        comm = new_comm(FLAT, memory="512KiB")
        comm._han.parts.shared.reach = None  # children make files of their own
        child = comm.Split(0)
        if not WORLD.rank:
            with contextlib.suppress(OSError), (place / "others").open("wb", 0) as full:
                while True:
                    full.write(bytes(1 << 12))
        WORLD.Barrier()
        for k in range(3 * MOST_LEFT):
            assert child.allgather(k) == [k] * 3
        assert "not used yet" in repr(child)
        with pytest.raises(han.SharedMemoryError):
            child.Barrier()
        child.Free()
        assert comm.allreduce(1) == 3
        comm.Free()


@on_three
def test_threads_call_on_their_communicators(mpi_ranks):
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        pytest.skip("the MPI library does not allow several threads to call it")
    comms, wrong = [new_comm() for _ in range(3)], []

    def work(k: int) -> None:
        for turn in range(200):
            got = comms[k].allgather((k, turn, WORLD.rank))
            if got != [(k, turn, r) for r in range(3)]:
                wrong.append(got)

    run_in_threads(work, *((k,) for k in range(3)))
    for comm in comms:
        comm.Free()
    assert not wrong


@on_four
def test_statistics_say_who_served_objects(mpi_ranks):
    from han.statistics import Counting

    counting = Counting()
    with opened(new_comm()) as whole, opened(new_comm(TWO_LEVELS)) as parted:
        counting.start()
        try:
            for comm in (whole, parted):
                comm.bcast(1)
                comm.allreduce(WORLD.rank)
            parted.scan(1)
            whole.gather(b"x" * 2_000_000 * (WORLD.rank == 2))
            whole.reduce(b"x" * 2_000_000)
        finally:
            counting.stop()
    found = {(key.call, key.why): counts.calls for key, counts in counting.record.items()}
    assert found == {
        ("bcast", ""): 2, ("allreduce", ""): 2, ("scan", ""): 1, ("gather", ""): 1,
        ("reduce", ""): 1,
    }  # fmt: skip
