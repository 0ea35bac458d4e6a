"""The command ``han schema``."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from han.cli.common import check_files, say, write_file
from han.cli.endings import is_first
from han.config.documents import schema_text
from han.submodules.registry import registered

EDITORS_LINE = "# yaml-language-server: $schema="


class Kind(str, Enum):
    """The files that have a schema."""

    CONFIG = "config"
    MACHINE = "machine"


def schema(
    kind: Annotated[
        Kind, typer.Argument(help="Configuration files, or machines of 'han simulate'.")
    ] = Kind.CONFIG,
    out: Annotated[Path | None, typer.Option(help="Write the schema to a file.")] = None,
) -> None:
    """Print the JSON Schema of configurations or machines.

    An editor with YAML support completes and checks a file whose first line names its schema, by a
    path relative to the file:

    \b
      # yaml-language-server: $schema=han-config.json

    \b
    Examples:
      han schema --out han-config.json
      han schema machine --out han-machine.json
    """
    check_files(out)
    text = schema_text(kind.value, registered())
    if out is None or str(out) == "-":
        say(text.rstrip())
    elif is_first():
        write_file(out, text)
        say(f"first line of a YAML file in the same folder: {EDITORS_LINE}{out.name}")
