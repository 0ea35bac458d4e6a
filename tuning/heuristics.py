"""Built-in choices: they serve most machines well without measurements.

They depend only on values that are the same on all ranks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from han.model.channel_layout import PAGE
from han.model.topology import Topology
from han.submodules.exchange.factors import core_of
from han.submodules.registry import submodule
from han.tasks.choice import Choice, LevelChoice, Value, level_choice
from han.tasks.compositions import TREE, composition
from han.tasks.lanes import inner_levels, lanes_of, outer_levels
from han.tasks.outline import as_called, levels_of
from han.tasks.signature import Signature

KiB = 1024
BUILT_IN = "built-in"  # the name of their rule
DIRECT_RANKS = 8  # with more, reading all operands costs more than a gather and a release
DIRECT_BYTES = 4 * KiB
MAPPED_BYTES = 64 * KiB  # least size at which ranks read mapped buffers where they are
MAPPED_PAIR = {  # the same for two ranks on a mesh
    "bcast": 4 * KiB, "allgather": 2 * KiB, "reduce": 256 * KiB, "allreduce": 256 * KiB,
}  # fmt: skip
NEVER = 1 << 63
# Least sizes (of a block, in calls by blocks) at which ranks attach each other's memory instead of
# copying through cells: for two ranks, and for more. Many ranks that read the same memory slow
# each other down. On a mesh, each of the two copies through cells costs as much as the kernel's
# single copy (docs/decisions/attach-sizes.md).
ATTACH_NEAR = {
    "bcast": (32768 * KiB, 32768 * KiB),
    "allreduce": (65536 * KiB, NEVER),
    "scatter": (4096 * KiB, 2048 * KiB),
    "allgather": (16384 * KiB, NEVER),
}
ATTACH_MESH = {
    "bcast": (32 * KiB, 2048 * KiB),
    "allreduce": (2048 * KiB, NEVER),
    "scatter": (32 * KiB, 64 * KiB),
    "gather": (NEVER, 128 * KiB),
    "allgather": (32 * KiB, 128 * KiB),
    "alltoall": (32 * KiB, 32 * KiB),
}
# Collectives in which all ranks read the same data. Through cells the data comes from memory once,
# and later readers find it in a cache. So on a mesh, more than ALL_RANKS ranks use cells, and so do
# more than two ranks that receive more than ALL_BYTES in all.
READ_BY_ALL = ("bcast", "allgather")
ALL_RANKS = 4
ALL_BYTES = 32768 * KiB
ATTACH_CHUNK = {"bcast": 4096 * KiB, "allreduce": 2048 * KiB, "allgather": 4096 * KiB}
# Collectives with trials between cells and attach, and the algorithm of `solo` for attach.
# RIVAL_BYTES are the least sizes: for two ranks, and for more ranks or oversubscribed nodes.
RIVALS = {
    "bcast": "meet", "allreduce": "each", "scatter": "blocks", "allgather": "blocks",
    "alltoall": "blocks",
}  # fmt: skip
RIVAL_BYTES = (64 * KiB, 512 * KiB)
# Up to this size and number of ranks, one rank combines all operands on oversubscribed nodes: a
# rank that waits for a peer may have to wait for a processor too (docs/decisions/turns.md).
TURNS_BYTES, TURNS_RANKS = 32 * KiB, 8
SHARED_CHUNK = 512 * KiB  # large, so that ranks post few flags
# Up to these sizes each of two ranks combines the whole message, which takes one step instead of
# two (docs/decisions/two-ranks.md).
EACH_BYTES = 32768 * KiB
EACH_MESH = 2048 * KiB
EACH_USER = 128 * KiB  # for users' functions: both ranks call the function on all elements
EACH_CHUNK = 128 * KiB
EACH_LEAST, EACH_MAPPED = 1 * KiB, 16 * KiB  # range of sizes for mapped buffers on a mesh
SPLIT_CHUNK = 320 * KiB  # as much as a member's cells hold in rings of 2 MiB
BLOCK_CHUNK = 256 * KiB  # for calls by blocks: two cells that stay in a cache
SOCKET_BYTES = 512  # from this size, reductions follow the sockets (Jain et al., section VI-B)
BINARY_BYTES = 8 * KiB  # from this size, trees of reductions are binary
FLAT_RANKS = 4  # up to this number of ranks, one parent serves all others
BINARY_RANKS = 4  # from this number of ranks, trees of large reductions are binary
DOUBLING_BYTES = 16 * KiB  # between nodes: up to this size, steps cost more than bytes
EXCHANGE_BLOCK = 16 * KiB  # between nodes: a node's least share of a large message
CHAIN_LINK = 8 * KiB  # a chain of n nodes needs n - 1 pieces of this size to fill its pipeline
MESSAGE = 32 * KiB  # between nodes: below the eager limit of every MPI library over TCP
SEGMENT = 128 * KiB  # for the pipeline over the levels
NAP_OPERANDS = 4 * KiB  # in nap: from more bytes on, reading them all costs more than a second step
LANE_SEGMENT = 512 * KiB  # of an allreduce: lanes work on a part of it each
LANE_CHUNK = 128 * KiB  # bytes of all lanes' shares that a rank shows at a time


@dataclass(frozen=True)
class NodeTraits:
    """Two facts about nodes. Each is true if it holds on at least one node."""

    oversubscribed: bool = False  # ranks outnumber processors
    mesh: bool = False  # cache lines move slowly from core to core


def choose(
    signature: Signature, topology: Topology, traits: NodeTraits, name: str = TREE
) -> Choice:
    """Make the built-in choice for a call, of the composition `name`."""
    effective = as_called(topology, signature, name)
    usual = _usual(signature, effective, traits)
    if not composition(name).sides or not (inner_levels(effective) and outer_levels(effective)):
        return replace(usual, composition=name)
    found, segment = (_nap if name == "nap" else _lanes)(signature, effective, usual)
    levels = [found.get(k, level.alike) for k, level in enumerate(usual.levels)]
    return replace(usual, levels=tuple(levels), segment=segment, composition=name)


OnLevels = tuple[dict[int, LevelChoice], int | None]  # levels that a composition changes; a segment


def _nap(signature: Signature, view: Topology, usual: Choice) -> OnLevels:
    """Choose for nap: inside a node, every rank combines all operands of small messages."""
    *inside, node = inner_levels(view)
    operands = signature.nbytes * view.widest(node)
    small = operands <= NAP_OPERANDS and signature.nbytes <= PAGE // 2
    whole = (
        level_choice("sm", "direct") if small else level_choice("sm", "split", chunk=SPLIT_CHUNK)
    )
    below = {k: level_choice("sm", "flat") for k in inside}
    return {**below, node: whole, view.active[-1]: level_choice("nap", "pairs")}, None


def _lanes(signature: Signature, view: Topology, usual: Choice) -> OnLevels:
    """Choose for lanes: between nodes, what a message of the size of a lane's share takes."""
    inner, (*between, top) = inner_levels(view), outer_levels(view)
    lanes = lanes_of(view, usual)
    share = replace(signature, count=max(1, signature.count // lanes), grains=0, bound=0)
    levels = {k: level_choice("sm", "shares", chunk=LANE_CHUNK) for k in inner}
    levels |= {k: _network(share, view, k, False) for k in between}
    levels[top] = _network(share, view, top, True)
    segment = LANE_SEGMENT if signature.collective == "allreduce" else usual.segment
    return levels, segment


def _usual(signature: Signature, effective: Topology, traits: NodeTraits) -> Choice:
    """Make the built-in choice for a tree on the levels of a topology."""
    active = levels_of(effective, signature)
    outermost = max(active, default=0)
    segment = _segment(signature, effective.nodes) if len(active) > 1 else None
    levels = []
    for level in range(effective.depth):
        if signature.by_blocks:
            levels.append(_blocks(signature, effective, level, traits))
        elif effective.shared[level] and _fits_cells(signature):
            outer = level == outermost
            levels.append(_shared(signature, effective, level, outer, segment, traits))
        else:
            levels.append(_network(signature, effective, level, level == outermost))
    return Choice(tuple(levels), segment, rule=BUILT_IN)


def rival(signature: Signature, topology: Topology, traits: NodeTraits) -> Choice | None:
    """Return the choice that a trial compares with the built-in one; None if there is no trial.

    Trials are for large data within a node. The rival attaches if the built-in choice copies
    through cells, and the other way round (native/engine/trials.h). Both combine elements in the
    same order. Gather and reduce have no trials: with attach, senders would wait for the root.
    """
    kind, level = signature.collective, topology.whole
    among = kind in RIVALS and (kind != "allreduce" or topology.size == 2)
    least = RIVAL_BYTES[topology.size > 2 or traits.oversubscribed]
    large = signature.nbytes >= least and _fits_cells(signature)
    plain = not (signature.mapped or signature.in_place or signature.uneven)
    if level is None or not (topology.attach and among and large and plain):
        return None
    if (signature.reduces and not signature.native) or levels_of(topology, signature) != [level]:
        return None
    usual = choose(signature, topology, traits)
    if submodule(usual.levels[level].submodule).reads_peers:
        return replace(choose(signature, replace(topology, attach=False), traits), rule="rival")
    levels = list(usual.levels)
    levels[level] = level_choice("solo", RIVALS[kind], chunk=ATTACH_CHUNK.get(kind, SHARED_CHUNK))
    return replace(usual, levels=tuple(levels), rule="rival")


def _blocks(
    signature: Signature, topology: Topology, level: int, traits: NodeTraits
) -> LevelChoice:
    kind, nbytes = signature.collective, signature.nbytes
    enough = nbytes >= _mapped_least(signature, topology.channel_ranks(level), traits)
    mapped = enough and _reads_mapped(signature, topology, level)
    reads = kind in submodule("solo").algorithms["blocks"].kinds
    if reads and not signature.in_place and _fits_cells(signature):
        if mapped:
            return level_choice("solo", "blocks", chunk=SHARED_CHUNK)
        if _attaches(signature, topology, level, traits):
            return level_choice("solo", "blocks", chunk=ATTACH_CHUNK.get(kind, SHARED_CHUNK))
    return level_choice("sm", "blocks", chunk=BLOCK_CHUNK, cells=2)


def _attaches(signature: Signature, topology: Topology, level: int, traits: NodeTraits) -> bool:
    """Whether ranks attach each other's memory: they can, and it is expected to be faster."""
    ranks = topology.channel_ranks(level)
    kind, nbytes = signature.collective, signature.nbytes
    delivered = nbytes * ranks * (ranks if signature.by_blocks else 1)
    few = ranks <= ALL_RANKS and delivered <= ALL_BYTES
    pays = few or ranks == 2 or kind not in READ_BY_ALL or not traits.mesh
    table = ATTACH_MESH if traits.mesh else ATTACH_NEAR
    return topology.attach and pays and nbytes >= table.get(kind, (NEVER, NEVER))[ranks > 2]


def _reads_mapped(signature: Signature, topology: Topology, level: int) -> bool:
    return signature.mapped and submodule("solo").reads_mapped(topology, signature, level)


def _mapped_least(signature: Signature, ranks: int, traits: NodeTraits) -> int:
    """The least size at which ranks read mapped buffers where they are."""
    pair = traits.mesh and ranks == 2
    return MAPPED_PAIR.get(signature.collective, MAPPED_BYTES) if pair else MAPPED_BYTES


def _fits_cells(signature: Signature) -> bool:
    """Whether cells hold whole elements; larger ones go through messages within a node too."""
    return signature.element <= PAGE


def _shared(
    signature: Signature, topology: Topology, level: int, outermost: bool, segment: int | None,
    traits: NodeTraits,
) -> LevelChoice:  # fmt: skip
    ranks = topology.channel_ranks(level)
    kind, whole = signature.collective, outermost and segment is None
    mapped = _reads_mapped(signature, topology, level)
    if mapped and signature.nbytes >= _mapped_least(signature, ranks, traits):
        fused = kind == "allreduce" and outermost
        return level_choice("solo", "split" if fused else "pull", chunk=SHARED_CHUNK)
    pair = mapped and whole and traits.mesh and ranks == 2
    if pair and kind == "allreduce" and EACH_LEAST <= signature.nbytes <= EACH_MAPPED:
        return level_choice("solo", "each", chunk=EACH_MAPPED)
    if whole and _attaches(signature, topology, level, traits):
        algorithm = "meet" if kind == "bcast" else "split"
        return level_choice("solo", algorithm, chunk=ATTACH_CHUNK[kind])
    for_all = kind in ("allreduce", "barrier") and outermost
    if for_all and (signature.nbytes > DIRECT_BYTES or ranks <= DIRECT_RANKS):
        return _for_all(signature, ranks, traits)
    chunk = _quarter(min(signature.nbytes, segment or signature.nbytes))
    ordered = signature.reduces and not signature.commutative
    if ranks <= FLAT_RANKS or (ordered and signature.root):
        release = level_choice("sm", "flat", chunk=chunk, cells=8)
    else:
        release = level_choice("sm", "knomial", radix=4, chunk=chunk, cells=8)
    tree = _reduce_tree(signature, topology, ranks)
    gather = level_choice("sm", "kary", chunk=chunk, cells=8, **tree) if tree else release
    return release.where("reduce", gather)


def _for_all(signature: Signature, ranks: int, traits: NodeTraits) -> LevelChoice:
    """Choose for an allreduce or barrier through cells in one task."""
    if signature.nbytes <= DIRECT_BYTES:
        return level_choice("sm", "direct")
    turns = traits.oversubscribed and 2 < ranks <= TURNS_RANKS
    if turns and signature.nbytes <= TURNS_BYTES:
        return level_choice("sm", "flat", chunk=TURNS_BYTES, cells=1)
    most = EACH_USER if not signature.native else EACH_MESH if traits.mesh else EACH_BYTES
    if ranks == 2 and signature.nbytes <= most:
        return level_choice("sm", "each", chunk=EACH_CHUNK)
    return level_choice("sm", "split", chunk=SPLIT_CHUNK)


def _reduce_tree(signature: Signature, topology: Topology, ranks: int) -> dict[str, Value]:
    """The parameters of the k-ary tree of reductions, if it differs from the tree of releases.

    The tree follows sockets, and it is binary for large reductions (Jain et al., section VI-B).
    """
    if not signature.reduces or not signature.commutative:
        return {}
    several = len(set(topology.sockets)) > len(set(topology.memory))
    large = signature.nbytes >= BINARY_BYTES
    if several and ranks > FLAT_RANKS and signature.nbytes >= SOCKET_BYTES:
        return {"radix": 2 if large else 3, "leaders": "last", "skew": "right"}
    return {"radix": 2} if large and ranks >= BINARY_RANKS else {}


def _quarter(nbytes: int) -> int:
    """A power of two near a quarter of the bytes: about four pieces are in flight."""
    return min(128 * KiB, max(16 * KiB, 1 << (nbytes // 4).bit_length()))


def _segment(signature: Signature, nodes: int) -> int | None:
    """The segment of the pipeline: small enough to fill all levels, large enough for few tasks."""
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
    exchange = _exchange(signature, nodes) if both and outermost else None
    if exchange is not None:
        return exchange
    if signature.reduces and not signature.commutative and signature.root:
        return level_choice("adapt", "linear", segment=4 * MESSAGE)
    if signature.nbytes >= _chain_bytes(nodes):
        piece = min(MESSAGE, max(CHAIN_LINK, 1 << (signature.nbytes // 8).bit_length()))
        return level_choice("adapt", "chain", segment=piece, window=16)
    return level_choice("adapt", "binomial", segment=2 * MESSAGE)


def _exchange(signature: Signature, nodes: int) -> LevelChoice | None:
    """Choose an exchange between nodes for an allreduce or a barrier; None: a tree is better.

    Halving folds where the number of nodes is no power of two: some nodes send and receive the
    whole message twice. Large messages then go by exchanges that need not fold.
    """
    if signature.nbytes <= DOUBLING_BYTES:
        return level_choice("exchange", "recursive_doubling")
    large = signature.nbytes >= nodes * EXCHANGE_BLOCK
    if not large and not signature.commutative:
        return None
    if not large or nodes & (nodes - 1) == 0:
        return level_choice("exchange", "halving", segment=MESSAGE)
    if core_of(nodes) == nodes:
        return level_choice("exchange", "recursive", segment=MESSAGE)
    return level_choice("exchange", "cyclic", segment=MESSAGE) if signature.commutative else None
