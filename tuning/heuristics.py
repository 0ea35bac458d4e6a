"""Built-in choices: what is good on most machines, before anything is measured.

Everything that they look at is the same on all ranks.
"""

from __future__ import annotations

from dataclasses import dataclass

from han.tasks.signature import Signature
from han.topology import Topology
from han.tuning.choice import Choice, LevelChoice, level_choice

KiB = 1024
DIRECT_RANKS = 8  # beyond, reading everyone's data costs more than a second hop
DIRECT_BYTES = 4 * KiB
DOUBLING_BYTES = 64 * KiB  # between nodes: below, steps cost more than bytes
CHAIN_BYTES = 256 * KiB  # from here on, enough segments to fill a chain


@dataclass(frozen=True)
class Machine:
    """What is known of the machine: whether ranks outnumber the processors of a node."""

    oversubscribed: bool = False


def choose(signature: Signature, topology: Topology, machine: Machine) -> Choice:
    """Make the built-in choice for a call."""
    ordered = signature.reduces and not signature.commutative
    effective = topology.ordered() if ordered else topology
    outermost = _outermost(effective)
    levels = []
    for level in range(topology.depth):
        if topology.shared[level]:
            levels.append(_shared(signature, effective, level, level == outermost, machine))
        else:
            levels.append(_network(signature, effective, level == outermost))
    segment = None
    if outermost and signature.nbytes >= CHAIN_BYTES:
        segment = 128 * KiB
    return Choice(tuple(levels), segment, rule="built-in")


def _outermost(topology: Topology) -> int:
    from han.tasks.lower import active_levels

    return max(active_levels(topology), default=0)


def _shared(
    signature: Signature, topology: Topology, level: int, outermost: bool, machine: Machine
) -> LevelChoice:
    ranks = max(len(topology.home(level, r)) for r in range(topology.size))
    chunk = (128 if machine.oversubscribed else 64) * KiB
    if signature.collective in ("allreduce", "barrier") and outermost:
        if signature.nbytes <= DIRECT_BYTES and ranks <= DIRECT_RANKS:
            return level_choice("sm", "direct")
        if signature.nbytes > DIRECT_BYTES:
            return level_choice("sm", "split", chunk=2 * chunk)
    if ranks <= 4 or (signature.reduces and not signature.commutative):
        return level_choice("sm", "flat", chunk=chunk)
    return (
        level_choice("sm", "knomial", radix=4, chunk=chunk)
        if signature.root == 0 or (signature.commutative)
        else level_choice("sm", "flat", chunk=chunk)
    )


def _network(signature: Signature, topology: Topology, outermost: bool) -> LevelChoice:
    both = signature.collective in ("allreduce", "barrier")
    if both and outermost and signature.nbytes <= DOUBLING_BYTES:
        return level_choice("exchange", "recursive_doubling")
    if signature.reduces and not signature.commutative and signature.root:
        return level_choice("adapt", "linear", segment=128 * KiB)
    if signature.nbytes >= CHAIN_BYTES:
        return level_choice("adapt", "chain", segment=32 * KiB, window=16)
    return level_choice("adapt", "binomial", segment=64 * KiB)
