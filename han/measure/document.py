"""The head of the tables and the JSON document of every measurement."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from han.common.version import __version__
from han.measure.bench_machine import Machine


def heading(command: str, about: str, machine: Machine, *notes: str) -> str:
    """Return the comment lines above the tables of a command.

    `about` says what is measured, `notes` how to read the tables.
    """
    lines = [f"han {__version__} {command}: {about}", *machine.lines(), *notes]
    return "\n".join(f"# {line}" for line in lines)


def document(
    name: str, version: int, machine: Machine, rows: Iterable[Mapping[str, Any]], **about: object
) -> dict[str, Any]:
    """Return the JSON document of a measurement: format, version, machine, `about`, rows."""
    return {
        "format": name,
        "version": version,
        "han": __version__,
        "unit": "us",
        "machine": machine.record(),
        **about,
        "rows": list(rows),
    }
