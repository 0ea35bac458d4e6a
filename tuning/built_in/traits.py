"""Facts about nodes on which built-in choices depend."""

from __future__ import annotations

from typing import NamedTuple


class NodeTraits(NamedTuple):
    """Two facts about nodes. Each is true if it holds on at least one node."""

    oversubscribed: bool = False  # ranks outnumber processors
    mesh: bool = False  # cache lines move slowly from core to core
