"""The command ``han tune``, and what it does with tables without measuring."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from han.cli import options
from han.cli.common import check_files, numbers, rank, say, write_file, wrote
from han.cli.words import action_of, calls_of, file_of
from han.common.errors import ArgumentError
from han.model import measurements
from han.model.collectives import carried
from han.tuning.tuned.export import as_rules, chosen, confirmed
from han.tuning.tuned.files import as_text, read
from han.tuning.tuned.find import AUTO, find_table, left_out_file
from han.tuning.tuned.merge import merge
from han.tuning.tuned.table import TunedTable

COLLECTIVES, SIZES = ("bcast", "reduce", "allreduce", "allgather"), "8:8MiB:4"
ACTIONS = "run", "export", "report", "merge", "shapes", "quality"
EXAMPLES = {"export": "rules.yaml", "report": "report.html", "merge": "tuned.json"}


def tune(
    words: Annotated[
        list[str] | None,
        options.words(
            "[ACTION] [COLLECTIVES] [SIZES]",
            "run: measure; export FILE: write rules, or rows (.json); report FILE: write a page; "
            "merge FILE: join tables; shapes [FILE]: predict other --nodes and --ppn, by default "
            "around those measured, and say which are worth a run; quality: compare strategies "
            "with exhaustive search. Of run and quality: collectives, as allreduce,bcast; bytes: "
            f"{options.SIZES}.",
            ACTIONS,
        ),
    ] = None,
    nodes: options.ManyNodes = "",
    ppn: options.ManyPpn = "",
    machine: Annotated[
        str | None, typer.Option(help="The machine model of the strategy simulate.")
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            help="Time for all: 90s, 2min, 1h; 0: no limit. By default 2min, of quality no limit."
        ),
    ] = None,
    strategy: Annotated[
        str | None,
        typer.Option(
            help="exhaustive, heuristic, task, task+heuristic (the default) or simulate "
            "(--machine); of quality: several with commas, by default task,task+heuristic."
        ),
    ] = None,
    space: Annotated[
        Path | None, typer.Option(help="A YAML file that restricts what is tried.")
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Write the data before each call, outside the time.")
    ] = False,
    shared: Annotated[
        bool, typer.Option("--shared", help="Tune calls on shared arrays instead of ordinary ones.")
    ] = False,
    dtype: options.Dtype = "f8",
    op: options.Op = "sum",
    config: options.Config = None,
    out: Annotated[
        Path | None, typer.Option(help="The tuned table. By default that of this machine.")
    ] = None,
    restart: Annotated[
        bool, typer.Option("--restart", help="Forget what an interrupted run has found.")
    ] = False,
    table: Annotated[
        list[Path] | None,
        typer.Option(
            help="Of the other actions: the tuned table, by default that of this machine; of "
            "merge: a table, may be given several times."
        ),
    ] = None,
    bench: Annotated[
        list[Path] | None,
        typer.Option(
            help="Of export: a file of 'han bench --tuned --json', may be given several times. "
            "Choices that these runs do not all find faster are left out."
        ),
    ] = None,
    quality: Annotated[
        Path | None,
        typer.Option(help="Of report: a file of 'han tune quality --json', for its pictures."),
    ] = None,
    limit: Annotated[
        str | None,
        typer.Option(
            help="Of quality: time for each search, as --budget. Exhaustive search then measures a "
            "random sample of the candidates."
        ),
    ] = None,
    jobs: Annotated[
        int, typer.Option(min=0, help="Of shapes: processes; 0: one for each processor.")
    ] = 0,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Print all that was left out, with the reasons.")
    ] = False,
    json_file: options.JsonFile = None,
    plot: options.Plot = None,
) -> None:
    """Find the best choices on this machine, and keep them in a tuned table.

    Later programs use the table by themselves (HAN_TUNED=off: not). Calls like those measured run
    what was fastest, unless a rule of the user matches. An interrupted run is resumed.

    \b
    Examples:
      mpiexec -n 4 han tune
      mpiexec -n 4 han tune bcast,allreduce 8:64MiB:8 --budget 10min
      mpiexec -n 4 han tune --config virtual-2x2 --strategy task --out tuned.json
      han tune export rules.yaml --table tuned.json
      han tune export rows.json --table tuned.json
      han tune report report.html --table tuned.json
      mpiexec -n 2 han tune quality bcast --strategy task --plot quality.png
      han tune merge all.json --table monday.json --table tuesday.json
      han tune shapes --table tuned.json --nodes 2,4,8 --ppn 1,2,4
    """
    action, rest = action_of(words, ACTIONS)
    if action == "shapes":
        _shapes(Path(rest[0]) if rest else None, table or [], nodes, ppn, jobs)
        return
    if action in EXAMPLES:
        example = f"han tune {action}: name the file to write, such as {EXAMPLES[action]}"
        _show(action, Path(file_of(rest, example)), table or [], bench or [], quality)
        return
    from han.cli import tune_quality, tune_run

    called = calls_of(rest, COLLECTIVES, SIZES)
    for name in called.names:
        carried(name)
    strategies = [name for name in (strategy or "").split(",") if name]
    make = partial(
        tune_run.plans_of, words=called, budget=budget, limit=limit,
        space=space, machine=machine, dtype=dtype, op=op, shared=shared,
    )  # fmt: skip
    if action == "quality":
        tune_quality.run(make, strategies, config, fresh, restart, plot, json_file)
    else:
        tune_run.run(make, strategy, config, out, fresh, restart, json_file, verbose)


# ---- export and report ----------------------------------------------------------------------


def _show(
    action: str, file: Path, tables: Sequence[Path], runs: Sequence[Path], compared: Path | None
) -> None:
    check_files(file)
    if action == "merge":
        _merge(file, tables)
        return
    if len(tables) > 1:
        raise ArgumentError(f"han tune {action}: one --table; join several with merge first")
    found = _table(tables[0] if tables else None)
    if rank():
        return
    if action == "export":
        if runs:
            found = confirmed(found, [measurements.read(path) for path in runs])
        write_file(file, as_text(chosen(found)) if file.suffix == ".json" else as_rules(found))
        return
    from han.cli.tune_quality import rows_of
    from han.plots.tuning import report

    rows = () if compared is None else rows_of(compared)
    for path in report(found, file, _left_out(found.source), rows):
        wrote(path)


def _shapes(file: Path | None, tables: Sequence[Path], nodes: str, ppn: str, jobs: int) -> None:
    """Predict other shapes; the table is written anew, or into another file if one is named."""
    if len(tables) > 1:
        raise ArgumentError("han tune shapes: one --table; join several with merge first")
    wanted = [numbers("--nodes", nodes) if nodes else (), numbers("--ppn", ppn) if ppn else ()]
    found = _table(tables[0] if tables else None)
    target = file or Path(found.source)
    if file is not None:
        check_files(file)
    if rank():
        return
    from han.cli import tune_shapes

    tune_shapes.run(found, target, *wanted, jobs=jobs)


def _left_out(source: str) -> str:
    """Return what the last run into a table left out, or ""."""
    try:
        return left_out_file(Path(source)).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""


def _merge(file: Path, tables: Sequence[Path]) -> None:
    """Write the points of several tables, and tell where their runs contradict each other."""
    if not tables:
        raise ArgumentError("han tune merge: name the tables to join, each with --table")
    found = merge([read(path) for path in tables])
    for note in found.notes:
        say(f"# {note}")
    if not rank():
        write_file(file, as_text(found.table))


def _table(path: Path | None) -> TunedTable:
    """Return the table of a file, or that of this machine; raises TunedError or ArgumentError."""
    if path is not None:
        return read(path)
    from han.ranks.machine import fingerprint

    found = find_table(AUTO, fingerprint)
    if found.table is None:
        raise ArgumentError(f"no tuned table of this machine ({found.about}): name one (--table)")
    return read(Path(found.table.source))
