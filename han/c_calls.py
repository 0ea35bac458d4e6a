"""Calls of C and Fortran programs, as arguments of ``han.Comm``'s methods."""

from __future__ import annotations

import contextlib
import ctypes
import sys
import threading
from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from mpi4py import MPI

from han.message.dtypes import canonical, op_name, pair_name, type_name
from han.message.neighbours import Form
from han.message.unlocked import WIDE_HANDLES
from han.model.collectives import ROWS
from han.model.element_types import PAIRS, WIDE, kernel
from han.runtime.left import Left

if TYPE_CHECKING:
    from han.comm import Comm

IN_PLACE = int(MPI.IN_PLACE) % 2**64
EQUAL, COUNTED, TYPED = Form
NOW, LATER, STARTED = range(3)  # when a call is complete
PREDEFINED = (
    MPI.SUM, MPI.MAX, MPI.MIN, MPI.PROD, MPI.LAND, MPI.BAND, MPI.LOR, MPI.BOR, MPI.LXOR, MPI.BXOR,
    MPI.MAXLOC, MPI.MINLOC,
)  # fmt: skip
PREDEFINED_HANDLES = {op.handle for op in PREDEFINED}
REDUCING = {
    int(ROWS[name].code) for name in ("reduce", "allreduce", "scan", "exscan", "reduce_scatter")
}
GATHERING = {int(ROWS[name].code) for name in ("gather", "allgather", "gatherv")}
SCATTERING = {int(ROWS[name].code) for name in ("scatter", "scatterv")}
EXCHANGING = {int(ROWS[name].code) for name in ("alltoall", "alltoallv")}
ROOTED = {
    int(ROWS[name].code) for name in ("bcast", "reduce", "gather", "scatter", "gatherv", "scatterv")
}
OPS: dict[int, MPI.Op] = {op.handle: op for op in PREDEFINED}  # and those of the program


class Side(NamedTuple):
    """One side of a call: addresses, a number of elements, MPI's handles.

    `counts`, `places` and `types` are addresses of numbers and handles, one for each rank, or 0.
    """

    data: int
    n: int
    datatype: int
    counts: int
    places: int
    types: int

    @property
    def in_place(self) -> bool:
        """Whether the program passed MPI_IN_PLACE."""
        return self.data == IN_PLACE

    def whole(self, blocks: int = 1) -> Any:
        """Return the buffer, of so many blocks, as mpi4py takes it."""
        if self.in_place:
            return MPI.IN_PLACE
        datatype = _datatype(self.datatype, self.n)
        if self.n < 0:
            raise Left
        data = _memory(self.data, self.n * blocks * datatype.Get_size(), datatype)
        return [data, self.n, datatype]


class Call(NamedTuple):
    """A call as the program made it."""

    collective: int
    send: Side
    recv: Side
    op: int
    comm: int
    root: int
    form: int
    when: int
    large: int
    neighbours: int

    @property
    def reducing(self) -> MPI.Op:
        """The operation. One object stands for it until the program frees it."""
        return OPS.get(self.op) or OPS.setdefault(self.op, MPI.Op.fromhandle(self.op))

    def numbers(self, address: int, size: int, wide: bool = False) -> list[int]:
        """Return numbers at an address; `wide`: of 64 bits in any call."""
        kind = ctypes.c_int64 if self.large or wide else ctypes.c_int
        return list((kind * size).from_address(address)) if size else []

    def blocks(self, side: Side, size: int) -> Any:
        """Return a buffer of blocks with counts, and maybe places and types, of their own."""
        if side.in_place:
            return MPI.IN_PLACE
        if not size:  # no neighbours; a program may pass NULL for all
            return [bytearray(), [], [], [] if self.form == TYPED else MPI.BYTE]
        counts = self.numbers(side.counts, size)
        if min(counts, default=0) < 0:
            raise Left
        typed = self.form == TYPED
        kinds = [*map(_datatype, _handles(side.types, size), counts)] if typed else None
        datatype = MPI.BYTE if typed else _datatype(side.datatype)
        data, places = side.data, None
        if side.places:
            found = self.numbers(side.places, size, bool(typed and self.neighbours))
            data, places = _placed(data, counts, found, datatype)
        whole = _memory(data, any(counts), datatype)
        return [whole, counts, places, datatype if kinds is None else kinds]


class _Here(threading.local):
    """What a call of this thread is given: duplicates of derived types, by handle, or None."""

    duplicates: dict[int, MPI.Datatype] | None = None


_here = _Here()


@contextlib.contextmanager
def own_types() -> Iterator[dict[int, MPI.Datatype]]:
    """Give a request types of its own, as the program may free its types before it is complete."""
    made: dict[int, MPI.Datatype] = {}
    _here.duplicates = made
    try:
        yield made
    except BaseException:
        free_types(made)
        raise
    finally:
        _here.duplicates = None


