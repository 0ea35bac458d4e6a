"""An allgather that keeps all adapters busy, in Hockney's model.

Source: Tran et al., section 4, equations 1 to 7. Bytes are those of one rank's block. Equations 6
and 7 leave the first phase out where broadcasts are slower than the network; here it is in both.
"""

from equations.hockney import Hockney
from han.tuning.formulas import steps_of


def offloaded(h: Hockney, nbytes: float, ppn: int) -> float:
    """Return how many transfers each rank leaves to the adapters (d of equation 1).

    Processors and adapters then end at the same time: ``T_C (P - 1 - d) = T_H P d``.
    """
    return h.intra(nbytes) * (ppn - 1) / (h.inter(nbytes) * ppn + h.intra(nbytes))


def allgather_in_node(h: Hockney, nbytes: float, ppn: int, offload: float) -> float:
    """Return the time of equation 2: a copy, then transfers by processors and by adapters."""
    processors = (ppn - 1 - offload) * h.intra(nbytes)
    return h.copy(nbytes) + max(processors, ppn * offload * h.inter(nbytes))


def leaders_doubling(h: Hockney, nbytes: float, nodes: int, ppn: int) -> float:
    """Return the time of equation 3: leaders exchange the blocks of nodes, by doubling."""
    return sum(h.inter(2**k * nbytes * ppn) for k in range(steps_of(nodes, 2)))


def leaders_ring(h: Hockney, nbytes: float, nodes: int, ppn: int) -> float:
    """Return the time of equation 4: leaders pass the blocks of nodes around a ring."""
    return (nodes - 1) * h.inter(nbytes * ppn)


def broadcast(h: Hockney, nbytes: float, congestion: float = 1.0) -> float:
    """Return the time of equation 5: a copy into shared memory, then copies out of it.

    `congestion` is how many times slower the copies of all members at once are than that of one.
    """
    return h.copy(nbytes) * (1 + congestion)


def allgather_doubling(
    h: Hockney, nbytes: float, nodes: int, ppn: int, offload: float = 0.0, congestion: float = 1.0
) -> float:
    """Return the time of equation 6: leaders double, and broadcasts overlap with their exchange."""
    first, node = allgather_in_node(h, nbytes, ppn, offload), nbytes * ppn
    if broadcast(h, node, congestion) <= h.inter(2 * node):
        last = broadcast(h, node * nodes / 2, congestion)
        return first + leaders_doubling(h, nbytes, nodes, ppn) + last
    return first + h.inter(node) + (nodes - 1) * broadcast(h, node, congestion)


def allgather_ring(
    h: Hockney, nbytes: float, nodes: int, ppn: int, offload: float = 0.0, congestion: float = 1.0
) -> float:
    """Return the time of equation 7: broadcasts overlap with the ring of leaders."""
    first, node = allgather_in_node(h, nbytes, ppn, offload), nbytes * ppn
    each = broadcast(h, node, congestion)
    if each <= h.inter(node):
        return first + leaders_ring(h, nbytes, nodes, ppn) + each
    return first + h.inter(node) + (nodes - 1) * each
