"""What calls run, as configurations and tables write it, and as a text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from han.common.units import format_size
from han.config.parts import as_document
from han.config.rules import KINDS, KindUse, LevelUse, Use
from han.submodules.registry import submodule
from han.tasks.choice import LevelChoice
from han.tasks.contract import Parameter


def spell(use: Use) -> str:
    """Return ``node: sm flat (chunk 16KiB), network: adapt chain; segment 64KiB``."""
    levels = [
        f"{name}: {_choice(level, level.submodule).describe()}"
        for name, level in use.levels.items()
    ]
    segment = use.segment if isinstance(use.segment, int) else None
    more = f"; segment {format_size(segment)}" if segment else ""
    return ", ".join(levels) + more + ("; lockstep" if use.schedule == "lockstep" else "")


def _choice(use: LevelUse | KindUse, submodule: str) -> LevelChoice:
    kinds = use.kinds.items() if isinstance(use, LevelUse) else ()
    own = tuple((kind, _choice(one, submodule)) for kind, one in kinds)
    return LevelChoice(submodule, str(use.algorithm), tuple(use.parameters.items()), own)


def use_record(use: Use) -> dict[str, Any]:
    """Return a use with sizes as text."""
    record: dict[str, Any] = as_document(use)
    for level in record["levels"].values():
        known = submodule(level["submodule"]).parameters
        for own in (level, *(level[kind] for kind in KINDS if kind in level)):
            _spell(own, known)
    return record


def _spell(values: dict[str, Any], known: Mapping[str, Parameter]) -> None:
    for name, value in values.items():
        if name in known and known[name].kind == "size":
            values[name] = format_size(value)
