"""How encoded objects move: in eager blocks, and in a second collective if they are large."""

from __future__ import annotations

import copyreg
import pickle
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, NoReturn, TypeAlias

import numpy as np
from mpi4py import MPI

from han import _native
from han.common.errors import ArgumentError, ArgumentTypeError, HanError, NoRuleError
from han.message import parsers
from han.message.message import root_of
from han.message.parsers import Parser
from han.runtime.direct import Direct
from han.runtime.eager import EAGER_ROOM, HEAD, TEXTS, Call, Gathers, Large, alike
from han.runtime.measured import (
    BETWEEN_NODES,
    FEW_GATHERED,
    IN_NODE,
    ObjectLimits,
)
from han.runtime.state import State
from han.tasks.own_sizes import own_sizes
from han.vector_collectives import VectorCollectives

# What mpi4py gives MPI.pickle
_native.learn_pickle(MPI.pickle, pickle.dumps, pickle.loads, copyreg.dispatch_table)
Op: TypeAlias = MPI.Op | Callable[[Any, Any], Any]


class ObjectMoves(VectorCollectives):
    """What calls of objects share: arguments, and collectives of bytes.

    If this raises on a rank before a collective has begun, the other ranks, which wait in it, are
    told.
    """

    # ---- arguments ----------------------------------------------------------------------------

    def _raise(self) -> NoReturn:
        """Raise the present error again; tell the other ranks."""
        with self._han.health.preparing():
            raise

    def _encoded(self, obj: Any) -> bytes:
        try:
            return _native.encode(obj)
        except BaseException:
            self._raise()

    def _encoded_each(self, objects: Sequence[Any] | None, size: int) -> list[bytes]:
        """Return the objects of a list, one for each rank, encoded; None stands for Nones."""
        try:
            items = [None] * size if objects is None else list(objects)
            if len(items) != size:
                raise ArgumentError(f"{len(items)} objects for {size} ranks; pass one for each")
            return [_native.encode(item) for item in items]
        except BaseException:
            self._raise()

    def _root(self, state: State, root: int) -> int:
        if root.__class__ is int and 0 <= root < state.size:
            return root
        try:
            return self._checked_root(root)
        except (ArgumentTypeError, MPI.Exception):
            self._raise()

    def _checked_root(self, root: int) -> int:
        """Return the root; raises MPI.Exception for one that is no rank, as mpi4py's methods do."""
        try:
            return root_of(self, root)
        except ArgumentTypeError:
            raise
        except ArgumentError as error:
            raise MPI.Exception(MPI.ERR_ROOT) from error

    # ---- collectives of bytes -----------------------------------------------------------------

    def _planning(self, parser: Parser) -> Callable[..., bool]:
        """Return a function that carries out a collective of bytes that has no plan yet."""

        def run(*arguments: Any) -> bool:
            self._run(parser, *arguments)
            return True

        return run

    def _carry(
        self,
        state: State,
        call: Call,
        quick: Callable[..., bool],
        parser: Parser,
        *arguments: Any,
    ) -> None:
        """Carry out the second collective of a call."""
        blocks = state.eager.blocks
        before, blocks.call = blocks.call, call
        try:
            if not quick(*arguments):
                self._run(parser, *arguments)
        finally:
            blocks.call = before

    # ---- objects of all ranks -----------------------------------------------------------------

    def _tell(
        self, state: State, data: bytes, call: Call, root: int = 0, wanted: bool = True
    ) -> Any:
        """Tell all ranks an object; return those of all ranks, or Large.

        If they are not `wanted` here, they stay encoded.
        """
        blocks = state.eager.blocks
        found = blocks.tell(state.calls.allgather, data, call, root, wanted)
        if found is blocks.unplanned:
            found = blocks.tell(self._planning(parsers.ALLGATHER), data, call, root, wanted)
        return found

    def _tell_large(self, state: State, call: Call, data: bytes, sizes: list[int]) -> list[Any]:
        """Tell all ranks objects whose sizes they know; return them, encoded."""
        stride = alike(sizes)
        with state.health.preparing():
            whole = np.empty(state.size * stride or sum(sizes), np.uint8)
            if stride:
                quick, parser = state.calls.allgather, parsers.ALLGATHER
                self._carry(state, call, quick, parser, _padded(data, stride), whole)
            else:
                moved = [data, MPI.BYTE], [whole, sizes, MPI.BYTE]
                self._carry(state, call, state.calls.allgatherv, parsers.ALLGATHERV, *moved)
        return _cut(whole, sizes, stride)

    # ---- objects of all ranks, for one ---------------------------------------------------------

    def _to_root(
        self, state: State, data: bytes, call: Call, root: int, large: Callable[..., Any], *more: Op
    ) -> Any:
        """Gather objects on the root; return them there, and None elsewhere.

        Large ones follow in messages: `large` moves them, and returns them, encoded. If it is
        interrupted, the communicator is revoked, as others may wait for such a message.
        """
        eager, wanted, health = state.eager, state.rank == root, state.health
        number = health.engines.own.issued  # calls of signal handlers may come before the messages
        try:
            act, quick, parser, room = eager.gathers or _decide(state)
            found = act(getattr(state.calls, quick), data, call, root, wanted)
            if found is eager.blocks.unplanned:
                found = act(self._planning(parser), data, call, root, wanted)
            sizes: list[int] = []
            if found.__class__ is Large:
                sizes = self._compare(state, found, root, call)
            elif wanted or len(data) <= room:
                return found
            direct = Direct(health, number, TEXTS[call])
            found = large(state, direct, data, root, found, sizes, *more)
        except HanError:
            raise
        except BaseException as error:
            if health.engines.own.issued == number:  # no memory for blocks
                self._raise()
            if not eager.blocks.done:
                health.give_up(error)
            raise
        return None if found is None else decode_each(found)

    def _compare(self, state: State, large: Large, root: int, call: Call) -> list[int]:
        """Return the sizes of objects; if the calls differ, raise and tell the other ranks."""
        with state.health.preparing():
            return large.sizes(root, call)

    def _by_messages(
        self,
        state: State,
        direct: Direct,
        data: bytes,
        root: int,
        large: Large | None,
        _: list[int],
    ) -> list[Any] | None:
        """Send a large object to the root; there, return those of all ranks, encoded."""
        if large is None:
            direct.send(data, root)
            return None
        items: list[Any] = [*large.each()]
        items[state.rank] = data
        missing = [rank for rank, item in enumerate(items) if item is None]
        for rank, item in direct.receive_each(missing).items():
            items[rank] = item
        return items

    def _scatter_large(
        self, state: State, large: Large, items: list[bytes] | None, root: int
    ) -> Any:
        """Scatter objects of the root; return this rank's."""
        (nbytes,), stride = large.sizes(root, Call.SCATTER), large.stride(state.size)
        quick, parser = state.calls.scatterv, parsers.SCATTERV
        if stride:
            quick, parser = state.calls.scatter, parsers.SCATTER
        with state.health.preparing():
            whole = np.empty(stride or nbytes, np.uint8)
            every = _joined(items, stride)
            self._carry(state, Call.SCATTER, quick, parser, every, [whole, MPI.BYTE], root)
        return _native.decode(memoryview(whole)[:nbytes])  # type: ignore[arg-type]

    def _exchange_large(self, state: State, large: Large, items: list[bytes]) -> list[Any]:
        """Send an object to each rank; return those that arrive."""
        sizes, stride = large.sizes(0, Call.ALLTOALL), large.stride(state.size)
        quick, parser = state.calls.alltoallv, parsers.ALLTOALLV
        if stride:
            quick, parser = state.calls.alltoall, parsers.ALLTOALL
        with state.health.preparing():
            whole = np.empty(state.size * stride or sum(sizes), np.uint8)
            into = [whole, MPI.BYTE] if stride else [whole, sizes, MPI.BYTE]
            every = _joined(items, stride)
            self._carry(state, Call.ALLTOALL, quick, parser, every, into)
        return decode_each(_cut(whole, sizes, stride))


