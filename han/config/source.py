"""Find and read configurations: YAML files, ready ones by name, mappings."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from han.common.errors import ConfigError
from han.common.suggest import unknown
from han.config.errors import Origin

READY = Path(__file__).parents[1] / "configs"


@dataclass(frozen=True)
class Document:
    """Unchecked data, and its origin. `explicit` is true if the program gave it as a mapping."""

    data: Any
    origin: Origin
    explicit: bool = False


def ready_configs() -> dict[str, Path]:
    """Return the configurations that come with han, by name."""
    return {path.stem: path for path in sorted(READY.glob("*.yaml"))}


def read_document(
    source: object, said_by: str = "config", ready: Mapping[str, Path] | None = None
) -> Document:
    """Return the document of ``source``: a mapping, a YAML file, or the name of a ready file.

    Errors name ``said_by`` as the origin of ``source``. ``ready`` are the ready files by name, by
    default han's configurations.
    """
    if source is None:
        return Document({}, Origin("default configuration"))
    if isinstance(source, Mapping):
        return Document(dict(source), Origin(said_by), explicit=True)
    if isinstance(source, (str, os.PathLike)):
        from han.config.yaml_file import read_yaml

        path = _find(source, said_by, ready_configs() if ready is None else ready)
        return Document(*read_yaml(path))
    raise ConfigError(
        f"{said_by} = {source!r}: expected a file, the name of a ready configuration, "
        f"a mapping or a han.config.Config, not {type(source).__name__}"
    )


def _find(source: str | os.PathLike[str], said_by: str, ready: Mapping[str, Path]) -> Path:
    """Return the file of ``source``; the name of a ready file comes before a path."""
    if isinstance(source, str) and source in ready:
        return ready[source]
    path = Path(os.path.expanduser(source))
    if path.exists():
        return path
    kind = "machine" if said_by == "machine" else "configuration"
    hint = unknown(f"ready {kind}", source, ready)
    raise ConfigError(f"{said_by} = {os.fspath(source)!r}: no such file; {hint}")
