"""The collectives of Python objects, mpi4py's lower-case methods.

mpi4py exchanges the sizes of pickled objects, and then the objects. Here a small object travels
with its size in an eager block of shared memory, so that one collective is enough; the second one
follows for larger objects. Results, and the order in which operands are combined, are mpi4py's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, NoReturn, TypeAlias

import mpi4py
import numpy as np
from mpi4py import MPI

from han.collectives import Collectives
from han.common.errors import ArgumentError
from han.message import parsers
from han.message.message import root_of
from han.message.parsers import Parser
from han.ranks.health import AGREED
from han.runtime.eager import Call, alike
from han.runtime.inherited import Inherited
from han.runtime.state import State

Op: TypeAlias = MPI.Op | Callable[[Any, Any], Any]

_dumps, _loads = MPI.pickle.dumps, MPI.pickle.loads
AS_TREE = getattr(mpi4py.rc, "fast_reduce", True) not in (False, "no")
PLAIN = frozenset(
    {bool, int, float, complex, str, bytes, type(None)}
    | {kind for kind in np.sctypeDict.values() if kind not in (np.object_, np.void)}
)  # predefined operations give the same result on all ranks
LISTS = (tuple, list)  # also of such lists
NUMBERS = "biufc"  # and of arrays of these kinds
MOST_TO_ALL = 1 << 20  # bytes of all objects that a rank without need of them may get


class Objects(Collectives):
    """bcast, gather, scatter, allgather, alltoall, reduce and allreduce of Python objects.

    han serves them where all ranks share memory, and `bcast` everywhere, once the communicator is
    set up; elsewhere they are mpi4py's. Unlike in mpi4py, all ranks wait for each other in `gather`
    and `reduce`; and if an object cannot be pickled on a rank, or an operation raises on one, the
    other ranks raise PeerError.
    """

    _config: Any = None  # of a communicator without a State: what its State is made with

    def bcast(self, obj: Any, root: int = 0) -> Any:
        """Broadcast an object of `root`; return it, or a copy on the root."""
        state = self._state or self._found()
        if state is None or state.size == 1:
            return self._pickled("bcast", obj, root)
        blocks, data, root = state.eager.blocks, None, self._root(state, root)
        if state.rank == root:
            data = self._dumped(obj)
        found = blocks.bcast(state.calls.bcast, data, Call.BCAST, root)
        if found is blocks.unplanned:
            found = blocks.bcast(self._planning(parsers.BCAST), data, Call.BCAST, root)
        if not state.eager.left_large(found):
            return found
        try:
            whole: Any = data
            if data is None:
                whole = self._room(state.eager.size(Call.BCAST, root))
            self._carry(state.calls.bcast, parsers.BCAST, whole, root)
        finally:
            state.eager.lock.release()
        return _loaded(whole)

    def gather(self, sendobj: Any, root: int = 0) -> list[Any] | None:
        """Gather an object of each rank; return the list on `root`, None elsewhere."""
        state = self._state or self._found()
        if state is None or not state.eager.serves:
            return self._pickled("gather", sendobj, root)  # type: ignore[no-any-return]
        root = self._root(state, root)
        wanted = state.rank == root
        items = self._tell(state, sendobj, Call.GATHER, root, wanted)
        return items if wanted else None

    def scatter(self, sendobj: Sequence[Any] | None, root: int = 0) -> Any:
        """Scatter a list of objects of `root`, one for each rank; return this rank's."""
        state = self._state or self._found()
        if state is None or not state.eager.serves:
            return self._pickled("scatter", sendobj, root)
        blocks, items, root = state.eager.blocks, None, self._root(state, root)
        if state.rank == root:
            items = self._dumped_each(sendobj, state.size)
        found = blocks.scatter(state.calls.scatter, items, Call.SCATTER, root)
        if found is blocks.unplanned:
            run = self._planning(parsers.SCATTER)
            found = blocks.scatter(run, items, Call.SCATTER, root)
        if not state.eager.left_large(found):
            return found
        try:
            return self._scatter_large(state, items, root)
        finally:
            state.eager.lock.release()

    def allgather(self, sendobj: Any) -> list[Any]:
        """Gather an object of each rank; return the list of all."""
        state = self._state or self._found()
        if state is None or not state.eager.serves:
            return self._pickled("allgather", sendobj)  # type: ignore[no-any-return]
        return self._tell(state, sendobj, Call.ALLGATHER)  # type: ignore[no-any-return]

    def alltoall(self, sendobj: Sequence[Any]) -> list[Any]:
        """Send an object of a list to each rank; return the list of those that arrive here."""
        state = self._state or self._found()
        if state is None or not state.eager.serves:
            return self._pickled("alltoall", sendobj)  # type: ignore[no-any-return]
        blocks, items = state.eager.blocks, self._dumped_each(sendobj, state.size)
        found: Any = blocks.alltoall(state.calls.alltoall, items, Call.ALLTOALL, 0)
        if found is blocks.unplanned:
            run = self._planning(parsers.ALLTOALL)
            found = blocks.alltoall(run, items, Call.ALLTOALL, 0)
        if state.eager.left_large(found):
            try:
                found = self._exchange_large(state, items)
            finally:
                state.eager.lock.release()
        return found  # type: ignore[no-any-return]

    def reduce(self, sendobj: Any, op: Op = MPI.SUM, root: int = 0) -> Any:
        """Combine an object of each rank by ``op(a, b)``; return the result on `root`."""
        state = self._state or self._found()
        if state is None or not state.eager.serves:
            return self._pickled("reduce", sendobj, op, root)
        root = self._root(state, root)
        wanted = state.rank == root
        items = self._tell(state, sendobj, Call.REDUCE, root, wanted, MOST_TO_ALL)
        if items is None:
            return self._pickled("reduce", sendobj, op, root)
        return _combined(items, op) if wanted else None

    def allreduce(self, sendobj: Any, op: Op = MPI.SUM) -> Any:
        """Combine an object of each rank by ``op(a, b)``; return the result.

        Where all ranks are sure to compute the same, all do: predefined operations of numbers,
        strings, lists of them and arrays. Otherwise rank 0 computes, and broadcasts the result.
        """
        state = self._state or self._found()
        if state is None or not state.eager.serves:
            return self._pickled("allreduce", sendobj, op)
        items = self._tell(state, sendobj, Call.ALLREDUCE, most=MOST_TO_ALL)
        if items is None:
            return self._pickled("allreduce", sendobj, op)
        if isinstance(op, MPI.Op) and op.is_predefined and _plain(items):
            return _combined(items, op)
        result = None
        if not state.rank:
            try:
                result = _combined(items, op)
            except BaseException:
                self._raise()
        return self.bcast(result)

    # ---- arguments ----------------------------------------------------------------------------

    def _pickled(self, name: str, *arguments: Any) -> Any:
        """Call mpi4py's method; first set the communicator up if such calls are frequent there."""
        self._check_live()
        if self._state is None and self._set_up():
            return getattr(self, name)(*arguments)
        return getattr(MPI.Intracomm, name)(self, *arguments)

    def _set_up(self) -> bool:
        """Set a new communicator up if it has made many calls of objects; return whether it did."""
        config, handle = self._config, MPI._handleof(self)
        if not isinstance(config, Inherited) or not config.nest.used_often(handle):
            return False
        try:
            return self._han is not None
        except AGREED:
            config.nest.never_set_up(handle)
            return False

    def _raise(self) -> NoReturn:
        """Raise the present error again; tell the other ranks, which wait in the call."""
        with self._han.health.preparing():
            raise

    def _dumped(self, obj: Any) -> bytes:
        try:
            data = _dumps(obj)
            return data if data.__class__ is bytes else bytes(data)
        except BaseException:
            self._raise()

    def _dumped_each(self, objects: Sequence[Any] | None, size: int) -> list[bytes]:
        """Return the objects of a list, one for each rank, pickled; None stands for Nones."""
        try:
            items = [None] * size if objects is None else list(objects)
            if len(items) != size:
                raise ArgumentError(f"{len(items)} objects for {size} ranks; pass one for each")
            return [*map(bytes, map(_dumps, items))]
        except BaseException:
            self._raise()

    def _root(self, state: State, root: int) -> int:
        if root.__class__ is int and 0 <= root < state.size:
            return root
        try:
            return root_of(self, root)
        except ArgumentError:
            self._raise()

    def _room(self, nbytes: int) -> Any:
        try:
            return np.empty(nbytes, np.uint8)
        except MemoryError:
            self._raise()

    # ---- collectives of bytes -----------------------------------------------------------------

    def _planning(self, parser: Parser) -> Callable[..., bool]:
        """Return a function that carries out a collective of bytes that has no plan yet."""

        def run(*arguments: Any) -> bool:
            self._run(parser, *arguments)
            return True

        return run

    def _carry(self, quick: Callable[..., bool], parser: Parser, *arguments: Any) -> None:
        """Carry out a collective of bytes."""
        if not quick(*arguments):
            self._run(parser, *arguments)

    def _move(self, name: str, *arguments: object) -> None:
        """Move bytes by a collective of the MPI library, while han's own make progress."""
        state = self._han
        with state.health.notices.leaving():
            request = getattr(MPI.Intracomm, f"I{name.lower()}")(self, *arguments)
        state.wait_for(request, f"{name[:-1].lower()} of objects")

    def _tell(
        self,
        state: State,
        obj: Any,
        call: Call,
        root: int = 0,
        wanted: bool = True,
        most: int | None = None,
    ) -> Any:
        """Tell the ranks an object; return those of all ranks if they are `wanted` here.

        Returns None, on all ranks alike, if the objects have more than `most` bytes together.
        """
        blocks, data = state.eager.blocks, self._dumped(obj)
        found = blocks.tell(state.calls.allgather, data, call, root, wanted)
        if found is blocks.unplanned:
            found = blocks.tell(self._planning(parsers.ALLGATHER), data, call, root, wanted)
        if not state.eager.left_large(found):
            return found
        try:
            sizes = state.eager.sizes(call, root)
            if most is not None and sum(sizes) > most:
                return None
            if call is Call.GATHER or call is Call.REDUCE:
                items = self._gather_large(state, data, sizes, root)
            else:
                items = self._tell_large(state, data, sizes)
        finally:
            state.eager.lock.release()
        if not wanted:
            return []
        return [*map(_loads if min(sizes) else _loaded, items)]

    def _tell_large(self, state: State, data: bytes, sizes: list[int]) -> list[Any]:
        """Tell all ranks objects whose sizes they know; return them, pickled."""
        stride = alike(sizes)
        whole = self._room(state.size * stride or sum(sizes))
        if stride:
            sent = data if len(data) == stride else _padded([data], stride)
            self._carry(state.calls.allgather, parsers.ALLGATHER, sent, whole)
        else:
            moved = [data, MPI.BYTE], [whole, sizes, MPI.BYTE]
            self._carry(state.calls.allgatherv, parsers.ALLGATHERV, *moved)
        return _cut(whole, sizes, stride)

    def _gather_large(self, state: State, data: bytes, sizes: list[int], root: int) -> list[Any]:
        """Gather objects whose sizes all ranks know; return them on `root`, pickled."""
        stride, at_root = alike(sizes), state.rank == root
        if stride:
            whole = self._room(state.size * stride) if at_root else None
            sent = data if len(data) == stride else _padded([data], stride)
            self._carry(state.calls.gather, parsers.GATHER, sent, whole, root)
            return _cut(whole, sizes, stride) if at_root else []
        if sum(sizes) <= MOST_TO_ALL:
            return self._tell_large(state, data, sizes)
        whole = self._room(sum(sizes)) if at_root else None
        target = [whole, sizes, MPI.BYTE] if at_root else None
        self._move("Gatherv", [data, MPI.BYTE], target, root)
        return _cut(whole, sizes) if at_root else []

    def _scatter_large(self, state: State, items: list[bytes] | None, root: int) -> Any:
        """Scatter objects of the root; return this rank's."""
        nbytes, stride = state.eager.size(Call.SCATTER, root), state.eager.stride(root)
        whole = self._room(stride or nbytes)
        if stride:
            every = None if items is None else _padded(items, stride)
            self._carry(state.calls.scatter, parsers.SCATTER, every, whole, root)
        else:
            self._move("Scatterv", _joined(items), [whole, MPI.BYTE], root)
        return _loaded(whole[:nbytes])

    def _exchange_large(self, state: State, items: list[bytes]) -> list[Any]:
        """Send an object to each rank; return those that arrive."""
        sizes, stride = state.eager.sizes(Call.ALLTOALL), state.eager.stride()
        whole = self._room(state.size * stride or sum(sizes))
        if stride:
            sent = _padded(items, stride)
            self._carry(state.calls.alltoall, parsers.ALLTOALL, sent, whole)
        else:
            self._move("Alltoallv", _joined(items), [whole, sizes, MPI.BYTE])
        return [*map(_loaded, _cut(whole, sizes, stride))]


