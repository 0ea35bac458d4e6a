"""The registry as plain data: the names and values that a configuration may use."""

from __future__ import annotations

from typing import Literal, cast

from han.config.catalogue import Catalogue, ParameterInfo, SubmoduleInfo
from han.submodules.registry import registered


def catalogue() -> Catalogue:
    """Return every registered submodule with its algorithms and the ranges of its parameters."""
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
                        p.joint,
                    )
                    for key, p in part.parameters.items()
                },
            )
            for name, part in registered().items()
        }
    )
