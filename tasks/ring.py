"""A ring of nodes: which pieces of a message go round, and in which order a node needs them.

In an allreduce a segment is cut into a block for each node, and a block into pieces. In each of
``2 (n - 1)`` hops a node receives a block from the node before it. In the first half it combines
the block with its own operand; after the last of these hops it has finished its own block. Then
finished blocks go on round the ring. In a broadcast and a reduce, pieces go along a chain of nodes.

Inside nodes, short blocks of neighbouring nodes form one part: among many nodes, ranks of a node
would otherwise post and wait for flags for a few bytes each.

Source: Jocksch et al., section 2.4; Thakur et al. (ring); HAN, section III (chain).
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from han.model.topology import Topology
from han.tasks.choice import Choice
from han.tasks.graph import Task
from han.tasks.shares import shares
from han.tasks.signature import Signature

SEGMENT = 32 * 1024
LEAST = 1024  # bytes up to which blocks form one part
PARTS = 32  # of a task inside nodes, about, where blocks are short: as many as overlap well
Span = tuple[int, int]  # where bytes of the message start and stop
Blocks = tuple[tuple[Span, ...], ...]  # the pieces of each block; a block may have none


def block_at(node: int, nodes: int, hop: int) -> int:
    """Return the block that a node receives in a hop; the one that it sends first is at hop 0."""
    return (node - 1 - hop) % nodes


def blocks_of(task: Task, grain: int, nodes: int, most: int) -> Blocks:
    """Return the pieces of each block, of at most `most` bytes; a block may have none."""
    return _blocks(task.start, task.stop, grain, nodes, most)


@lru_cache(64)
def _blocks(start: int, stop: int, grain: int, nodes: int, most: int) -> Blocks:
    step = max(grain, most // grain * grain)
    found = []
    for first, last in shares(stop - start, grain, nodes):
        starts = range(start + first, start + last, step)
        found.append(tuple((at, min(at + step, start + last)) for at in starts))
    return tuple(found)


class Parts(NamedTuple):
    """The parts of a task inside nodes, by group of as many neighbouring blocks as are `joined`."""

    groups: Blocks
    joined: int
    blocks: Blocks


def parts_of(view: Topology, signature: Signature, choice: Choice, task: Task) -> Parts:
    """Return the parts of a task; a broadcast or a reduce has one block."""
    top = view.active[-1]
    nodes = view.widest(top) if signature.collective == "allreduce" else 1
    most = choice.levels[top].get("segment", SEGMENT)
    return _parts(task.start, task.stop, signature.grain, nodes, most)


@lru_cache(64)
def _parts(start: int, stop: int, grain: int, nodes: int, most: int) -> Parts:
    blocks = _blocks(start, stop, grain, nodes, most)
    limit = min(most, max(LEAST, (stop - start) // PARTS))
    joined = min(nodes, limit * nodes // max(1, stop - start))
    if joined < 2:
        return Parts(blocks, 1, blocks)
    groups = _joined(blocks, joined)
    if any(last - first > most for group in groups for first, last in group):
        groups, joined = _joined(blocks, joined - 1), joined - 1  # blocks differ by a cache line
    return Parts(groups, joined, blocks)


def _joined(blocks: Blocks, number: int) -> Blocks:
    """Return one part for each group of blocks, or none if all of them are empty."""
    found = []
    for first in range(0, len(blocks), number):
        pieces = [piece for block in blocks[first : first + number] for piece in block]
        found.append(((pieces[0][0], pieces[-1][1]),) if pieces else ())
    return tuple(found)


def in_order(parts: Parts, kind: str, node: int) -> list[Span]:
    """Return the parts in the order in which a node's ring needs them, or finishes them.

    It needs a group of blocks with its first one, and has finished it with its last one.
    """
    nodes, first = len(parts.blocks), 0 if kind == "reduce" else len(parts.blocks) - 1
    blocks = [block_at(node, nodes, hop) for hop in range(first, first + nodes)]
    groups = [block // parts.joined for block in blocks if parts.blocks[block]]
    once = dict.fromkeys(groups) if kind == "reduce" else list(dict.fromkeys(groups[::-1]))[::-1]
    return [part for group in once for part in parts.groups[group]]
