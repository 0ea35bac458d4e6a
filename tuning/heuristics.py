"""Built-in choices: what is good on most machines, before anything is measured.

Everything that they look at is the same on all ranks.
"""

from __future__ import annotations

from dataclasses import dataclass

from han.geometry import PAGE
from han.submodules.solo_blocks import BLOCKS as READ_BLOCKS
from han.submodules.solo_reads import reads_mapped
from han.tasks.plan import as_called, levels_of
from han.tasks.signature import Signature
from han.topology import Topology
from han.tuning.choice import Choice, LevelChoice, Value, level_choice

KiB = 1024
DIRECT_RANKS = 8  # beyond, reading everyone's data costs more than a second hop
DIRECT_BYTES = 4 * KiB
MAPPED_BYTES = 64 * KiB  # from here on arrays that all map are read where they are
NEVER = 1 << 63
# From how many bytes (of a block, where there are blocks) one copy by attach beats two through
# cells: between two ranks, and among more, who get into each other's way at the one they read from.
ATTACH_BYTES = {
    "bcast": (64 * KiB, 8192 * KiB),
    "allreduce": (4096 * KiB, NEVER),
    "gather": (2048 * KiB, 2048 * KiB),
    "scatter": (2048 * KiB, 2048 * KiB),
    "allgather": (32 * KiB, NEVER),
}
ATTACH_CHUNK = {"bcast": 4096 * KiB, "allreduce": 2048 * KiB, "allgather": 4096 * KiB}
SHARED_CHUNK = 512 * KiB  # large: few hand-overs, and lines that have left the caches
BLOCK_CHUNK = 256 * KiB  # blocks: two cells that stay in a cache
SOCKET_BYTES = 512  # from here reductions stay within sockets as long as they can (Jain, VI-B)
BINARY_BYTES = 8 * KiB  # from here members of trees of reductions have two children, not more
FLAT_RANKS = 4  # up to here one parent serves all others quickly enough
BINARY_RANKS = 4  # from here it does not where it combines much
DOUBLING_BYTES = 8 * KiB  # between nodes: below, steps cost more than bytes
CHAIN_LINK = 8 * KiB  # a chain of n nodes wants (n - 1) pieces of this size under way
MESSAGE = 32 * KiB  # between nodes: below every library's limit for eager messages over TCP
SEGMENT = 128 * KiB  # of the pipeline over the levels


@dataclass(frozen=True)
class Machine:
    """What is known of the machine: whether ranks outnumber the processors of a node."""

    oversubscribed: bool = False


def choose(signature: Signature, topology: Topology, machine: Machine) -> Choice:
    """Make the built-in choice for a call."""
    effective = as_called(topology, signature)
    active = levels_of(effective, signature)
    outermost = max(active, default=0)
    segment = _segment(signature, effective.nodes) if len(active) > 1 else None
    levels = []
    for level in range(topology.depth):
        if signature.by_blocks:
            levels.append(_blocks(signature, effective, level))
        elif topology.shared[level] and _fits_cells(signature):
            levels.append(_shared(signature, effective, level, level == outermost, segment))
        else:
            levels.append(_network(signature, effective, level, level == outermost))
    return Choice(tuple(levels), segment, rule="built-in")


def _blocks(signature: Signature, topology: Topology, level: int) -> LevelChoice:
    kind, nbytes = signature.collective, signature.nbytes
    mapped = nbytes >= MAPPED_BYTES and reads_mapped(topology, signature, level)
    if kind in READ_BLOCKS and not signature.in_place and _fits_cells(signature):
        if mapped:
            return level_choice("solo", "blocks", chunk=SHARED_CHUNK)
        if _attaches(signature, topology, level):
            return level_choice("solo", "blocks", chunk=ATTACH_CHUNK.get(kind, SHARED_CHUNK))
    return level_choice("sm", "blocks", chunk=BLOCK_CHUNK, cells=2)


def _attaches(signature: Signature, topology: Topology, level: int) -> bool:
    """Whether ranks reach into each other's ordinary memory: where they may, and it pays."""
    ranks = max(len(topology.home(level, r)) for r in range(topology.size))
    least = ATTACH_BYTES.get(signature.collective, (NEVER, NEVER))[ranks > 2]
    return topology.attach and signature.nbytes >= least