def free_types(types: dict[int, MPI.Datatype]) -> None:
    """Free the types of a request, unless MPI was finalized."""
    if not MPI.Is_finalized():
        for each in types.values():
            each.Free()


def _datatype(handle: int, n: int = 1) -> MPI.Datatype:
    """Return the type of so many elements; one rank may pass DATATYPE_NULL for none of them."""
    datatype = MPI.Datatype.fromhandle(handle)
    if datatype == MPI.DATATYPE_NULL:
        if not n:
            return MPI.BYTE
        raise Left
    if _here.duplicates is None or datatype.is_predefined:
        return datatype
    if handle not in _here.duplicates:
        _here.duplicates[handle] = datatype.Dup()
    return _here.duplicates[handle]


def _memory(address: int, holds: object, datatype: MPI.Datatype) -> Any:
    """Return the memory at an address, which `holds` anything or not; its end is not known.

    MPI_BOTTOM is for derived types.
    """
    if address:
        return MPI.buffer.fromaddress(address, sys.maxsize if holds else 0)
    if holds and datatype.is_predefined and datatype != MPI.BYTE:
        raise Left
    return MPI.BOTTOM


def _placed(
    data: int, counts: list[int], places: list[int], datatype: MPI.Datatype
) -> tuple[int, list[int]]:
    """Return address and places of blocks, of which none is negative, as mpi4py wants them."""
    used = [place for n, place in zip(counts, places, strict=True) if n]
    least = min(0, *used, 0)
    found = [place - least if n else 0 for n, place in zip(counts, places, strict=True)]
    return data + least * datatype.Get_extent()[1], found


def _handles(address: int, size: int) -> list[int]:
    kind = ctypes.c_size_t if WIDE_HANDLES else ctypes.c_uint
    return list((kind * size).from_address(address)) if size else []


def _reduce_scatter(comm: Comm, call: Call) -> tuple[Any, ...]:
    counts = call.numbers(call.send.counts, comm.size)
    own = call.recv._replace(n=counts[comm.rank])
    whole = call.recv._replace(n=sum(counts))
    recv = whole if call.send.in_place else own
    send = call.send._replace(n=sum(counts))
    return send.whole(), recv.whole(), counts, call.reducing


def _at_root(comm: Comm, call: Call, make: Callable[[], Any]) -> Any:
    return make() if comm.rank == call.root else None


def _counted(comm: Comm, call: Call) -> tuple[Any, Any]:
    return call.blocks(call.send, comm.size), call.blocks(call.recv, comm.size)


def _combined(comm: Comm, call: Call) -> tuple[Any, ...]:
    return call.send.whole(), call.recv.whole(), call.reducing


Arguments = Callable[[Any, Call], tuple[Any, ...]]
# Names of mpi4py's methods, without the prefix and the suffix of requests, and their arguments.
WHOLE: dict[str, tuple[str, Arguments]] = {
    "barrier": ("Barrier", lambda comm, call: ()),
    "bcast": ("Bcast", lambda comm, call: (call.recv.whole(), call.root)),
    "reduce": ("Reduce", lambda comm, call: (
        call.send.whole(), _at_root(comm, call, call.recv.whole), call.reducing, call.root
    )),
    "allreduce": ("Allreduce", _combined),
    "scan": ("Scan", _combined),
    "exscan": ("Exscan", _combined),
    "gather": ("Gather", lambda comm, call: (
        call.send.whole(), _at_root(comm, call, lambda: call.recv.whole(comm.size)), call.root
    )),
    "scatter": ("Scatter", lambda comm, call: (
        _at_root(comm, call, lambda: call.send.whole(comm.size)), call.recv.whole(), call.root
    )),
    "allgather": ("Allgather", lambda comm, call: (call.send.whole(), call.recv.whole(comm.size))),
    "alltoall": ("Alltoall", lambda comm, call: (
        call.send.whole(comm.size), call.recv.whole(comm.size)
    )),
    "reduce_scatter": ("Reduce_scatter_block", lambda comm, call: (
        call.send.whole(comm.size), call.recv.whole(comm.size if call.send.in_place else 1),
        call.reducing,
    )),
}  # fmt: skip
PARTED: dict[str, tuple[str, Arguments]] = {  # with counts
    "gatherv": ("Gatherv", lambda comm, call: (
        call.send.whole(), _at_root(comm, call, lambda: call.blocks(call.recv, comm.size)),
        call.root,
    )),
    "scatterv": ("Scatterv", lambda comm, call: (
        _at_root(comm, call, lambda: call.blocks(call.send, comm.size)), call.recv.whole(),
        call.root,
    )),
    "allgather": ("Allgatherv", lambda comm, call: (
        call.send.whole(), call.blocks(call.recv, comm.size)
    )),
    "alltoallv": ("Alltoallv", _counted),
    "reduce_scatter": ("Reduce_scatter", _reduce_scatter),
}  # fmt: skip
TYPED_ONES: dict[str, tuple[str, Arguments]] = {"alltoallv": ("Alltoallw", _counted)}
# Between neighbours; their calls have no MPI_IN_PLACE.
NEIGHBOURS: dict[tuple[str, int], tuple[str, Arguments]] = {
    ("allgather", EQUAL): ("Neighbor_allgather", lambda comm, call: (
        call.send.whole(), call.recv.whole(comm.indegree)
    )),
    ("alltoall", EQUAL): ("Neighbor_alltoall", lambda comm, call: (
        call.send.whole(comm.outdegree), call.recv.whole(comm.indegree)
    )),
    ("allgather", COUNTED): ("Neighbor_allgatherv", lambda comm, call: (
        call.send.whole(), call.blocks(call.recv, comm.indegree)
    )),
    ("alltoallv", COUNTED): ("Neighbor_alltoallv", lambda comm, call: (
        call.blocks(call.send, comm.outdegree), call.blocks(call.recv, comm.indegree)
    )),
    ("alltoallv", TYPED): ("Neighbor_alltoallw", lambda comm, call: (
        call.blocks(call.send, comm.outdegree), call.blocks(call.recv, comm.indegree)
    )),
}  # fmt: skip


