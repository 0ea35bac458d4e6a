"""Machines of any shape to plan and to run on."""

from __future__ import annotations

from han.topology import Topology

SYMBOLS = "snxyz"


def topology_of(domains: list[list[int]], shared_to: int) -> Topology:
    """Make a topology; the groups of level `shared_to` share memory (-1: nobody does)."""
    size, depth = len(domains[0]), len(domains)
    memory = tuple(range(size)) if shared_to < 0 else tuple(domains[shared_to])
    names = (*(f"level{k}" for k in range(depth - 1)), "network")
    symbols = (*SYMBOLS[: depth - 1], "i")
    made = tuple(tuple(d) for d in domains)
    return Topology(names, symbols, made, memory, attach=True)
