"""The command ``han diff``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from han.cli import imagined, options
from han.cli.common import answer, check_json
from han.cli.words import Call, call_of
from han.common.errors import ArgumentError
from han.common.tables import shown_table
from han.submodules.registry import submodule
from han.tasks.files.store import load
from han.tasks.inspect.compare import Row, Side, remarks, rows, side
from han.tasks.lower import lower
from han.tuning.built_in.choosing import NodeTraits

BUILT_IN = "default"
SIDE = f"A configuration (a file, a ready one, or '{BUILT_IN}'), or a file of 'han plan --save'."
MARK = "*"


def diff(
    first: Annotated[str, typer.Argument(help=SIDE)],
    second: Annotated[str, typer.Argument(help="The other configuration or file.")],
    words: options.OptionalCall = None,
    nodes: options.Nodes = None,
    ppn: options.Ppn = None,
    ranks: options.Ranks = None,
    machine: options.OtherMachine = None,
    oversubscribed: options.Oversubscribed = False,
    mesh: options.Mesh = False,
    cores: options.Cores = 0,
    rdma: options.Rdma = False,
    sockets: options.Sockets = 1,
    op: options.Op = "sum",
    dtype: options.Dtype = "f8",
    root: options.Root = 0,
    json_file: options.JsonFile = None,
) -> None:
    """Compare two plans: rules, tasks, operations, bytes.

    An asterisk marks the lines that differ.

    \b
    Examples:
      han diff two-level libnbc allreduce 1MiB --nodes 4 --ppn 2
      han diff default mine.yaml bcast 64KiB --nodes 8 --ppn 8 --json
      han diff before.json after.json
    """
    check_json(json_file)
    call = call_of(words, op, dtype, root) if words else None
    traits = NodeTraits(oversubscribed, mesh, cores, rdma)
    shape = imagined.usual(nodes, ppn, ranks, machine, traits, sockets)
    sides = [_side(name, call, shape) for name in (first, second)]
    table, notes = rows(*sides), list(remarks(*sides))
    names = [side.name for side in sides]
    answer(json_file, lambda: _text(names, table, notes), lambda: _record(sides, table, notes))


def _side(name: str, call: Call | None, shape: imagined.Shape) -> Side:
    """Read a stored plan, or plan the call with a configuration."""
    if name.endswith(".json"):
        return side(name, *load(Path(name), submodule))
    config = None if name == BUILT_IN else name
    if call is None:
        imagined.known_config(config)
        raise ArgumentError(
            f"{name} is a configuration: name a call as well, as in "
            f"'han diff {name} libnbc allreduce 1MiB'"
        )
    plan = imagined.imagine_on(shape, config, call).plan
    return side(name, plan, [lower(plan, rank) for rank in range(shape.ranks)])


def _record(sides: Sequence[Side], table: Sequence[Row], notes: Sequence[str]) -> dict[str, Any]:
    first, second = sides
    section, differences = "", []
    for row in table:
        section = section if row.label.startswith(" ") else row.label
        if row.differs:
            differences.append([section, row.label.strip(), row.first, row.second])
    return {
        "first": first.record(), "second": second.record(),
        "differences": differences, "remarks": list(notes),
    }  # fmt: skip


def _text(names: Sequence[str], table: Sequence[Row], notes: Sequence[str]) -> str:
    """Return a table, on a terminal with colours."""
    cells = [(f"{MARK if r.differs else ' '} {r.label}", r.first, r.second) for r in table]
    styles = [
        "bold" if not r.label.startswith(" ") else "yellow" if r.differs else "dim" for r in table
    ]
    shown = shown_table("", ["", *names], cells, left=names, styles=styles)
    return "\n".join([shown, *(f"# {note}" for note in notes)])
