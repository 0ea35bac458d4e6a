"""What calls run, as configurations and tables write it, and as a text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from han.common.units import format_size
from han.config.parts import as_document
from han.config.rules import KINDS, KindUse, LevelUse, Use
from han.submodules.registry import submodule
from han.tasks.choice import SIZES
from han.tasks.contract import Parameter


def spell(use: Use) -> str:
    """Return ``node: sm flat (chunk 16KiB), network: adapt chain; segment 64KiB``."""
    levels = [
        f"{name}: {level.submodule} {_spelled(level)}"
        + "".join(f", {kind}: {_spelled(own)}" for kind, own in level.kinds.items())
        for name, level in use.levels.items()
    ]
    segment = use.segment if isinstance(use.segment, int) else None
    more = f"; segment {format_size(segment)}" if segment else ""
    return ", ".join(levels) + more + ("; lockstep" if use.schedule == "lockstep" else "")


def _spelled(use: LevelUse | KindUse) -> str:
    shown = ", ".join(f"{name} {_value(name, value)}" for name, value in use.parameters.items())
    return f"{use.algorithm}" + (f" ({shown})" if shown else "")


def _value(name: str, value: object) -> str:
    return format_size(value) if name in SIZES and isinstance(value, int) else str(value)


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
