"""Arguments of the methods that make communicators, read as mpi4py reads them.

A function returns what all ranks must pass alike, or raises for what mpi4py or the MPI library
would refuse on this rank alone.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from mpi4py import MPI

from han.common.errors import ArgumentError, ArgumentTypeError
from han.message.message import whole_of
from han.message.unlocked import ranks_of

LARGEST = 2**31 - 1  # of MPI's int


def integer(value: Any) -> int:
    """Return a colour, key, tag or rank as MPI's int."""
    return _fitting(whole_of(value))


def _fitting(number: int) -> int:
    if not -LARGEST - 1 <= number <= LARGEST:
        raise OverflowError(f"{number} does not fit into MPI's int")
    return number


def integers(values: Any, length: int | None = None) -> list[int]:
    """Return the integers of a sequence of `length` items."""
    found = [_fitting(operator.index(values[i])) for i in range(len(values))]
    if length is not None and len(found) != length:
        raise ValueError(f"expecting {length} items, got {len(found)}")
    return found


def info(value: Any) -> None:
    """Raise unless `value` is an MPI.Info; returns None, as hints may differ between ranks."""
    if value is not None and not isinstance(value, MPI.Info):
        raise ArgumentTypeError(f"expecting an MPI.Info, not {type(value).__name__}")


def split(color: Any, key: Any) -> None:
    """Read the arguments of Split, which may differ between ranks."""
    number = integer(color)
    integer(key)
    if number < 0 and number != MPI.UNDEFINED:
        raise ArgumentError(f"Split: color is {number}; pass 0 or more, or MPI.UNDEFINED")


def split_type(kind: Any, key: Any, hints: Any) -> None:
    """Read the arguments of Split_type."""
    integer(kind)
    integer(key)
    info(hints)


def group(step: str, members: Any, comm: MPI.Intracomm) -> list[int]:
    """Return the ranks of a group's members in `comm`."""
    if not isinstance(members, MPI.Group):
        raise ArgumentTypeError(f"{step}: expecting an MPI.Group, not {type(members).__name__}")
    ranks = ranks_of(members, comm)
    if MPI.UNDEFINED in ranks:
        raise ArgumentError(f"{step}: the group has members outside of this communicator")
    return ranks


def cart(dims: Any, periods: Any, reorder: Any) -> tuple[object, ...]:
    """Read the arguments of Create_cart."""
    sizes = integers(dims)
    wrap = [bool(periods)] * len(sizes)
    if periods is not None and not isinstance(periods, bool):
        wrap = [bool(period) for period in integers(periods, len(sizes))]
    return sizes, wrap, bool(reorder)


def graph(index: Any, edges: Any, reorder: Any) -> tuple[object, ...]:
    """Read the arguments of Create_graph."""
    return integers(index), integers(edges), bool(reorder)


def remaining(dims: Any, count: int) -> list[bool]:
    """Read the argument of Sub of a grid of `count` dimensions."""
    return [bool(remains) for remains in integers(dims, count)]


def _neighbours(name: str, ranks: Sequence[int], size: int) -> None:
    wrong = [r for r in ranks if not 0 <= r < size and r != MPI.PROC_NULL]
    if wrong:
        raise ArgumentError(f"{name} contain {wrong[0]}; the communicator has ranks 0..{size - 1}")


def _weights(values: Any, count: int) -> None:
    """Read weights: None, MPI.UNWEIGHTED, MPI.WEIGHTS_EMPTY or `count` integers."""
    constant = isinstance(values, int) and values in (MPI.UNWEIGHTED, MPI.WEIGHTS_EMPTY)
    if values is not None and not constant:
        integers(values, count)
    if isinstance(values, int) and values == MPI.WEIGHTS_EMPTY and count:
        raise ValueError("empty weights but nonzero degree")


def adjacent(
    sources: Any, destinations: Any, weights: tuple[Any, Any], hints: Any, size: int
) -> None:
    """Read the arguments of Create_dist_graph_adjacent; each rank passes its own neighbours."""
    names = ("sources", "destinations")
    for name, given, weight in zip(names, (sources, destinations), weights, strict=True):
        ranks = [] if given is None else integers(given)
        _neighbours(name, ranks, size)
        _weights(weight, len(ranks))
    info(hints)


def dist_graph(
    sources: Any, degrees: Any, destinations: Any, weights: Any, hints: Any, size: int
) -> None:
    """Read the arguments of Create_dist_graph; each rank passes a part of the graph."""
    starts = integers(sources)
    counts = integers(degrees, len(starts))
    if min(counts, default=0) < 0:
        raise ArgumentError(f"degrees contain {min(counts)}; pass 0 or more")
    ends = integers(destinations, sum(counts))
    _neighbours("sources", starts, size)
    _neighbours("destinations", ends, size)
    _weights(weights, sum(counts))
    info(hints)


def intercomm(local_leader: Any, peer_comm: Any, remote_leader: Any, tag: Any, size: int) -> object:
    """Read the arguments of Create_intercomm; `size` is that of the local communicator."""
    leader, number = integer(local_leader), integer(tag)
    integer(remote_leader)
    if not 0 <= leader < size:
        raise ArgumentError(
            f"Create_intercomm: local_leader is {leader}; the communicator has ranks 0..{size - 1}"
        )
    if not isinstance(peer_comm, MPI.Comm):
        raise ArgumentTypeError(
            f"Create_intercomm: peer_comm is no MPI.Intracomm but {type(peer_comm).__name__}"
        )
    return leader, number
