"""Rails, the network adapters of a node, by the numbers of the node's ranks."""

from __future__ import annotations

from collections.abc import Sequence


def rail_of(local: int, rails: int) -> int:
    """Return the rail that carries all messages of rank number `local` of a node."""
    return local % rails


def local_ranks(nodes: Sequence[int]) -> list[int]:
    """Return the number of each rank among the ranks of its node; `nodes` are by rank."""
    seen: dict[int, int] = {}
    found = []
    for node in nodes:
        found.append(seen.get(node, 0))
        seen[node] = found[-1] + 1
    return found
