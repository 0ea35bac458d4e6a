"""The registry as plain data: the names and values that a configuration may use."""

from __future__ import annotations

from collections.abc import Sequence

from han.config.catalogue import Catalogue, SubmoduleInfo
from han.submodules.registry import registered
from han.tasks.compositions import COMPOSITIONS
from han.tasks.contract import Submodule


def catalogue() -> Catalogue:
    """Return every registered submodule with its algorithms and the ranges of its parameters."""
    return Catalogue(
        {
            name: SubmoduleInfo(
                tuple(part.algorithms),
                part.parameters,
                _serving(part, ("outermost",)),
                _serving(part, ("inside", "node")),
                {algorithm: part.taken(algorithm) for algorithm in part.algorithms},
                part.never,
            )
            for name, part in registered().items()
        },
        {name: row.collectives for name, row in COMPOSITIONS.items() if row.collectives},
    )


def _serving(part: Submodule, sides: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the algorithms that serve each composition between nodes, or inside them."""
    found = {}
    for name, row in COMPOSITIONS.items():
        needs = [need for side in sides for need in row.needs(side)]
        if needs:
            met = (a for a in part.algorithms if any(part.meets(a, need) for need in needs))
            found[name] = tuple(met)
    return found