def _fits_cells(signature: Signature) -> bool:
    """Whether cells hold whole elements: larger ones travel in messages, also within a node."""
    return signature.element <= PAGE


def _shared(
    signature: Signature, topology: Topology, level: int, outermost: bool, segment: int | None
) -> LevelChoice:
    ranks = max(len(topology.home(level, r)) for r in range(topology.size))
    kind, whole = signature.collective, outermost and segment is None
    if signature.nbytes >= MAPPED_BYTES and reads_mapped(topology, signature, level):
        fused = kind == "allreduce" and outermost
        return level_choice("solo", "split" if fused else "pull", chunk=SHARED_CHUNK)
    if whole and _attaches(signature, topology, level):
        algorithm = "meet" if kind == "bcast" else "split"
        return level_choice("solo", algorithm, chunk=ATTACH_CHUNK[kind])
    if kind in ("allreduce", "barrier") and outermost:
        if signature.nbytes <= DIRECT_BYTES and ranks <= DIRECT_RANKS:
            return level_choice("sm", "direct")
        if signature.nbytes > DIRECT_BYTES:
            return level_choice("sm", "split", chunk=SHARED_CHUNK)
    chunk = _quarter(min(signature.nbytes, segment or signature.nbytes))
    ordered = signature.reduces and not signature.commutative
    reduce_tree = _reduce_tree(signature, topology, ranks)
    if ranks <= FLAT_RANKS or (ordered and signature.root):
        return level_choice("sm", "flat", chunk=chunk, cells=8, **reduce_tree)
    return level_choice("sm", "knomial", radix=4, chunk=chunk, cells=8, **reduce_tree)


def _reduce_tree(signature: Signature, topology: Topology, ranks: int) -> dict[str, Value]:
    """The tree of reductions where it is not the usual one; over several sockets, and from which
    size a member is better off with two children, as Jain measured it (VI-B).
    """
    if not signature.reduces or not signature.commutative:
        return {}
    several = len(set(topology.sockets)) > len(set(topology.memory))
    large = signature.nbytes >= BINARY_BYTES
    if several and ranks > FLAT_RANKS and signature.nbytes >= SOCKET_BYTES:
        return {
            "reduce_tree": "kary", "reduce_radix": 2 if large else 3, "reduce_leaders": "last",
            "reduce_skew": "right",
        }  # fmt: skip
    return {"reduce_tree": "kary", "reduce_radix": 2} if large and ranks >= BINARY_RANKS else {}


def _quarter(nbytes: int) -> int:
    """A power of two near a quarter of the bytes: four pieces overlap well enough."""
    return min(256 * KiB, max(16 * KiB, 1 << (nbytes // 4).bit_length()))


def _segment(signature: Signature, nodes: int) -> int | None:
    """The pipeline's segment: small enough to fill it, large enough to be worth a hand-over."""
    if signature.nbytes < _chain_bytes(nodes):
        return None
    if signature.collective == "allreduce":
        return None if signature.nbytes <= 2 * SEGMENT else max(SEGMENT, nodes * MESSAGE)
    return min(SEGMENT, max(16 * KiB, 1 << (signature.nbytes // 8).bit_length()))


def _chain_bytes(nodes: int) -> int:
    return max(2, nodes - 1) * CHAIN_LINK


def _network(signature: Signature, topology: Topology, level: int, outermost: bool) -> LevelChoice:
    nodes = topology.widest(level)
    both = signature.collective in ("allreduce", "barrier")
    if both and outermost and signature.nbytes <= DOUBLING_BYTES:
        return level_choice("exchange", "recursive_doubling")
    if both and outermost and signature.commutative:
        return level_choice("exchange", "halving", segment=MESSAGE)
    if signature.reduces and not signature.commutative and signature.root:
        return level_choice("adapt", "linear", segment=4 * MESSAGE)
    if signature.nbytes >= _chain_bytes(nodes):
        piece = min(MESSAGE, max(CHAIN_LINK, 1 << (signature.nbytes // 8).bit_length()))
        return level_choice("adapt", "chain", segment=piece, window=16)
    return level_choice("adapt", "binomial", segment=2 * MESSAGE)
