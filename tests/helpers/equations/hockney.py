"""Collectives in Hockney's model, with adapters: a message takes ``alpha + bytes / bandwidth``.

Source: Tran et al., section 2 (table 3 has the notation, 2.2.1 to 2.2.6 the collectives). Ranks of
a node are consecutive. The numbers of nodes and of ranks a node are powers of two; others take the
steps of the next power. Bytes are those of a block in allgather, scatter and alltoall, and of the
message in the others. The paper multiplies bytes inside a node by the contention of adapters too;
here that belongs to adapters only. ``han.tuning.multi_rail`` has the parameters and the rings.
"""

from __future__ import annotations

from collections.abc import Callable

from han.tasks.nap import steps_of
from han.tuning.multi_rail import Hockney, allreduce_ring, doubling, ring

Formula = Callable[[Hockney, float, int, int], float]


def spread(h: Hockney, nbytes: float, nodes: int, ppn: int) -> float:
    """Section 2.2.1, direct spread, and 2.2.6, pairwise exchange: one message to each rank."""
    return (ppn - 1) * h.intra(nbytes) + (nodes - 1) * ppn * h.inter(nbytes)


def allreduce_doubling(h: Hockney, nbytes: float, nodes: int, ppn: int) -> float:
    """Section 2.2.2 and 2.2.5: the whole message in each step, and its reduction."""
    local, across, reduce = steps_of(ppn, 2), steps_of(nodes, 2), nbytes * h.gamma
    return local * (h.intra(nbytes) + reduce) + across * (h.inter(nbytes) + reduce)


def scatter_binomial(h: Hockney, nbytes: float, nodes: int, ppn: int) -> float:
    """Section 2.2.3, also a gather: each step sends half of what is left."""
    everything = nbytes * nodes * ppn
    across, local = steps_of(nodes, 2), steps_of(ppn, 2)
    between = sum(h.inter(everything / 2**k) for k in range(1, across + 1))
    return between + sum(h.intra(everything / 2**k) for k in range(across + 1, across + local + 1))


def scatter_direct(h: Hockney, nbytes: float, nodes: int, ppn: int) -> float:
    """Section 2.2.3, also a gather: the root sends to all, inside and outside its node at a time.

    The paper counts one message for each other node; here there is one for each of its ranks.
    """
    return max((ppn - 1) * h.intra(nbytes), (nodes - 1) * ppn * h.inter(nbytes))


def bcast_binomial(h: Hockney, nbytes: float, nodes: int, ppn: int) -> float:
    """Section 2.2.4: the whole message in each step, first between the nodes."""
    return steps_of(nodes, 2) * h.inter(nbytes) + steps_of(ppn, 2) * h.intra(nbytes)


def bcast_scatter_ring(h: Hockney, nbytes: float, nodes: int, ppn: int) -> float:
    """Section 2.2.4: a binomial scatter, then the ring."""
    part = nbytes / (nodes * ppn)
    return scatter_binomial(h, part, nodes, ppn) + ring(h, part, nodes, ppn)


def alltoall_bruck(h: Hockney, nbytes: float, nodes: int, ppn: int) -> float:
    """Section 2.2.6: half of all blocks in each step; two local rotations."""
    half, size = nbytes * nodes * ppn / 2, nodes * ppn
    steps = steps_of(ppn, 2) * h.intra(half) + steps_of(nodes, 2) * h.inter(half)
    return steps + 2 * h.copy(nbytes * size)


HOCKNEY: dict[tuple[str, str], Formula] = {
    ("allgather", "recursive doubling"): doubling,
    ("allgather", "ring"): ring,
    ("allgather", "direct spread"): spread,
    ("allreduce", "recursive doubling"): allreduce_doubling,
    ("allreduce", "ring"): allreduce_ring,
    ("scatter", "binomial"): scatter_binomial,
    ("scatter", "direct"): scatter_direct,
    ("bcast", "binomial"): bcast_binomial,
    ("bcast", "scatter and ring"): bcast_scatter_ring,
    ("reduce", "binomial"): allreduce_doubling,
    ("alltoall", "Bruck"): alltoall_bruck,
    ("alltoall", "pairwise"): spread,
}
