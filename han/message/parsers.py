"""The parsers of all calls: each turns the arguments of one method into a Message."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from han.message import blocks, message, uneven
from han.message.message import Message


class Parser(NamedTuple):
    """The parser of one method; `by_blocks` says that a buffer holds a block for each rank."""

    name: str
    parse: Callable[..., Message]
    by_blocks: bool = False


BARRIER = Parser("Barrier", message.barrier)
BCAST = Parser("Bcast", message.bcast)
REDUCE = Parser("Reduce", message.reduce)
ALLREDUCE = Parser("Allreduce", message.allreduce)
GATHER = Parser("Gather", blocks.gather, True)
SCATTER = Parser("Scatter", blocks.scatter, True)
ALLGATHER = Parser("Allgather", blocks.allgather, True)
ALLTOALL = Parser("Alltoall", blocks.alltoall, True)
REDUCE_SCATTER_BLOCK = Parser("Reduce_scatter_block", blocks.reduce_scatter_block, True)
ALLGATHERV = Parser("Allgatherv", uneven.allgatherv, True)
REDUCE_SCATTER = Parser("Reduce_scatter", uneven.reduce_scatter, True)
RECVCOUNTS = Parser("Reduce_scatter", uneven.recvcounts, True)  # what all ranks receive
