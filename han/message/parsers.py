"""The parser of each method: it turns the arguments into a Message."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral
from typing import Any, NamedTuple

from han.message import blocks, message, own_sizes, uneven
from han.message.message import Message


class Parser(NamedTuple):
    """The parser of a method.

    `init` is the look-up of the persistent method, empty if the quick way knows no such method.
    """

    name: str
    parse: Callable[..., Message]
    init: str = ""


def _parser(method: str, parse: Callable[..., Message]) -> Parser:
    return Parser(method, parse, f"{method.lower()}_init")


BARRIER = _parser("Barrier", message.barrier)
BCAST = _parser("Bcast", blocks.bcast)
REDUCE = _parser("Reduce", message.reduce)
ALLREDUCE = _parser("Allreduce", message.allreduce)
GATHER = _parser("Gather", blocks.gather)
SCATTER = _parser("Scatter", blocks.scatter)
ALLGATHER = _parser("Allgather", blocks.allgather)
ALLTOALL = _parser("Alltoall", blocks.alltoall)
REDUCE_SCATTER_BLOCK = _parser("Reduce_scatter_block", blocks.reduce_scatter_block)
GATHERV = _parser("Gatherv", own_sizes.gatherv)
SCATTERV = _parser("Scatterv", own_sizes.scatterv)
ALLTOALLV = _parser("Alltoallv", own_sizes.alltoallv)
ALLTOALLW = _parser("Alltoallw", own_sizes.alltoallw)
ALLGATHERV = _parser("Allgatherv", uneven.allgatherv)
REDUCE_SCATTER = _parser("Reduce_scatter", uneven.reduce_scatter)
SCAN = _parser("Scan", message.scan)
EXSCAN = _parser("Exscan", message.exscan)
GATHER_UP_TO = _parser("Gatherv", own_sizes.gather_up_to)  # into equal parts of a buffer
RECVCOUNTS = _parser("Reduce_scatter", uneven.recvcounts)  # each rank tells its number of elements


def for_mpi(arguments: tuple[object, ...]) -> tuple[object, ...]:
    """Return arguments as mpi4py takes them, which does not know buffers spelled ``[array]``."""
    return tuple(map(_unwrapped, arguments))


def _unwrapped(argument: Any) -> object:
    alone = isinstance(argument, list | tuple) and len(argument) == 1
    return argument[0] if alone and not isinstance(argument[0], Integral) else argument