def _decide(state: State) -> Gathers:
    """Decide how the ranks of a communicator gather blocks."""
    eager, most = state.eager, _most_gathered(state)
    found = Gathers(eager.blocks.gather, "gather", parsers.GATHER, EAGER_ROOM)
    if most:
        eager.blocks.most, act, room = most, eager.blocks.gather_up_to, most - HEAD.size
        found = Gathers(act, "gather_up_to", parsers.GATHER_UP_TO, room)
    eager.gathers = found
    return found


def _most_gathered(state: State) -> int:
    """Return the bytes of blocks that come as long as they are; 0 where all have the same size."""
    if state.size > FEW_GATHERED:
        return 0
    try:
        left = state.parts.planner.planned(own_sizes("gatherv")).left
    except NoRuleError:
        left = True
    return 0 if left else limits_of(state).gathered


def limits_of(state: State) -> ObjectLimits:
    """Return the bytes up to which collectives take their first way."""
    return IN_NODE if state.parts.topology.nodes == 1 else BETWEEN_NODES


def decode_each(items: Sequence[Any]) -> list[Any]:
    """Return the objects for which bytes stand."""
    return [_native.decode(item) for item in items]  # a map would end at a StopIteration


def _padded(data: bytes, stride: int) -> bytes:
    return data if len(data) == stride else data.ljust(stride, b"\0")


def _joined(items: Sequence[bytes] | None, stride: int) -> list[Any] | None:
    """Return objects as an argument of blocks of `stride` bytes, or of different sizes."""
    if items is None:
        return None
    if stride:
        return [b"".join(_padded(item, stride) for item in items), MPI.BYTE]
    return [b"".join(items), [*map(len, items)], MPI.BYTE]


def _cut(whole: Any, sizes: Sequence[int], stride: int) -> list[Any]:
    """Cut out objects, which lie at every `stride` bytes, or with 0 one after the other."""
    view = memoryview(whole)
    if stride:
        return [view[k * stride : k * stride + n] for k, n in enumerate(sizes)]
    return [view[end - n : end] for n, end in zip(sizes, accumulate(sizes), strict=True)]
