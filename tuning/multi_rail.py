"""Allgather over several rails in closed form, on Hockney's model, and the rings beside it.

Source: Tran et al., Accelerating communication with multi-HCA aware collectives in MPI: table 3,
section 2.2 (rings, recursive doubling) and section 4 (equations 1 to 7). Ranks of a node are
consecutive; numbers of nodes that are no powers of two take the steps of the next power. Bytes are
those of a rank's block, of an allreduce those of the message. Times are in seconds.

The paper measures how much slower copies are that ranks of a node make at the same time (b, and cg
of equation 5). Here it follows from the rate of the node's memory, and start-ups are as for one.
Equations 6 and 7 leave the first phase out where broadcasts are slower than the network; here it is
in both cases. In a ring each step takes the slower of both links.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from han.config.machine import MachineModel
from han.tasks.nap import steps_of


@dataclass(frozen=True)
class Hockney:
    """The parameters of table 3: seconds, and bytes a second.

    `alpha_c` and `bw_c` are of a message inside a node, `alpha_h` and `bw_h` of one that an adapter
    carries, `alpha_l` and `bw_l` of a copy in memory. `adapters` carry a message together (rail
    sharing), and `contention` ranks send through an adapter at a time (rail binding: those that
    share one). `gamma` is the time to reduce a byte, `memory` the rate of all copies of a node.
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
    memory: float = inf

    @classmethod
    def of(cls, machine: MachineModel, contention: float = 1.0, adapters: int = 1) -> Hockney:
        """Take the parameters of a machine."""
        inner, outer, node = machine.levels[machine.node_level], machine.levels[-1], machine.node
        return cls(
            *(inner.latency + 2 * inner.overhead, inner.bandwidth),
            *(outer.latency + 2 * outer.overhead, min(outer.bandwidth, node.injection)),
            *(node.operation, node.copy_rate, 1 / node.reduce_rate),
            adapters=adapters,
            contention=contention,
            memory=node.memory,
        )

    def intra(self, nbytes: float, ranks: int = 1) -> float:
        """Return the time of a message inside a node, while `ranks` receive one each (T_C)."""
        return self.alpha_c + nbytes / self._shared(self.bw_c, ranks)

    def inter(self, nbytes: float) -> float:
        """Return the time of a message between nodes (T_H)."""
        return self.alpha_h + self.contention * nbytes / (self.bw_h * self.adapters)

    def copy(self, nbytes: float, ranks: int = 1) -> float:
        """Return the time of a copy in memory, while `ranks` make one each (T_L)."""
        return self.alpha_l + nbytes / self._shared(self.bw_l, ranks)

    def _shared(self, rate: float, ranks: int) -> float:
        return min(rate, self.memory / max(1, ranks))


# ---- all ranks on one level: section 2.2 --------------------------------------------------------


def doubling(h: Hockney, nbytes: float, nodes: int, ppn: int) -> float:
    """Section 2.2.1, an allgather: messages double, first inside the nodes, then between them."""
    local, across = steps_of(ppn, 2), steps_of(nodes, 2)
    inside = sum(h.intra(nbytes * 2**k, ppn) for k in range(local))
    return inside + sum(h.inter(nbytes * 2**k) for k in range(local, local + across))


def ring(h: Hockney, nbytes: float, nodes: int, ppn: int) -> float:
    """Section 2.2.1, an allgather: each step takes as long as the slowest link."""
    inside = h.intra(nbytes, ppn) if ppn > 1 else 0.0
    return (nodes * ppn - 1) * max(inside, h.inter(nbytes) if nodes > 1 else 0.0)


def ring_reduce_scatter(h: Hockney, nbytes: float, nodes: int, ppn: int) -> float:
    """Section 2.2.2: a ring that reduces a part of the message in each step."""
    part = nbytes / (nodes * ppn)
    return ring(h, part, nodes, ppn) + (nodes * ppn - 1) * part * h.gamma


