"""Options, printing on rank 0, tables and files of all commands."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from han.cli.world import rank
from han.common.atomic import write_output
from han.common.errors import ArgumentError
from han.common.suggest import expect_known
from han.common.tables import shown_table as shown_table
from han.common.units import parse_size
from han.model.collectives import calls, carried
from han.model.element_types import OPS
from han.plots.plots import check_picture

ConfigOption = Annotated[
    str | None,
    typer.Option("--config", help="A YAML file, or the name of a ready configuration."),
]
CollectiveArgument = Annotated[str, typer.Argument(help=", ".join(calls()))]
SizeArgument = Annotated[str, typer.Argument(help="Bytes: 4MiB, 64KiB, 8.")]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON.")]
JsonOption = Annotated[
    Path | None, typer.Option("--json", help="Write JSON to a file; - is standard output.")
]
PlotOption = Annotated[
    Path | None, typer.Option("--plot", help="Write a picture (.png, .pdf, .svg).")
]
DtypeOption = Annotated[str, typer.Option(help="The element type, by NumPy's name.")]
OpOption = Annotated[str, typer.Option(help="The operation: sum, prod, max, min, land, band ...")]
RanksOption = Annotated[
    int,
    typer.Option(
        min=1,
        help="Ranks of the imagined machine. It has a core for each rank and no mesh, unless "
        "options say otherwise. Nothing is taken from this machine.",
    ),
]
OversubscribedFlag = Annotated[
    bool, typer.Option("--oversubscribed", help="Plan for nodes with more ranks than cores.")
]
MeshFlag = Annotated[
    bool,
    typer.Option(
        "--mesh",
        help="Plan for processors whose cores exchange cache lines slowly, as on a mesh. "
        "'han info' shows whether this processor is one.",
    ),
]
PpnOption = Annotated[
    int | None, typer.Option(min=1, help="Ranks per node. By default one node has all ranks.")
]
RootOption = Annotated[int, typer.Option(min=0, help="The root of calls that have one.")]


def say(text: str) -> None:
    """Print on rank 0."""
    if not rank():
        print(text, flush=True)


def size_of(text: str) -> int:
    """Return the bytes of a size such as ``4MiB``. Raises ArgumentError."""
    try:
        return parse_size(text)
    except ValueError as error:
        raise ArgumentError(f"size {error}") from None


def call_of(
    collective: str, nbytes: int, op: str, dtype: str, root: int
) -> tuple[str, int, str, str, int]:
    """Return a call. Raises ArgumentError for unknown names."""
    return carried(collective), nbytes, known_op(op), dtype, root


def known_op(name: str) -> str:
    """Return the name of a predefined operation; raises ArgumentError for another one."""
    expect_known("operation", name, OPS)
    return name


def check_files(*paths: Path | None, plot: Path | None = None) -> None:
    """Raise ArgumentError if a file cannot be written or has an unknown picture format.

    Commands check their files before they measure or plan.
    """
    for path in (*paths, plot):
        reason = None if path is None or str(path) == "-" else _no_file(path)
        if reason is not None:
            raise ArgumentError(f"{path}: cannot be written: {reason}")
    if plot is not None:
        check_picture(plot)


def _no_file(path: Path) -> str | None:
    """Return why a file cannot be written there, or None."""
    if path.is_dir():
        return "it is a folder; name a file in it"
    if not path.parent.is_dir():
        return f"there is no folder {path.parent}"
    there = path if path.exists() else path.parent
    return None if os.access(there, os.W_OK) else f"you may not write to {there}"


def write_file(path: Path, text: str) -> None:
    """Write a text on rank 0, and say so. Raises ArgumentError with the file and the cause."""
    if rank():
        return
    try:
        write_output(path, text)
    except OSError as error:
        raise ArgumentError(f"{path}: cannot be written: {error.strerror or error}") from None
    wrote(path)


def wrote(path: Path) -> None:
    """Tell on rank 0's standard error that a file was written."""
    if not rank():
        print(f"Wrote {path}", file=sys.stderr, flush=True)
