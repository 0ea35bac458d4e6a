"""The process group of the backend: the methods that torch.distributed calls, on a ``han.Comm``.

Each method turns tensors into buffers, makes one call of han and returns its Work. A call that the
program waits for at once (``asyncOp`` of its options is False) is han's blocking one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import torch.distributed as dist
from mpi4py import MPI
from torch import Tensor
from torch.distributed.distributed_c10d import (
    AllgatherOptions,
    AllreduceCoalescedOptions,
    AllreduceOptions,
    AllToAllOptions,
    BarrierOptions,
    BroadcastOptions,
    GatherOptions,
    ReduceOptions,
    ReduceScatterOptions,
    ScatterOptions,
)

from han.comm import Comm
from han.common.errors import ArgumentError
from han.torch.checks import check_blocks, check_same, splits
from han.torch.tensors import apart, flattened, joined, moved, only, operand
from han.torch.works import Several, Watcher, Work, nothing

Tensors = Sequence[Tensor]
# Options of calls that name none
ALLREDUCE = AllreduceOptions()
ALLREDUCE_COALESCED = AllreduceCoalescedOptions()
REDUCE = ReduceOptions()
REDUCE_SCATTER = ReduceScatterOptions()
BROADCAST = BroadcastOptions()
ALLGATHER = AllgatherOptions()
GATHER = GatherOptions()
SCATTER = ScatterOptions()
ALL_TO_ALL = AllToAllOptions()
BARRIER = BarrierOptions()


class Group(dist.ProcessGroup):  # type: ignore[misc]  # without torch's types it is Any
    """The ranks of a ``han.Comm`` as a process group; making one is local.

    The group owns the communicator: `shutdown` frees it.
    """

    def __init__(self, comm: Comm, store: Any) -> None:
        super().__init__(comm.rank, comm.size)
        self.comm, self._store = comm, store
        self._watcher = Watcher()
        self._works: deque[Work] = deque()  # under way: they deliver even if nobody waits
        self._name = self._about = ""

    # ---- what torch asks about a group ------------------------------------------------------

    def getBackendName(self) -> str:
        """Return the name of the backend."""
        return "han"

    def getGroupName(self) -> str:
        """Return the name by which torch finds the group."""
        return self._name

    def setGroupName(self, name: str) -> None:
        """Take the name by which torch finds the group."""
        self._name = name

    def getGroupDesc(self) -> str:
        """Return what the program says about the group."""
        return self._about

    def setGroupDesc(self, about: str) -> None:
        """Take what the program says about the group."""
        self._about = about

    def get_group_store(self) -> Any:
        """Return the store of the group."""
        return self._store

    def shutdown(self) -> None:
        """Wait for all calls, and free the communicator; collective.

        Raises the error of a call that nobody has waited for.
        """
        for work in self._works:
            work.finish()
        self._watcher.stop()
        errors = [error for work in self._works if (error := work.untold) is not None]
        self._works.clear()
        self.comm.Free()
        if errors:
            raise errors[0]

    def abort(self) -> None:
        """Make the group unusable on all its ranks."""
        self.comm.Revoke()

    # ---- reductions -------------------------------------------------------------------------

    def allreduce(self, tensors: Tensors, opts: Any = ALLREDUCE) -> Work:
        """Combine a tensor of all ranks, in place."""
        tensor = only(tensors, "all_reduce")
        mine = operand(tensor, opts.reduceOp, self.comm.size, "all_reduce")
        arguments = MPI.IN_PLACE, mine.data, mine.op
        return self._call("allreduce", arguments, opts, tensors, mine.deliver)

    def allreduce_coalesced(self, tensors: Tensors, opts: Any = ALLREDUCE_COALESCED) -> Work:
        """Combine several tensors of one type in one call, in place."""
        step = "all_reduce_coalesced"
        flat = flattened(tensors, step)
        mine = operand(flat, opts.reduceOp, self.comm.size, step)

        def deliver() -> None:
            mine.deliver()
            parts = flat.split([tensor.numel() for tensor in tensors])
            for tensor, part in zip(tensors, parts, strict=True):
                tensor.detach().copy_(part.view(tensor.shape))

        return self._call("allreduce", (MPI.IN_PLACE, mine.data, mine.op), opts, tensors, deliver)

    def reduce(self, tensors: Tensors, opts: Any = REDUCE) -> Work:
        """Combine a tensor of all ranks, into that of the root."""
        mine, root = only(tensors, "reduce"), opts.rootRank
        found = operand(mine, opts.reduceOp, self.comm.size, "reduce")
        if root == self.comm.rank:
            arguments = MPI.IN_PLACE, found.data, found.op, root
            return self._call("reduce", arguments, opts, tensors, found.deliver)
        return self._call("reduce", (found.data, None, found.op, root), opts, tensors)

    def reduce_scatter(
        self, outputs: Tensors, inputs: Sequence[Tensors],
        opts: Any = REDUCE_SCATTER,
    ) -> Work:  # fmt: skip
        """Combine lists of tensors of all ranks; each rank gets the tensor with its number."""
        step = "reduce_scatter"
        into, parts = only(outputs, step), only(inputs, step)
        check_blocks(parts, self.comm.size, step)
        check_same(into, parts[self.comm.rank], step)
        return self._scatter_sum(
            into, flattened(parts, step), [part.numel() for part in parts], opts, step
        )

    def reduce_scatter_single(
        self, output: Tensor, input: Tensor, opts: Any = REDUCE_SCATTER
    ) -> Work:
        """Combine a tensor of all ranks; each rank gets its part of the result."""
        step = "reduce_scatter_single"
        if output.dtype != input.dtype:
            raise ArgumentError(f"{step}: output is {output.dtype}, input is {input.dtype}")
        counts = splits([], input.numel(), output.numel(), self.comm.size, step)
        return self._scatter_sum(output, input, counts, opts, step)

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(
        self, outputs: Tensors, inputs: Tensors, opts: Any = REDUCE_SCATTER
    ) -> Work:
        """Make a `reduce_scatter_single` of each pair of tensors."""
        pairs = zip(outputs, inputs, strict=True)
        return Several("reduce_scatter", [self.reduce_scatter_single(*p, opts) for p in pairs])

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def _scatter_sum(
        self, output: Tensor, input: Tensor, counts: list[int], opts: Any, step: str
    ) -> Work:
        """Combine a tensor of all ranks; `counts` are the elements of each rank's part."""
        mine = operand(input, opts.reduceOp, self.comm.size, step)
        into = mine.like(output, step)
        send = apart(mine.data, into.data)
        if len({*counts}) == 1:
            arguments: tuple[Any, ...] = send, into.data, mine.op
            return self._call("reduce_scatter_block", arguments, opts, [output], into.deliver)
        lengths = [count * (2 if input.is_complex() else 1) for count in counts]
        arguments = send, into.data, lengths, mine.op
        return self._call("reduce_scatter", arguments, opts, [output], into.deliver)

    # ---- movements --------------------------------------------------------------------------

    def broadcast(self, tensors: Tensors, opts: Any = BROADCAST) -> Work:
        """Give the tensor of the root to all ranks."""
        mine = moved(only(tensors, "broadcast"), "broadcast")
        return self._call("bcast", (mine.data, opts.rootRank), opts, tensors, mine.deliver)

    def allgather(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = ALLGATHER) -> Work:
        """Give the tensors of all ranks to all ranks, in lists; they may have different sizes."""
        step = "all_gather"
        parts, mine = only(outputs, step), only(inputs, step)
        check_blocks(parts, self.comm.size, step)
        check_same(parts[self.comm.rank], mine, step)
        send, into = moved(mine, step).data, joined(parts, step, filled=False)
        if len({*into.counts}) == 1:
            return self._call("allgather", (send, into.data), opts, parts, into.deliver)
        arguments = send, [into.data, into.counts]
        return self._call("allgatherv", arguments, opts, parts, into.deliver)

    def all_gather_single(self, output: Tensor, input: Tensor, opts: Any = ALLGATHER) -> Work:
        """Give the tensors of all ranks to all ranks, one after the other in `output`."""
        step = "all_gather_single"
        splits([], output.numel(), input.numel(), self.comm.size, step)
        send, into = moved(input, step).data, moved(output, step)
        place = into.data.data_ptr() + self.comm.rank * send.nbytes
        mine = MPI.IN_PLACE if send.data_ptr() == place else apart(send, into.data)
        return self._call("allgather", (mine, into.data), opts, [output], into.deliver)

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(
        self, outputs: Tensors, inputs: Tensors, opts: Any = ALLGATHER
    ) -> Work:
        """Make an `all_gather_single` of each pair of tensors."""
        pairs = zip(outputs, inputs, strict=True)
        return Several("all_gather", [self.all_gather_single(*pair, opts) for pair in pairs])

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def allgather_coalesced(
        self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = ALLGATHER
    ) -> Work:
        """Give several tensors of all ranks to all ranks: those of a rank are one list."""
        columns = zip(*outputs, strict=True)
        works = [
            self.allgather([list(column)], [mine], opts)
            for column, mine in zip(columns, inputs, strict=True)
        ]
        return Several("all_gather_coalesced", works)

    def gather(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = GATHER) -> Work:
        """Give the tensors of all ranks to the root, in a list."""
        mine, root = only(inputs, "gather"), opts.rootRank
        send = moved(mine, "gather").data
        if root != self.comm.rank:
            return self._call("gather", (send, None, root), opts, [])
        parts = only(outputs, "gather")
        check_blocks(parts, self.comm.size, "gather", mine)
        into = joined(parts, "gather", filled=False)
        return self._call("gather", (send, into.data, root), opts, parts, into.deliver)

    def scatter(self, outputs: Tensors, inputs: Sequence[Tensors], opts: Any = SCATTER) -> Work:
        """Give each rank the tensor with its number in the root's list."""
        mine, root = only(outputs, "scatter"), opts.rootRank
        into, send = moved(mine, "scatter"), None
        if root == self.comm.rank:
            parts = only(inputs, "scatter")
            check_blocks(parts, self.comm.size, "scatter", mine)
            send = joined(parts, "scatter", filled=True).data
        return self._call("scatter", (send, into.data, root), opts, outputs, into.deliver)

    def all_to_all_single(
        self, output: Tensor, input: Tensor, output_splits: list[int], input_splits: list[int],
        opts: Any = ALL_TO_ALL,
    ) -> Work:  # fmt: skip
        """Give each rank its rows of `input`; without lists of rows all ranks get as many."""
        step, size = "all_to_all_single", self.comm.size
        into = moved(output, step)
        send = apart(moved(input, step).data, into.data)
        sent = splits(input_splits, send.numel(), None, size, step, len_of(input))
        found = splits(output_splits, into.data.numel(), None, size, step, len_of(output))
        if not output_splits and not input_splits:
            return self._call("alltoall", (send, into.data), opts, [output], into.deliver)
        arguments = [send, sent], [into.data, found]
        return self._call("alltoallv", arguments, opts, [output], into.deliver)

    alltoall_base = all_to_all_single

    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any = ALL_TO_ALL) -> Work:
        """Give each rank the tensor with its number; tensors may have different sizes."""
        for tensors in (outputs, inputs):
            check_blocks(tensors, self.comm.size, "all_to_all")
        send = joined(inputs, "all_to_all", filled=True)
        into = joined(outputs, "all_to_all", filled=False)
        arguments = [send.data, send.counts], [into.data, into.counts]
        return self._call("alltoallv", arguments, opts, outputs, into.deliver)

    def barrier(self, opts: Any = BARRIER) -> Work:
        """Wait until all ranks have called this."""
        return self._call("barrier", (), opts, [])

    # ---- messages ---------------------------------------------------------------------------

    def send(self, tensors: Tensors, rank: int, tag: int) -> Work:
        """Send a tensor to a rank."""
        data = moved(only(tensors, "send"), "send").data.numpy()
        return self._under_way("send", tensors, self.comm.Isend(data, rank, tag))

    def recv(self, tensors: Tensors, rank: int, tag: int) -> Work:
        """Receive a tensor from a rank."""
        into = moved(only(tensors, "recv"), "recv")
        request = self.comm.Irecv(into.data.numpy(), rank, tag)
        return self._under_way("recv", tensors, request, into.deliver, status=MPI.Status())

    def recv_anysource(self, tensors: Tensors, tag: int) -> Work:
        """Receive a tensor from any rank."""
        return self.recv(tensors, MPI.ANY_SOURCE, tag)

    # ---- calls of han -----------------------------------------------------------------------

    def _call(
        self, name: str, arguments: tuple[Any, ...], opts: Any, outputs: Tensors,
        deliver: Callable[[], None] = nothing,
    ) -> Work:  # fmt: skip
        """Make a call of han, whose results `deliver` brings to `outputs`."""
        if opts.asyncOp:
            request = getattr(self.comm, "I" + name)(*arguments)
            return self._under_way(name, outputs, request, deliver, watcher=self._watcher)
        getattr(self.comm, name.capitalize())(*arguments)
        deliver()
        return Work(name, outputs)

    def _under_way(
        self, name: str, outputs: Tensors, request: Any, deliver: Callable[[], None] = nothing,
        **more: Any,
    ) -> Work:  # fmt: skip
        """Return the work of a request, and keep it until it is complete."""
        work = Work(name, outputs, request, deliver, **more)
        kept = (one for one in self._works if not one.is_completed() or one.untold is not None)
        self._works = deque(kept)
        self._works.append(work)
        return work


def len_of(tensor: Tensor) -> int:
    """Return the number of rows of a tensor."""
    return len(tensor) if tensor.ndim else 1
