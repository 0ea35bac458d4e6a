"""A ring of nodes: which pieces of a message go round, and in which order a node needs them.

In an allreduce a segment is cut into a block for each node, and a block into pieces. In each of
``2 (n - 1)`` hops a node receives a block from the node before it. In the first half it combines
the block with its own operand; after the last of these hops it has finished its own block. Then
finished blocks go on round the ring. In a broadcast and a reduce, pieces go along a chain of nodes.

Source: Jocksch et al., section 2.4; Thakur et al. (ring); HAN, section III (chain).
"""

from __future__ import annotations

from han.model.topology import Topology
from han.tasks.choice import Choice
from han.tasks.graph import Task
from han.tasks.shares import share

SEGMENT = 32 * 1024
Piece = tuple[int, int]  # where in the message it starts and stops


def block_at(node: int, nodes: int, hop: int) -> int:
    """Return the block that a node receives in a hop; the one that it sends first is at hop 0."""
    return (node - 1 - hop) % nodes


def blocks_of(task: Task, grain: int, nodes: int, most: int) -> list[list[Piece]]:
    """Return the pieces of each block, of at most `most` bytes; a block may have none."""
    step = max(grain, most // grain * grain)
    found = []
    for block in range(nodes):
        first, last = (task.start + at for at in share(task.nbytes, grain, block, nodes))
        found.append([(at, min(at + step, last)) for at in range(first, last, step)])
    return found


def pieces_of(
    view: Topology, choice: Choice, grain: int, collective: str, task: Task
) -> list[list[Piece]]:
    """Return the pieces of a task by block; a broadcast or a reduce has one block."""
    top = view.active[-1]
    nodes = view.widest(top) if collective == "allreduce" else 1
    return blocks_of(task, grain, nodes, choice.levels[top].get("segment", SEGMENT))


def in_order(blocks: list[list[Piece]], kind: str, node: int) -> list[Piece]:
    """Return the pieces in the order in which a node's ring needs them, or finishes them."""
    nodes = len(blocks)
    first = 0 if kind == "reduce" else nodes - 1
    hops = range(first, first + nodes)
    return [piece for hop in hops for piece in blocks[block_at(node, nodes, hop)]]