def _named(name: str, when: int) -> str:
    """Return the name of a method that returns when the call is complete, or a request."""
    return {NOW: name, LATER: f"I{name.lower()}", STARTED: f"{name}_init"}[when]


def _forms() -> Iterator[tuple[str, int, bool, tuple[str, Arguments]]]:
    for form, methods in ((EQUAL, WHOLE), (COUNTED, PARTED), (TYPED, TYPED_ONES)):
        for name, method in methods.items():
            yield name, form, False, method
    for (name, way), method in NEIGHBOURS.items():
        yield name, way, True, method


# The method of a call, and its arguments: by collective, form, whether of neighbours, and when.
METHODS = {
    (int(ROWS[name].code), form, near, when): (_named(method, when), arguments)
    for name, form, near, (method, arguments) in _forms()
    for when in (NOW, LATER, STARTED)
}


@cache
def _has(op: int, handle: int) -> bool:
    """Return whether han has a predefined operation on a predefined type, as MPI may have it."""
    name = op_name(canonical(MPI.Op.fromhandle(op)))
    datatype = MPI.Datatype.fromhandle(handle)
    if name in PAIRS:
        return bool(pair_name(datatype))
    kind = type_name(datatype)
    return kernel(name, kind) is not None or name in WIDE.get(kind, ())


def _own_block(call: Call, side: Side, rank: int) -> tuple[int, int]:
    """Return the address of this rank's block among those of all ranks, and its elements."""
    if not side.data:
        return 0, 0
    extent = _datatype(side.datatype).Get_extent()[1]
    if call.form == EQUAL:
        return side.data + rank * side.n * extent, side.n
    place = call.numbers(side.places, rank + 1)[rank] if side.places else 0
    return side.data + place * extent, call.numbers(side.counts, rank + 1)[rank]


def _is_alias(call: Call, rank: int, size: int) -> bool:
    """Return whether a call sends and receives at one address, as MPICH refuses it."""
    send, recv = call.send, call.recv
    if rank != call.root and call.collective in ROOTED:
        return False
    if call.collective in REDUCING:
        if send.data != recv.data:
            return False
        return any(call.numbers(send.counts, size)) if call.form else bool(send.n)
    if call.collective in SCATTERING:
        return _own_block(call, send, rank) == (recv.data, recv.n) and bool(recv.n)
    if call.collective in GATHERING:
        return _own_block(call, recv, rank) == (send.data, send.n) and bool(send.n)
    if call.collective not in EXCHANGING or send.data != recv.data:
        return False
    if call.form == EQUAL:
        return bool(send.n and recv.n)
    types = send.types == recv.types and send.datatype == recv.datatype
    return types and send.counts == recv.counts


def expect_served(call: Call, rank: int, size: int) -> None:
    """Raise Left for what MPI refuses on this rank, and for what only MPI has, on all alike."""
    if not 0 <= call.root < size:
        raise Left
    # Open MPI does not look at addresses, and would wait for the other ranks.
    if not WIDE_HANDLES and not call.neighbours and call.send.data and _is_alias(call, rank, size):
        raise Left
    if call.collective not in REDUCING:
        return
    if call.op == MPI.OP_NULL.handle:
        raise Left
    handle = (call.recv if call.send.in_place else call.send).datatype
    known = call.op in PREDEFINED_HANDLES and _datatype(handle).is_predefined
    if known and not _has(call.op, handle):
        raise Left
