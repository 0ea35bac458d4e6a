"""The names of collectives: those that signatures and rules use, and other names of their calls."""

from __future__ import annotations

from han.common.errors import ArgumentError
from han.common.suggest import unknown

COLLECTIVES = (
    "bcast",
    "reduce",
    "allreduce",
    "barrier",
    "gather",
    "scatter",
    "allgather",
    "alltoall",
    "reduce_scatter",
)
CARRIED_AS = {"allgatherv": "allgather", "reduce_scatter_block": "reduce_scatter"}
CALLS = (*COLLECTIVES, *CARRIED_AS)
LIBRARYS = ("gatherv", "scatterv", "alltoallv", "alltoallw", "scan", "exscan")


def carried(call: str) -> str:
    """Return the collective of the Signature that a call has; raise ArgumentError if it has none.

    Calls of Allgatherv have the Signature of an allgather, with the sizes of all blocks where
    these differ.
    """
    if call not in CALLS:
        raise ArgumentError(unknown(f"collective {call!r}", call, CALLS, _advice(call)))
    return CARRIED_AS.get(call, call)


def expect_collective(name: str) -> str:
    """Return the name of a collective; raise ValueError for one that no Signature has."""
    if name not in COLLECTIVES:
        raise ValueError(unknown("collective", name, COLLECTIVES, _advice(name)))
    return name


def _advice(method: str) -> str:
    """Say how calls of ``allgatherv``, ``Ibcast`` or ``Bcast_init`` are named; "" if unknown."""
    plain = method.lower().removesuffix("_init")
    plain = plain if plain in (*CALLS, *LIBRARYS) else plain.removeprefix("i")
    if plain in CALLS:
        return f"write {CARRIED_AS.get(plain, plain)!r} for calls of {method.capitalize()}"
    if plain in LIBRARYS:
        return f"calls of {method.capitalize()} are the MPI library's own"
    return ""
