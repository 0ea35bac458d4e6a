"""The command ``han diff``."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from han.cli import imagined
from han.cli.common import (
    DtypeOption,
    JsonFlag,
    MeshFlag,
    OpOption,
    OversubscribedFlag,
    PpnOption,
    RanksOption,
    RootOption,
    call_of,
    say,
    size_of,
)
from han.cli.world import rank
from han.common.errors import ArgumentError
from han.model.collectives import calls

if TYPE_CHECKING:
    from han.tasks.inspect.compare import Row, Side
    from han.tuning.built_in.traits import NodeTraits

BUILT_IN = "default"
SIDE = f"A configuration (a file, a ready one, or '{BUILT_IN}'), or a file of 'han plan --save'."
MARK = "*"


def diff(
    first: Annotated[str, typer.Argument(help=SIDE)],
    second: Annotated[str, typer.Argument(help="The other configuration or file.")],
    collective: Annotated[
        str | None, typer.Argument(help=f"The call, for configurations: {', '.join(calls())}.")
    ] = None,
    size: Annotated[str, typer.Argument(help="Bytes: 4MiB, 64KiB, 8.")] = "0",
    ranks: RanksOption = 8,
    ppn: PpnOption = None,
    oversubscribed: OversubscribedFlag = False,
    mesh: MeshFlag = False,
    op: OpOption = "sum",
    dtype: DtypeOption = "f8",
    root: RootOption = 0,
    as_json: JsonFlag = False,
) -> None:
    """Compare two plans: rules, tasks, operations, bytes.

    An asterisk marks the lines that differ.

    \b
    Examples:
      han diff two-level libnbc allreduce 1MiB --ranks 8 --ppn 2
      han diff default mine.yaml bcast 64KiB --ranks 64 --ppn 8 --json
      han diff before.json after.json
    """
    from han.tasks.inspect.compare import remarks, rows
    from han.tuning.built_in.traits import NodeTraits

    call, traits = None, NodeTraits(oversubscribed, mesh)
    if collective is not None:
        call = call_of(collective, size_of(size), op, dtype, root)
    sides = [_side(name, call, ranks, ppn, traits) for name in (first, second)]
    table, notes = rows(*sides), list(remarks(*sides))
    if as_json:
        say(_as_json(sides, table, notes))
    elif not rank():
        _show([side.name for side in sides], table, notes)


def _side(
    name: str, call: imagined.Call | None, ranks: int, ppn: int | None,
    traits: NodeTraits,
) -> Side:  # fmt: skip
    """Read a stored plan, or plan the call with a configuration."""
    from han.submodules.registry import submodule
    from han.tasks.files.store import load
    from han.tasks.inspect.compare import side
    from han.tasks.lower import lower

    if name.endswith(".json"):
        return side(name, *load(Path(name), submodule))
    config = None if name == BUILT_IN else name
    if call is None:
        imagined.known_config(config)
        raise ArgumentError(
            f"{name} is a configuration: name a call as well, as in "
            f"'han diff {name} libnbc allreduce 1MiB'"
        )
    plan = imagined.imagine(ranks, ppn or ranks, config, call, traits).plan
    return side(name, plan, [lower(plan, rank) for rank in range(ranks)])


def _as_json(sides: Sequence[Side], table: Sequence[Row], notes: Sequence[str]) -> str:
    first, second = sides
    section, differences = "", []
    for row in table:
        section = section if row.label.startswith(" ") else row.label
        if row.differs:
            differences.append([section, row.label.strip(), row.first, row.second])
    record = {
        "first": first.record(), "second": second.record(),
        "differences": differences, "remarks": list(notes),
    }  # fmt: skip
    return json.dumps(record, indent=1)


# ---- tables -------------------------------------------------------------------------------------


def _show(names: Sequence[str], table: Sequence[Row], notes: Sequence[str]) -> None:
    """Print a table with colours on a terminal, else plain text."""
    if sys.stdout.isatty():
        _print_table(names, table)
    else:
        print(_plain(names, table))
    for note in notes:
        print(f"# {note}")


def _plain(names: Sequence[str], table: Sequence[Row]) -> str:
    lines = [("", *names), *((r.label, r.first, r.second) for r in table)]
    widths = [max(len(line[k]) for line in lines) for k in range(2)]
    marks = [" ", *(MARK if r.differs else " " for r in table)]
    return "\n".join(
        f"{mark} {label:<{widths[0]}}  {first:<{widths[1]}}  {second}".rstrip()
        for mark, (label, first, second) in zip(marks, lines, strict=True)
    )


def _print_table(names: Sequence[str], table: Sequence[Row]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=None, pad_edge=False)
    for head in ("", *names):
        shown.add_column(Text(head), overflow="fold")
    for row in table:
        section = not row.label.startswith(" ")
        style = "bold" if section else "yellow" if row.differs else "dim"
        mark = f"{MARK if row.differs else ' '} {row.label}"
        shown.add_row(*(Text(text, style) for text in (mark, row.first, row.second)))
    Console().print(shown)
