"""JSON Schemas of configuration files and machine files, for editors and other checkers."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Literal

from han.config.document_types import Model
from han.config.documents import Config
from han.config.machine import MachineModel

Kind = Literal["config", "machine"]

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_MODELS: dict[str, tuple[type[Model], str]] = {
    "config": (Config, "Configuration of han"),
    "machine": (MachineModel, "Machine for predictions of han"),
}


def schema(kind: Kind, submodules: Iterable[str] = ()) -> dict[str, Any]:
    """Return the JSON Schema of a kind of file; editors offer the names of `submodules`."""
    model, title = _MODELS[kind]
    found = model.model_json_schema()
    use = found["$defs"].get("LevelUse")
    if use is not None and submodules:
        use["properties"]["submodule"]["examples"] = sorted(submodules)
    return {"$schema": DIALECT, **found, "title": title}


def schema_text(kind: Kind, submodules: Iterable[str] = ()) -> str:
    """Return the schema as the text of a file."""
    return json.dumps(schema(kind, submodules), indent=2) + "\n"
