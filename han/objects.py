"""The collectives of Python objects, mpi4py's lower-case methods.

mpi4py exchanges the sizes of pickled objects, and then the objects. Here a small object travels
with its size in an eager block, so that one collective in shared memory is enough. Larger objects
follow in a second one, or in messages to the root. Results, and the order in which operands are
combined, are mpi4py's.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence
from typing import Any

import mpi4py
import numpy as np
from mpi4py import MPI

from han import _native
from han.message import parsers
from han.object_moves import ObjectMoves, Op, decode_each, limits_of
from han.runtime.direct import Direct
from han.runtime.eager import TEXTS, Call, Large
from han.runtime.state import State

# A program may have deleted mpi4py.rc.
AS_TREE = getattr(getattr(mpi4py, "rc", None), "fast_reduce", True) not in (False, "no")
PLAIN = frozenset(
    {bool, int, float, complex, str, bytes, type(None)}
    | {kind for kind in np.sctypeDict.values() if kind not in (np.object_, np.void)}
)  # predefined operations give the same result on all ranks
PAIR = 2  # operands whose order needs no tree
LISTS = (tuple, list)  # also of such lists
NUMBER = struct.Struct("=q")
NUMBERS = "biufc"  # and of arrays of these kinds


class Objects(ObjectMoves):
    """bcast, gather, scatter, allgather, alltoall, reduce, allreduce, scan, exscan of objects.

    han serves them once the communicator is set up; before, they are mpi4py's. If an object cannot
    be pickled on a rank, or an operation of `allreduce` raises on rank 0 alone, the other ranks
    raise PeerError; those that need not wait in `gather` or `reduce`, in a later call.
    """

    def bcast(self, obj: Any, root: int = 0) -> Any:
        """Broadcast an object of `root`; return it, or a copy on the root."""
        state = self._state or self._found()
        if state is None or state.size == 1:
            return self._pickled("bcast", obj, root)
        root = self._root(state, root)
        data = self._encoded(obj) if state.rank == root else None
        return self._broadcast(state, data, Call.BCAST, root)

    def _broadcast(self, state: State, data: bytes | None, call: Call, root: int) -> Any:
        """Broadcast an encoded object of `root`; return it, decoded."""
        blocks = state.eager.blocks
        found = blocks.bcast(state.calls.bcast, data, call, root)
        if found is blocks.unplanned:
            found = blocks.bcast(self._planning(parsers.BCAST), data, call, root)
        if found.__class__ is not Large:
            return found
        (nbytes,) = found.sizes(root, call)
        with state.health.preparing():
            whole = np.empty(nbytes, np.uint8) if data is None else data
            self._carry(state, call, state.calls.bcast, parsers.BCAST, whole, root)
        return _native.decode(whole)

    def gather(self, sendobj: Any, root: int = 0) -> list[Any] | None:
        """Gather an object of each rank; return the list on `root`, None elsewhere."""
        state = self._state or self._found()
        if state is None or not state.eager.serves:
            return self._pickled("gather", sendobj, root)  # type: ignore[no-any-return]
        root, data = self._root(state, root), self._encoded(sendobj)
        return self._to_root(state, data, Call.GATHER, root, self._by_messages)  # type: ignore[no-any-return]

    def scatter(self, sendobj: Sequence[Any] | None, root: int = 0) -> Any:
        """Scatter a list of objects of `root`, one for each rank; return this rank's."""
        state = self._state or self._found()
        if state is None or not state.eager.serves:
            return self._pickled("scatter", sendobj, root)
        root, blocks = self._root(state, root), state.eager.blocks
        items = self._encoded_each(sendobj, state.size) if state.rank == root else None
        found = blocks.scatter(state.calls.scatter, items, Call.SCATTER, root)
        if found is blocks.unplanned:
            run = self._planning(parsers.SCATTER)
            found = blocks.scatter(run, items, Call.SCATTER, root)
        if found.__class__ is Large:
            return self._scatter_large(state, found, items, root)
        return found

    def allgather(self, sendobj: Any) -> list[Any]:
        """Gather an object of each rank; return the list of all."""
        state = self._state or self._found()
        if state is None or not state.eager.serves:
            return self._pickled("allgather", sendobj)  # type: ignore[no-any-return]
        data = self._encoded(sendobj)
        found = self._tell(state, data, Call.ALLGATHER)
        if found.__class__ is Large:
            sizes = found.sizes(0, Call.ALLGATHER)
            return decode_each(self._tell_large(state, Call.ALLGATHER, data, sizes))
        return found  # type: ignore[no-any-return]

    def alltoall(self, sendobj: Sequence[Any]) -> list[Any]:
        """Send an object of a list to each rank; return the list of those that arrive here."""
        state = self._state or self._found()
        if state is None or not state.eager.serves:
            return self._pickled("alltoall", sendobj)  # type: ignore[no-any-return]
        blocks, items = state.eager.blocks, self._encoded_each(sendobj, state.size)
        found: Any = blocks.alltoall(state.calls.alltoall, items, Call.ALLTOALL, 0)
        if found is blocks.unplanned:
            run = self._planning(parsers.ALLTOALL)
            found = blocks.alltoall(run, items, Call.ALLTOALL, 0)
        if found.__class__ is Large:
            return self._exchange_large(state, found, items)
        return found  # type: ignore[no-any-return]

    def reduce(self, sendobj: Any, op: Op = MPI.SUM, root: int = 0) -> Any:
        """Combine an object of each rank by ``op(a, b)``; return the result on `root`."""
        state = self._state or self._found()
        if state is None or not state.eager.serves:
            return self._pickled("reduce", sendobj, op, root)
        root, data = self._root(state, root), self._encoded(sendobj)
        found = self._to_root(state, data, Call.REDUCE, root, self._reduce_large, op)
        return None if found is None else _combined(found, op)

    def _reduce_large(
        self, state: State, direct: Direct, data: bytes, root: int, large: Large | None,
        sizes: list[int], op: Op,
    ) -> list[Any] | None:  # fmt: skip
        """Move objects to the root or, if all have many bytes, along a tree, as the root says."""
        if large is None:
            along_tree = len(data) > limits_of(state).asked and bool(direct.receive(root)[0])
        else:
            limits = limits_of(state)
            along_tree = AS_TREE and min(sizes) > limits.asked and sum(sizes) > limits.to_all
            for rank, nbytes in enumerate(sizes):
                if nbytes > limits.asked and rank != root:
                    direct.send(bytes([along_tree]), rank)
        if along_tree:
            return self._along_tree(state, direct, data, op, root)
        return self._by_messages(state, direct, data, root, large, sizes)

    def allreduce(self, sendobj: Any, op: Op = MPI.SUM) -> Any:
        """Combine an object of each rank by ``op(a, b)``; return the result.

        Where all ranks are sure to compute the same, all do: predefined operations of numbers,
        strings, lists of them and arrays. Otherwise rank 0 computes, and broadcasts the result.
        """
        state = self._state or self._found()
        if state is None or not state.eager.serves:
            return self._pickled("allreduce", sendobj, op)
        data, call = self._encoded(sendobj), Call.COMBINE
        if isinstance(op, MPI.Op) and op.is_predefined and _plain(sendobj):
            call = Call.ALLREDUCE
        number = state.health.engines.own.issued
        found = self._tell(state, data, call)
        if found.__class__ is Large:
            sizes = found.sizes(0, Call.ALLREDUCE, Call.COMBINE)
            if AS_TREE and sum(sizes) > limits_of(state).to_all:
                direct = Direct(state.health, number, TEXTS[Call.ALLREDUCE])
                made = self._along_tree(state, direct, data, op, 0)
                return self._broadcast(state, made[0] if made else None, Call.RESULT, 0)
            call = max(found.calls)
            found = found.items() or self._tell_large(state, Call.ALLREDUCE, data, sizes)
            found = decode_each(found)
        if call == Call.ALLREDUCE:
            return _combined(found, op)
        if state.rank:
            return self._broadcast(state, None, Call.RESULT, 0)
        try:
            result = _combined(found, op)
        except BaseException:
            self._raise()
        return self._broadcast(state, self._encoded(result), Call.RESULT, 0)

    def scan(self, sendobj: Any, op: Op = MPI.SUM) -> Any:
        """Combine the objects of this rank and of those before it by ``op(a, b)``."""
        return self._scanned(Call.SCAN, sendobj, op)

    def exscan(self, sendobj: Any, op: Op = MPI.SUM) -> Any:
        """Combine the objects of the ranks before this one; return None on rank 0."""
        return self._scanned(Call.EXSCAN, sendobj, op)

    def _scanned(self, call: Call, sendobj: Any, op: Op) -> Any:
        state = self._state or self._found()
        if state is None or not state.eager.serves:
            return self._pickled(call.name.lower(), sendobj, op)
        data, number = self._encoded(sendobj), state.health.engines.own.issued
        found, inclusive = self._tell(state, data, call, wanted=False), call == Call.SCAN
        if found.__class__ is Large:
            sizes = found.sizes(0, call)
            if AS_TREE and sum(sizes) > limits_of(state).to_all:
                direct = Direct(state.health, number, TEXTS[call])
                return self._scan_large(state, direct, data, op, inclusive)
            found = self._tell_large(state, call, data, sizes)
        return _prefix(decode_each(found[: state.rank + inclusive]), op, state.rank)

    def _scan_large(
        self, state: State, direct: Direct, data: bytes, op: Op, inclusive: bool
    ) -> Any:
        """Combine objects in log2(n) exchanges with one rank each; return this rank's result.

        `data` becomes the combination of ever more ranks, encoded, as long as later ranks need it.
        If the operation raises on a rank, the communicator is revoked, as others wait for it.
        """
        rank, far = state.rank, 1
        with state.health.together("an operation on objects"):
            result = [_native.decode(data)] if inclusive else []
            while far < state.size:
                peer, needed = rank ^ far, (rank | 2 * far - 1) + 1 < state.size
                if peer < rank:
                    other = direct.exchange(data, peer) if needed else direct.receive(peer)
                    before = _native.decode(other)
                    result = [op(before, *result)] if result else [before]
                elif needed:
                    other = direct.exchange(data, peer)
                elif peer < state.size:
                    direct.send(data, peer)
                if needed:
                    pair = (other, data) if peer < rank else (data, other)
                    data = _native.encode(op(*decode_each(pair)))
                far *= 2
        return result[0] if result else None

    def _along_tree(
        self, state: State, direct: Direct, data: bytes, op: Op, root: int
    ) -> list[Any] | None:
        """Combine objects along a binomial tree, by messages; return the result on the root.

        It comes to rank 0, which sends it to the root, and is returned encoded, in a list. If the
        operation raises on a rank, the communicator is revoked, as others wait for this rank.
        """
        rank, far = state.rank, 1
        with state.health.together("an operation on objects"):
            result = _native.decode(data)
            while far < state.size and not rank & far:
                if rank | far < state.size:
                    result = op(result, _native.decode(direct.receive(rank | far)))
                far <<= 1
            made = _native.encode(result)
        target = rank - far if rank else root
        if rank != target:
            direct.send(made, target)
        if rank != root:
            return None
        return [direct.receive(0) if rank else made]

    def _agreed(self, state: State, number: int) -> list[int]:
        """Tell all ranks a number; return those of all ranks."""
        found = self._tell(state, NUMBER.pack(number), Call.AGREE, 0, False)
        if found.__class__ is Large:
            found.sizes(0, Call.AGREE)
        return [NUMBER.unpack(data)[0] for data in found]

    # ---- what is left to mpi4py ---------------------------------------------------------------

    def _mpi4pys(self, name: str, *arguments: Any) -> Any:
        """Call mpi4py's method."""
        return _native.by_mpi(getattr(MPI.Intracomm, name), self, *arguments)

    def _pickled(self, name: str, *arguments: Any) -> Any:
        """Call mpi4py's method; if such calls are frequent here, set the communicator up first."""
        self._check_live()
        if self._state is None and self._set_up():
            return getattr(Objects, name)(self, *arguments)
        return self._mpi4pys(name, *arguments)

    def _set_up(self) -> bool:
        raise NotImplementedError("han.Comm knows what it inherits")