def _loaded(data: Any) -> Any:
    return _loads(data) if len(data) else None


def _padded(items: Sequence[bytes], stride: int) -> bytes:
    return b"".join([item.ljust(stride, b"\0") for item in items])


def _joined(items: Sequence[bytes] | None) -> list[Any] | None:
    """Return objects as mpi4py's argument for blocks of different sizes."""
    return None if items is None else [b"".join(items), [*map(len, items)], MPI.BYTE]


def _cut(whole: Any, sizes: list[int], stride: int = 0) -> list[Any]:
    """Cut out objects, which lie one after the other or at every `stride` bytes."""
    view = memoryview(whole)
    if stride:
        return [view[k * stride : k * stride + n] for k, n in enumerate(sizes)]
    return [view[end - n : end] for n, end in zip(sizes, accumulate(sizes), strict=True)]


def _plain(items: list[Any]) -> bool:
    """Return whether predefined operations of these are sure to be the same on all ranks."""
    if PLAIN.issuperset(map(type, items)):
        return True
    if all(type(item) is np.ndarray for item in items):
        return all(item.dtype.kind in NUMBERS for item in items)
    return all(type(item) in LISTS and PLAIN.issuperset(map(type, item)) for item in items)


def _combined(items: list[Any], op: Op) -> Any:
    """Combine objects in mpi4py's order: along a binomial tree, or one after the other."""
    if not AS_TREE:
        return functools.reduce(op, items)
    step = 1
    while step < len(items):
        for k in range(0, len(items) - step, 2 * step):
            items[k] = op(items[k], items[k + step])
        step *= 2
    return items[0]
