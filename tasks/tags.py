"""The streams' parts of message tags, the same on all ranks."""

from __future__ import annotations

from functools import lru_cache

from han.model.collectives import FLAT, TREE
from han.model.topology import MAX_LEVELS


@lru_cache
def stream_tag(kind: str, level: int, rows: int) -> int:
    """Return the tag of a stream; `rows` is the number of collectives, which programs may add."""
    if kind in TREE:
        return level * len(TREE) + TREE.index(kind)
    return MAX_LEVELS * len(TREE) + FLAT.index(kind)  # on one level only