def _plain(item: Any) -> bool:
    """Return whether predefined operations of such objects are sure to be alike on all ranks."""
    kind = item.__class__
    if kind in PLAIN:
        return True
    if kind is np.ndarray:
        return item.dtype.kind in NUMBERS
    return kind in LISTS and PLAIN.issuperset(map(type, item))


def _combined(items: list[Any], op: Op) -> Any:
    """Combine objects in mpi4py's order: along a binomial tree, or one after the other."""
    if len(items) == PAIR:
        return op(*items)
    if not AS_TREE:
        return functools.reduce(op, items)
    step = 1
    while step < len(items):
        for k in range(0, len(items) - step, 2 * step):
            items[k] = op(items[k], items[k + step])
        step *= 2
    return items[0]


def _prefix(items: list[Any], op: Op, rank: int) -> Any:
    """Combine the objects of the ranks before `rank`, and its own one if it is there.

    As in mpi4py, ever larger blocks of ranks, whose numbers share their first digits, come before
    what has been combined. Returns None if there is no object.
    """
    if not items or not AS_TREE:
        return _combined(items, op) if items else None
    found, stop = items[rank:], rank
    while stop:
        start = stop & (stop - 1)
        block = _combined(items[start:stop], op)
        found = [op(block, *found)] if found else [block]
        stop = start
    return found[0]
