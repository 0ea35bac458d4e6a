"""The rows of ``han bench --programs``: what a program does with a communicator, and its result.

Each row makes its own buffers, calls them on the communicator that it gets, of MPI or of han, and
shows its results. The calls of both sides are the same.
"""

from __future__ import annotations

import array
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from itertools import islice, permutations
from typing import Any

import numpy as np
from mpi4py import MPI

from han.comm import Comm
from han.measure.bench_calls import Array, Call, restart

COUNT = 4  # numbers of a small message
LONGER = 8192  # numbers of the 64 KiB of a persistent request
MANY = 64  # persistent requests that are alive at once
KINDS = 400  # calls that differ in size, type or operation
ORDERS = 12  # orders of the ranks, each of which makes another communicator
THREADS, TURNS = 4, 8  # threads that make communicators at the same time, and turns of each


def nothing() -> None:
    """Do nothing: a row without results to show or objects to free."""


@dataclass(frozen=True)
class Work:
    """A row on one communicator.

    `call` is what is timed, `steps` the number of calls or iterations in it. `results` are the
    buffers that it leaves, equal on both sides. `free` releases what the row made; collective.
    `kept` are other buffers, which requests of mpi4py do not keep alive.
    """

    call: Call
    results: Sequence[Any] = ()
    steps: int = 1
    free: Call = nothing
    kept: Sequence[Any] = ()


@dataclass(frozen=True)
class ProgramRow:
    """A row: its group, a short name, and how to make it; collective over the communicator."""

    group: str
    name: str
    make: Callable[[MPI.Intracomm], Work]


class Field(np.ndarray[Any, Any]):
    """A subclass of NumPy's array, as libraries of fields and units have."""


class Tensor:
    """Shows an array through DLPack only, as a tensor of a library for machine learning does."""

    def __init__(self, shown: Array) -> None:
        self.shown = shown

    def __dlpack__(self, **how: Any) -> Any:
        return self.shown.__dlpack__(**how)

    def __dlpack_device__(self) -> tuple[int, int]:
        device, number = self.shown.__dlpack_device__()
        return int(device), number


# ---- spellings ----------------------------------------------------------------------------------


def pair(comm: MPI.Intracomm, count: int = COUNT) -> tuple[Array, Array]:
    """Return an array to send, with other numbers on each rank, and one to receive."""
    return np.arange(1.0, count + 1) + comm.Get_rank(), np.zeros(count)


def _allreduce(spell: Callable[[Array], Any], comm: MPI.Intracomm) -> Work:
    send, recv = pair(comm)
    return Work(partial(comm.Allreduce, spell(send), spell(recv)), [recv])


def _bcast(spell: Callable[[Array], Any], comm: MPI.Intracomm) -> Work:
    send, _ = pair(comm)
    return Work(partial(comm.Bcast, spell(send), root=0), [send])


def _scalar(comm: MPI.Intracomm) -> Work:
    total = np.zeros(())
    return Work(partial(comm.Allreduce, np.float64(comm.Get_rank() + 0.5), total), [total])


def _torch(comm: MPI.Intracomm) -> Work:
    from_numpy = import_module("torch").from_numpy
    send, recv = pair(comm)
    return Work(partial(comm.Allreduce, from_numpy(send), from_numpy(recv)), [recv])


def _in_place(comm: MPI.Intracomm) -> Work:
    both, _ = pair(comm)
    return Work(partial(comm.Allreduce, MPI.IN_PLACE, both, MPI.MAX), [both])


def _of_arrays(comm: MPI.Intracomm) -> Work:
    send, recv = (array.array("d", each) for each in pair(comm))
    return Work(partial(comm.Allreduce, send, recv), [recv])


def _of_bytes(comm: MPI.Intracomm) -> Work:
    data = bytearray([comm.Get_rank()] * 8 * COUNT)
    return Work(partial(comm.Bcast, data, root=0), [data])


