"""What calls run, in the form in which configurations and tables write it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from han.common.units import format_size
from han.config.parts import as_document
from han.config.rules import KINDS, Use
from han.submodules.registry import submodule
from han.tasks.contract import Parameter


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
