"""The registry as plain data: what a configuration may name."""

from __future__ import annotations

from typing import Literal, cast

from han.config.catalogue import Catalogue, ParameterInfo, SubmoduleInfo
from han.submodules.registry import registered


def catalogue() -> Catalogue:
    """List submodules with their algorithms and parameters."""
    return Catalogue(
        {
            name: SubmoduleInfo(
                tuple(part.algorithms),
                {
                    key: ParameterInfo(
                        cast(Literal["size", "int", "bool", "name", "factors"], p.kind),
                        p.minimum,
                        p.maximum,
                        p.choices,
                    )
                    for key, p in part.parameters.items()
                },
            )
            for name, part in registered().items()
        }
    )