def _vector(comm: MPI.Intracomm) -> Work:
    column, matrix = MPI.DOUBLE.Create_vector(COUNT, 1, COUNT).Commit(), np.zeros((COUNT, COUNT))
    matrix += comm.Get_rank()
    return Work(partial(comm.Bcast, [matrix, 1, column], root=0), [matrix], free=column.Free)


def _pairs(comm: MPI.Intracomm) -> Work:
    sent = np.zeros(COUNT, np.dtype("f8, i4", align=True))
    sent["f0"], sent["f1"] = (np.arange(COUNT) - comm.Get_rank()) % COUNT, comm.Get_rank()
    recv = np.zeros(sent.nbytes, np.uint8)
    send = [sent, COUNT, MPI.DOUBLE_INT]
    return Work(partial(comm.Allreduce, send, [recv, COUNT, MPI.DOUBLE_INT], MPI.MINLOC), [recv])


def _apart(comm: MPI.Intracomm) -> Work:
    send, _ = pair(comm)
    size = comm.Get_size()
    recv = np.zeros(2 * COUNT * size)
    counts, places = [COUNT] * size, [2 * COUNT * r for r in range(size)]
    return Work(partial(comm.Allgatherv, send, [recv, (counts, places), MPI.DOUBLE]), [recv])


def _without_counts(comm: MPI.Intracomm) -> Work:
    send, recv = np.arange(float(COUNT * comm.Get_size())) + comm.Get_rank(), np.zeros(COUNT)
    return Work(partial(comm.Reduce_scatter, send, recv), [recv])


