"""Collectives in Hockney's model, with adapters: a message takes ``alpha + bytes / bandwidth``.

Source: Tran et al., section 2 (table 3 has the notation, 2.2.1 to 2.2.6 the collectives). Ranks of
a node are consecutive. The numbers of nodes and of ranks a node are powers of two; others take the
steps of the next power. Bytes are those of a block in allgather, scatter and alltoall, and of the
message in the others. The paper multiplies bytes inside a node by the contention of adapters too,
and leaves the bytes of one of the links out of the ring's cost; here contention belongs to adapters
only, and the ring takes the slower of both links in each step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from han.config.machine import MachineModel
from han.tuning.formulas import steps_of


@dataclass(frozen=True)
class Hockney:
    """The parameters of table 3: seconds, and bytes a second.

    `alpha_c` and `bw_c` are of a message inside a node, `alpha_h` and `bw_h` of one that an adapter
    carries, `alpha_l` and `bw_l` of a copy in memory. `adapters` carry a message together (rail
    sharing), and `contention` ranks send through an adapter at a time (rail binding: those that
    share one). `gamma` is the time to reduce a byte.
    """

    alpha_c: float
    bw_c: float
    alpha_h: float
    bw_h: float
    alpha_l: float
    bw_l: float
    gamma: float
    adapters: int = 1
    contention: float = 1.0

    @classmethod
    def of(cls, machine: MachineModel, contention: float = 1.0) -> Hockney:
        """Take the parameters of a machine, whose ranks use one adapter each."""
        inner, outer, node = machine.levels[machine.node_level], machine.levels[-1], machine.node
        return cls(
            *(inner.latency + 2 * inner.overhead, inner.bandwidth),
            *(outer.latency + 2 * outer.overhead, min(outer.bandwidth, node.injection)),
            *(node.operation, node.copy_rate, 1 / node.reduce_rate),
            contention=contention,
        )

    def intra(self, nbytes: float) -> float:
        """Return the time of a message inside a node (T_C)."""
        return self.alpha_c + nbytes / self.bw_c

    def inter(self, nbytes: float) -> float:
        """Return the time of a message between nodes (T_H)."""
        return self.alpha_h + self.contention * nbytes / (self.bw_h * self.adapters)

    def copy(self, nbytes: float) -> float:
        """Return the time of a copy in memory (T_L)."""
        return self.alpha_l + nbytes / self.bw_l


Formula = Callable[[Hockney, float, int, int], float]


def allgather_doubling(h: Hockney, nbytes: float, nodes: int, ppn: int) -> float:
    """Section 2.2.1: messages double in each step, first inside the nodes, then between them."""
    local, across = steps_of(ppn, 2), steps_of(nodes, 2)
    inside = sum(h.intra(nbytes * 2**k) for k in range(local))
    return inside + sum(h.inter(nbytes * 2**k) for k in range(local, local + across))


def ring(h: Hockney, nbytes: float, nodes: int, ppn: int) -> float:
    """Section 2.2.1, an allgather: each step takes as long as the slowest link."""
    return (nodes * ppn - 1) * max(_links(h, nbytes, nodes, ppn))


def _links(h: Hockney, nbytes: float, nodes: int, ppn: int) -> list[float]:
    times = [h.intra(nbytes)] if ppn > 1 else []
    return [*times, h.inter(nbytes)] if nodes > 1 else [*times, 0.0]


def spread(h: Hockney, nbytes: float, nodes: int, ppn: int) -> float:
    """Section 2.2.1, direct spread, and 2.2.6, pairwise exchange: one message to each rank."""
    return (ppn - 1) * h.intra(nbytes) + (nodes - 1) * ppn * h.inter(nbytes)


def allreduce_doubling(h: Hockney, nbytes: float, nodes: int, ppn: int) -> float:
    """Section 2.2.2 and 2.2.5: the whole message in each step, and its reduction."""
    local, across, reduce = steps_of(ppn, 2), steps_of(nodes, 2), nbytes * h.gamma
    return local * (h.intra(nbytes) + reduce) + across * (h.inter(nbytes) + reduce)


def allreduce_ring(h: Hockney, nbytes: float, nodes: int, ppn: int) -> float:
    """Section 2.2.2: a ring that reduces and scatters, then the allgather's ring."""
    part = nbytes / (nodes * ppn)
    steps = nodes * ppn - 1
    return 2 * ring(h, part, nodes, ppn) + steps * part * h.gamma


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
    ("allgather", "recursive doubling"): allgather_doubling,
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