def allreduce_ring(h: Hockney, nbytes: float, nodes: int, ppn: int) -> float:
    """Section 2.2.2: a ring that reduces and scatters, then the allgather's ring."""
    gathered = ring(h, nbytes / (nodes * ppn), nodes, ppn)
    return ring_reduce_scatter(h, nbytes, nodes, ppn) + gathered


# ---- the multi-rail allgather: section 4 --------------------------------------------------------


def offloaded(h: Hockney, nbytes: float, ppn: int) -> float:
    """Return how many transfers each rank leaves to the adapters (d of equation 1).

    Processors and adapters then end at the same time: ``T_C (P - 1 - d) = T_H P d``.
    """
    inside = h.intra(nbytes, ppn)
    return inside * (ppn - 1) / (h.inter(nbytes) * ppn + inside)


def shares(h: Hockney, nbytes: float, ppn: int, offload: float) -> tuple[float, float]:
    """Return the times of processors and of adapters in equation 2."""
    return (ppn - 1 - offload) * h.intra(nbytes, ppn), ppn * offload * h.inter(nbytes)


def whole_offload(machine: MachineModel, nbytes: float, ppn: int) -> int:
    """Return the whole number of transfers near equation 1 that is best by equation 2.

    It is the parameter `offload` of `sm`. All rails of a node share its messages. Of two that are
    equally good it is the larger one: processors also copy into cells, which the equation omits.
    """
    h = Hockney.of(machine, adapters=machine.node.rails)
    least = int(offloaded(h, nbytes, ppn))
    return min(least + 1, least, key=lambda d: allgather_in_node(h, nbytes, ppn, d))


def allgather_in_node(h: Hockney, nbytes: float, ppn: int, offload: float) -> float:
    """Return the time of equation 2: a copy, then transfers by processors and by adapters."""
    return h.copy(nbytes) + max(shares(h, nbytes, ppn, offload))


def leaders_doubling(h: Hockney, nbytes: float, nodes: int, ppn: int) -> float:
    """Return the time of equation 3: leaders exchange the blocks of nodes, by doubling."""
    return sum(h.inter(2**k * nbytes * ppn) for k in range(steps_of(nodes, 2)))


def leaders_ring(h: Hockney, nbytes: float, nodes: int, ppn: int) -> float:
    """Return the time of equation 4: leaders pass the blocks of nodes around a ring."""
    return (nodes - 1) * h.inter(nbytes * ppn)


def broadcast(h: Hockney, nbytes: float, readers: int) -> float:
    """Return the time of equation 5: a copy into shared memory, then all copies out of it."""
    return h.copy(nbytes) + h.copy(nbytes, readers)


def allgather_doubling(
    h: Hockney, nbytes: float, nodes: int, ppn: int, offload: float = 0.0
) -> float:
    """Return the time of equation 6: leaders double, and broadcasts overlap with their exchange."""
    first, node = allgather_in_node(h, nbytes, ppn, offload), nbytes * ppn
    if nodes == 1:
        return first
    each = broadcast(h, node, ppn - 1)
    if each <= h.inter(2 * node):
        last = broadcast(h, node * nodes / 2, ppn - 1)
        return first + leaders_doubling(h, nbytes, nodes, ppn) + last
    return first + h.inter(node) + (nodes - 1) * each


def allgather_ring(h: Hockney, nbytes: float, nodes: int, ppn: int, offload: float = 0.0) -> float:
    """Return the time of equation 7: broadcasts overlap with the ring of leaders."""
    first, node = allgather_in_node(h, nbytes, ppn, offload), nbytes * ppn
    if nodes == 1:
        return first
    each = broadcast(h, node, ppn - 1)
    if each <= h.inter(node):
        return first + leaders_ring(h, nbytes, nodes, ppn) + each
    return first + h.inter(node) + (nodes - 1) * each
