"""Which methods of ``han.Comm`` are collectives, the bytes of a call, and who carries it out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

from han.message.buffers import parts_of

OBJECTS = "objects, which mpi4py pickles and sends"
UNFIT = "calls that no rule and no submodule can serve"
NARROW = "calls with neighbours in a grid in which both may be the same process"
DEVICE = "calls on memory of a device"


class SizedBy(NamedTuple):
    """The buffers whose bytes are the size of a call; the first one that is there counts.

    `parted` are those that hold a block for each rank, or neighbour, as the size is that of one
    block. A number of elements that is given with such a buffer is that of one block, too, unless
    it is that of `all_blocks`.
    """

    buffers: tuple[str, ...] = ()
    parted: tuple[str, ...] = ()
    all_blocks: bool = False


_SEND, _RECV = "sendbuf", "recvbuf"
_OF_KINDS = {
    SizedBy(): "Barrier",
    SizedBy(("buf",)): "Bcast",
    SizedBy((_SEND, _RECV)): "Reduce Allreduce Scan Exscan",
    SizedBy((_SEND, _RECV), (_RECV,)): "Gather Gatherv Allgather Allgatherv",
    SizedBy((_RECV, _SEND), (_SEND,)): "Scatter Scatterv",
    SizedBy((_SEND, _RECV), (_SEND, _RECV)): "Alltoall Alltoallv Alltoallw Reduce_scatter_block",
    SizedBy((_SEND, _RECV), (_SEND, _RECV), all_blocks=True): "Reduce_scatter",
    SizedBy((_SEND,)): "Neighbor_allgather Neighbor_allgatherv",
    SizedBy((_SEND,), (_SEND,)): "Neighbor_alltoall Neighbor_alltoallv Neighbor_alltoallw",
}
_SIZED_BY = {kind: sized_by for sized_by, kinds in _OF_KINDS.items() for kind in kinds.split()}
_OF_OBJECTS = (
    "bcast", "gather", "scatter", "allgather", "alltoall", "reduce", "allreduce", "scan", "exscan",
)  # fmt: skip
_PICKLED = ("neighbor_allgather", "neighbor_alltoall")


class Method(NamedTuple):
    """A collective method: its name, the blocking call of its kind, and whether it starts one."""

    name: str
    kind: str
    persistent: bool = False

    @property
    def why(self) -> str:
        """Why all its calls are the MPI library's own; "" if han may serve them."""
        return OBJECTS if self.kind in _PICKLED else ""

    def nbytes(self, comm: MPI.Comm, args: Sequence[Any], more: Mapping[str, Any]) -> int | None:
        """Return the size of a call; None if it is not known."""
        if self.kind == "Barrier":
            return 0
        if self.kind not in _SIZED_BY:
            return None
        names = ("buf",) if self.kind == "Bcast" else (_SEND, _RECV)
        given = {**dict(zip(names, args, strict=False)), **more}
        try:
            blocks = comm.Get_size()
            if isinstance(comm, MPI.Topocomm) and self.kind.startswith("Neighbor"):
                blocks = comm.outdegree
            return _first(blocks, given, _SIZED_BY[self.kind])
        except Exception:  # a count must never make a call fail
            return None


def methods() -> Iterator[Method]:
    """Yield all collective methods of mpi4py's communicators."""
    for kind in _SIZED_BY:
        yield Method(kind, kind)
        yield Method(f"I{kind.lower()}", kind)
        yield Method(f"{kind}_init", kind, persistent=True)
    yield Method("barrier", "Barrier")
    for name in (*_OF_OBJECTS, *_PICKLED):
        yield Method(name, name)


def _first(blocks: int, given: Mapping[str, Any], sized_by: SizedBy) -> int | None:
    for name in sized_by.buffers:
        spec = given.get(name)
        if spec is None or spec is MPI.IN_PLACE:
            continue
        nbytes, of_block = _nbytes(spec)
        whole = name in sized_by.parted and (sized_by.all_blocks or not of_block)
        return nbytes // blocks if whole else nbytes
    return None


def _nbytes(spec: Any) -> tuple[int, bool]:
    """Return the bytes of a buffer argument, and whether its number of elements is given."""
    data, counts, _, kind = parts_of(spec, "", "")
    if counts is None:
        return _of_memory(data), False
    if isinstance(counts, tuple):  # (counts, displacements)
        counts = counts[0]
    if isinstance(kind, list | tuple):  # of each block
        return sum(n * one.Get_size() for n, one in zip(counts, kind, strict=True)), False
    return int(np.sum(counts)) * _itemsize(data, kind), np.ndim(counts) == 0


def _of_memory(data: Any) -> int:
    """Return the bytes of an object with a buffer, in memory of the host or of a device."""
    nbytes = getattr(data, "nbytes", None)
    return nbytes if isinstance(nbytes, int) else MPI.buffer.frombuffer(data, readonly=True).nbytes


def _itemsize(data: Any, kind: Any) -> int:
    if isinstance(kind, MPI.Datatype):
        return kind.Get_size()
    return np.dtype(kind if isinstance(kind, str) else data.dtype).itemsize