def _kinds(comm: MPI.Intracomm) -> Work:
    ops, types = (MPI.SUM, MPI.MAX, MPI.MIN, MPI.PROD), "hiqfd"
    arguments = [
        (np.ones(n, letter), np.zeros(n, letter), op)
        for n in range(COUNT, COUNT + KINDS // len(types) // len(ops) * 8, 8)
        for letter in types
        for op in ops
    ]

    def call() -> None:
        for one in arguments:
            comm.Allreduce(*one)

    return Work(call, [recv for _, recv, _ in arguments], len(arguments))


def _nonblocking(comm: MPI.Intracomm) -> Work:
    send, recv = pair(comm)
    start = partial(comm.Iallreduce, [send, COUNT, MPI.DOUBLE], [recv, COUNT, MPI.DOUBLE])
    return Work(lambda: start().Wait(), [recv])


# ---- communicators and requests -----------------------------------------------------------------


def _split(comm: MPI.Intracomm) -> Work:
    rank = comm.Get_rank()
    return Work(lambda: comm.Split(0, rank).Free())


def _dup(comm: MPI.Intracomm) -> Work:
    return Work(lambda: comm.Dup().Free())


def _split_and_call(comm: MPI.Intracomm) -> Work:
    rank, (send, recv) = comm.Get_rank(), pair(comm, 1)

    def call() -> None:
        part = comm.Split(0, rank)
        part.Allreduce(send, recv)
        part.Free()

    return Work(call, [recv])


def _orders_in_turn(comm: MPI.Intracomm) -> Work:
    rank, (send, recv) = comm.Get_rank(), pair(comm, 1)
    orders = [*islice(permutations(range(comm.Get_size())), ORDERS)]

    def call() -> None:
        for order in orders:
            part = comm.Split(0, order[rank])
            part.Allreduce(send, recv)
            part.Free()

    return Work(call, [recv], len(orders))


def _made_apart(comm: MPI.Intracomm) -> Work:
    (send, recv), plain = pair(comm, 1), MPI.Intracomm(comm)
    make: Callable[[MPI.Intracomm], MPI.Intracomm] = type(comm)
    if isinstance(comm, Comm):
        make = partial(Comm, config=comm._han.parts.config)

    def call() -> None:
        part = make(plain.Dup())
        part.Allreduce(send, recv)
        part.Free()

    return Work(call, [recv])


def _dup_and_init(comm: MPI.Intracomm) -> Work:
    send, recv = pair(comm, 1)

    def call() -> None:
        part = comm.Dup()
        request = part.Allreduce_init(send, recv)
        restart(request.Start, request.Wait)
        request.Free()
        part.Free()

    return Work(call, [recv])


def _in_threads(comm: MPI.Intracomm) -> Work:
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        raise NotImplementedError
    comms, pool = [comm.Dup() for _ in range(THREADS)], ThreadPoolExecutor(THREADS)
    works = [_split_and_call(one) for one in comms]

    def call() -> None:
        for each in [pool.submit(_turns, work.call) for work in works]:
            each.result()

    def free() -> None:
        pool.shutdown()
        for one in comms:
            one.Free()

    return Work(call, [result for work in works for result in work.results], TURNS, free)


def _turns(call: Call) -> None:
    for _ in range(TURNS):
        call()


def _from_init_to_free(comm: MPI.Intracomm) -> Work:
    send, recv = pair(comm)

    def call() -> None:
        request = comm.Allreduce_init(send, recv)
        restart(request.Start, request.Wait)
        request.Free()

    return Work(call, [recv])


def _restarted(comm: MPI.Intracomm) -> Work:
    send, recv = pair(comm, LONGER)
    request = comm.Allreduce_init(send, recv)
    return Work(
        partial(restart, request.Start, request.Wait), [recv], free=request.Free, kept=[send]
    )


def _restarted_vector(comm: MPI.Intracomm) -> Work:
    column, matrix = MPI.DOUBLE.Create_vector(COUNT, 1, COUNT).Commit(), np.zeros((COUNT, COUNT))
    matrix += comm.Get_rank()
    comm.Bcast_init([matrix, 1, column], root=0).Free()  # plans
    request = comm.Bcast_init([matrix, 1, column], root=0)

    def free() -> None:
        request.Free()
        column.Free()

    return Work(partial(restart, request.Start, request.Wait), [matrix], free=free)


def _many(comm: MPI.Intracomm) -> Work:
    pairs = [pair(comm) for _ in range(MANY)]
    requests = [comm.Allreduce_init(send, recv) for send, recv in pairs]

    def call() -> None:
        for request in requests:
            request.Start()
        for request in requests:
            request.Wait()

    def free() -> None:
        for request in requests:
            request.Free()

    results = [recv for _, recv in pairs]
    return Work(call, results, MANY, free, [send for send, _ in pairs])


# ---- objects: mpi4py's lower-case methods, as programs use them ---------------------------------

ELEMENTS = 2048  # numbers of the 16 KiB of an array
OF_OBJECTS: dict[str, Callable[[Any, Array], Any]] = {
    "allreduce(int)": lambda comm, array: comm.allreduce(3),
    "allreduce(float, MAX)": lambda comm, array: comm.allreduce(2.5, MPI.MAX),
    "bcast(tuple)": lambda comm, array: comm.bcast((1, 2.5)),
    "allgather(int)": lambda comm, array: comm.allgather(3),
    "gather(float)": lambda comm, array: comm.gather(2.5),
    "reduce(float)": lambda comm, array: comm.reduce(2.5),
    "scatter(int)": lambda comm, array: comm.scatter([*range(comm.size)]),
    "allreduce(NumPy scalar)": lambda comm, array: comm.allreduce(np.float64(2.5)),
    "bcast(array of 16KiB)": lambda comm, array: comm.bcast(array),
    "allgather(array of 16KiB)": lambda comm, array: comm.allgather(array),
    "gather(array of 16KiB)": lambda comm, array: comm.gather(array),
    "allreduce(array of 16KiB)": lambda comm, array: comm.allreduce(array),
    "allgather(list of 2048 floats)": lambda comm, array: comm.allgather(array.tolist()),
}


class Shown:
    """The last result of a method, as a number for comparison."""

    found: Any = None

    def __array__(self, *how: Any, **more: Any) -> Any:
        return np.array(0.0 if self.found is None else np.sum(self.found))


def _object(make: Callable[[Any, Array], Any], comm: MPI.Intracomm) -> Work:
    shown, array = Shown(), np.full(ELEMENTS, comm.Get_rank() + 1.0)

    def call() -> None:
        shown.found = make(comm, array)

    return Work(call, [shown])


# ---- the table ----------------------------------------------------------------------------------

SPELLINGS, COMMUNICATORS, PERSISTENT = "spellings", "communicators", "persistent"
OBJECTS = "objects"
TORCH = ProgramRow(SPELLINGS, "Allreduce(torch.Tensor)", _torch)
ROWS = (
    ProgramRow(SPELLINGS, "Allreduce(array)", partial(_allreduce, np.asarray)),
    ProgramRow(SPELLINGS, "Allreduce([a, n, type])",
               partial(_allreduce, lambda a: [a, COUNT, MPI.DOUBLE])),
    ProgramRow(SPELLINGS, "Allreduce([a, (n, d), type])",
               partial(_allreduce, lambda a: [a, (COUNT, 0), MPI.DOUBLE])),
    ProgramRow(SPELLINGS, "Allreduce(IN_PLACE, array)", _in_place),
    ProgramRow(SPELLINGS, "Iallreduce([a, n, type])", _nonblocking),
    ProgramRow(SPELLINGS, "Allreduce(NumPy scalar)", _scalar),
    ProgramRow(SPELLINGS, "Allreduce(subclass)", partial(_allreduce, lambda a: a.view(Field))),
    ProgramRow(SPELLINGS, "Allreduce(array.array)", _of_arrays),
    ProgramRow(SPELLINGS, "Allreduce(DLPack)", partial(_allreduce, Tensor)),
    *([TORCH] if find_spec("torch") else ()),
    ProgramRow(SPELLINGS, "Bcast([a, type])", partial(_bcast, lambda a: [a, MPI.DOUBLE])),
    ProgramRow(SPELLINGS, "Bcast(bytearray)", _of_bytes),
    ProgramRow(SPELLINGS, "Bcast([a, 1, vector])", _vector),
    ProgramRow(SPELLINGS, "Bcast(memoryview)", partial(_bcast, lambda a: a.data)),
    ProgramRow(SPELLINGS, "Allreduce([a, n, DOUBLE_INT], MINLOC)", _pairs),
    ProgramRow(SPELLINGS, "Allgatherv of blocks with gaps", _apart),
    ProgramRow(SPELLINGS, "Reduce_scatter(a, b)", _without_counts),
    ProgramRow(SPELLINGS, f"{KINDS} kinds of Allreduce in turn", _kinds),
    *(ProgramRow(OBJECTS, name, partial(_object, make)) for name, make in OF_OBJECTS.items()),
    ProgramRow(COMMUNICATORS, "Split, Free", _split),
    ProgramRow(COMMUNICATORS, "Dup, Free", _dup),
    ProgramRow(COMMUNICATORS, "Split, Allreduce of 8B, Free", _split_and_call),
    ProgramRow(COMMUNICATORS, f"the same of up to {ORDERS} orders of ranks", _orders_in_turn),
    ProgramRow(COMMUNICATORS, f"the same in {THREADS} threads", _in_threads),
    ProgramRow(COMMUNICATORS, "MPI's Dup, Allreduce of 8B, Free", _made_apart),
    ProgramRow(COMMUNICATORS, "Dup, Allreduce_init, Start, Wait, Free", _dup_and_init),
    ProgramRow(PERSISTENT, "Allreduce_init, Start, Wait, Free", _from_init_to_free),
    ProgramRow(PERSISTENT, "Start, Wait of 64KiB", _restarted),
    ProgramRow(PERSISTENT, "Start, Wait of a vector's Bcast", _restarted_vector),
    ProgramRow(PERSISTENT, f"{MANY} requests, a Start and Wait", _many),
)  # fmt: skip
