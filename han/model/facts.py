"""The facts of a call that conditions of rows test, as numbers."""

from __future__ import annotations

from typing import NamedTuple

COMPOSITIONS = ("tree", "flat", "nap", "lanes", "ring")


class Facts(NamedTuple):
    """A call on one level, the same on all ranks. Facts that hold or not are 1 or 0.

    `ranks` are the members of the level's largest group. Where data goes through cells, they are
    all ranks that share the cells; in rows of ``segments`` and ``compositions``, the nodes.
    """

    bytes: int  # of the message; of a block, where a buffer holds a block for each rank
    share: int  # of the message divided among the ranks
    link: int  # of the message for each link of a chain of all ranks; two links at least
    total: int  # of what all ranks receive; of a reduction, of all operands
    ranks: int
    prime: int  # the largest prime factor of the number of ranks
    nodes: int  # from here on the same on all levels
    ppn: int
    root: int
    rails: int  # network adapters that ranks are bound to
    cores: int  # of the node that has fewest; 0: not known
    commutative: int
    native: int  # han has a kernel for the operation and the type
    attach: int  # ranks can attach each other's memory
    uneven: int  # blocks differ in size
    in_place: int
    mesh: int
    rdma: int  # the adapters of all nodes do remote DMA
    oversubscribed: int
    sockets: int  # ranks that share memory are on several sockets
    reproducible: int  # operands are combined in the canonical order
    heavy: int  # the kernel is slower than memory
    composition: int  # its place in COMPOSITIONS
    mapped: int  # of a level again: ranks can read all buffers that they need where these are
    outermost: int
    whole: int  # the message is not cut, and the level is the outermost one


SIZES = ("bytes", "share", "link", "total")
COUNTS = ("ranks", "prime", "nodes", "ppn", "root", "rails", "cores")
QUANTITIES = len(SIZES) + len(COUNTS)  # they come first; the others take few values each
FLAGS = tuple(name for name in Facts._fields if name not in (*SIZES, *COUNTS, "composition"))
PLACES = {name: place for place, name in enumerate(Facts._fields)}
