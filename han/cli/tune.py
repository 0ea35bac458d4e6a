"""The command ``han tune``."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from han.cli.common import (
    ConfigOption,
    DtypeOption,
    JsonOption,
    OpOption,
    check_files,
    known_op,
    say,
    write_file,
    wrote,
)
from han.cli.world import rank
from han.common.atomic import write_whole
from han.common.errors import ArgumentError
from han.common.suggest import expect_known

if TYPE_CHECKING:
    from han.measure.tune.session import Outcome
    from han.measure.tune.tuner import Input, Plans, Tuned
    from han.tuning.tuned.table import TunedTable

Tell = Callable[[str], None]
COLLECTIVES = "bcast,reduce,allreduce,allgather"
SECONDS = {"": 1.0, "s": 1.0, "min": 60.0, "h": 3600.0}
FORMAT, VERSION = "han-tuning", 2
USUAL, USUAL_BUDGET = "task+heuristic", "2min"


class Action(str, Enum):
    """What to do."""

    RUN = "run"
    EXPORT = "export"
    REPORT = "report"
    MERGE = "merge"
    QUALITY = "quality"


def tune(
    action: Annotated[
        Action,
        typer.Argument(
            help="run: measure; export: write rules, or rows (.json); report: write a page; "
            "merge: join tables; quality: compare strategies with exhaustive search."
        ),
    ] = Action.RUN,
    file: Annotated[
        Path | None, typer.Argument(help="Of the other actions: the file to write.")
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            help="Time for all: 90s, 2min, 1h; 0: no limit. By default 2min, of quality no limit."
        ),
    ] = None,
    collectives: Annotated[str, typer.Option(help="Collectives, with commas.")] = COLLECTIVES,
    sizes: Annotated[str, typer.Option(help="As for han bench.")] = "8:8MiB:4",
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
    machine: Annotated[
        str | None, typer.Option(help="The machine model of the strategy simulate.")
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Write the data before each call, outside the time.")
    ] = False,
    shared: Annotated[
        bool, typer.Option("--shared", help="Tune calls on shared arrays instead of ordinary ones.")
    ] = False,
    dtype: DtypeOption = "f8",
    op: OpOption = "sum",
    config: ConfigOption = None,
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
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Print all that was left out, with the reasons.")
    ] = False,
    json_file: JsonOption = None,
) -> None:
    """Find the best choices on this machine, and keep them in a tuned table.

    Later programs use the table by themselves (HAN_TUNED=off: not). Calls like those measured run
    what was fastest, unless a rule of the user matches. An interrupted run is resumed.

    \b
    Examples:
      mpiexec -n 4 han tune
      mpiexec -n 4 han tune --budget 10min --collectives bcast,allreduce --sizes 8:64MiB:8
      mpiexec -n 4 han tune --config virtual-2x2 --strategy task --out tuned.json
      han tune export rules.yaml --table tuned.json
      han tune export rows.json --table tuned.json
      han tune report report.html --table tuned.json
      mpiexec -n 2 han tune quality quality.png --collectives bcast --strategy task
      han tune merge all.json --table monday.json --table tuesday.json
    """
    if action is Action.QUALITY:
        from han.cli.tune_quality import compare, wanted

        check_files(json_file, plot=file)
        names = wanted(strategy)
        plans = _plans(collectives, sizes, names, budget or "0", space, machine, dtype, op, shared)
        plans = replace(plans, limit=_seconds(limit or "0") or None)
        compare(config, plans, names, fresh, restart, file, json_file)
    elif action is not Action.RUN:
        _show(action, file, table or [], bench or [], quality)
    elif file is not None:
        raise ArgumentError(f"{file}: the table is named with --out")
    else:
        check_files(out, json_file)
        names = [strategy or USUAL]
        budget = budget or USUAL_BUDGET
        plans = _plans(collectives, sizes, names, budget, space, machine, dtype, op, shared)
        tell = (lambda text: None) if str(json_file) == "-" else say
        found = _measured(plans, config, out, fresh, restart, tell)
        _tell_end(found, plans, tell, json_file, verbose)


def _measured(
    plans: Plans, config: Any, out: Path | None, fresh: bool, restart: bool, tell: Tell
) -> Outcome:
    """Tune, with a bar that shows how many inputs are done; collective."""
    from mpi4py import MPI

    from han.cli.progress import phases
    from han.cli.tune_texts import head
    from han.measure.tune import session

    comm = MPI.COMM_WORLD
    tell(head(plans, comm.size))
    with phases() as bar:

        def step(tuned: Tuned, done: int, total: int) -> None:
            if bar is not None:
                bar("tuning", done, total)

        return session.tune(
            comm, config, plans, out, fresh=fresh, restart=restart, step=step, warn=say
        )


def _plans(
    collectives: str, sizes: str, strategies: Sequence[str], budget: str, space: Path | None,
    machine: str | None, dtype: str, op: str, shared: bool,
) -> Plans:  # fmt: skip
    """Return what to tune; raises ArgumentError before anything runs."""
    from han.measure.bench_calls import Case
    from han.measure.tune.tuner import Input, Plans
    from han.model.collectives import DATALESS
    from han.model.element_types import element_type
    from han.tuning.search.space import EVERYTHING
    from han.tuning.search.strategies import STRATEGIES

    for name in strategies:
        expect_known("strategy", name, STRATEGIES)
    model = None
    modelled = [name for name in strategies if STRATEGIES[name].models]
    if modelled:
        from han.config.machine import load_machine

        if machine is None:
            raise ArgumentError(f"strategy {modelled[0]}: name the machine model with --machine")
        model = load_machine(machine)
    limits = EVERYTHING
    if space is not None:
        from han.tuning.search.limits import load_limits

        limits = load_limits(space)
    names = [name for name in collectives.split(",") if name]
    for name in (name for name in names if name in DATALESS):
        raise ArgumentError(f"{name} carries no data: its choice follows from the ranks alone")
    from han.cli.measuring import cases_of

    def case(name: str, nbytes: int) -> Case:
        return Case(name, nbytes, element_type(dtype).name, known_op(op))

    cases = cases_of(names, sizes, case)
    inputs = tuple(Input(one.collective, one.nbytes) for one in cases if one.nbytes)
    seconds = _seconds(budget)
    return Plans(
        inputs, strategies[0], seconds or None, limits, model, element_type(dtype).name, op, shared
    )


def _seconds(text: str) -> float:
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(s|min|h|)\s*", text)
    if found is None:
        raise ArgumentError(f"budget {text!r}: expected a time such as 90s, 2min or 1h")
    return float(found[1]) * SECONDS[found[2]]


def _tell_end(
    found: Outcome, plans: Plans, tell: Tell, json_file: Path | None, verbose: bool
) -> None:
    """Print the table and what is left, and write JSON; raises ArgumentError for a lost table."""
    from han.cli.tune_texts import table_text

    tell(table_text(found.table.points))
    _tell_pruned(found, tell, verbose)
    if not found.complete:
        tell(f"# {_left(found.left)}; run the same command again to go on")
    if not found.problem and found.table.points and not rank():
        wrote(found.path)
    if json_file is not None:
        from han.cli.measuring import keep

        keep(_record(found, plans), json_file)
    if found.problem:
        raise ArgumentError(found.problem)


def _tell_pruned(found: Outcome, tell: Tell, verbose: bool) -> None:
    """Write what was left out beside the table, and print a summary of it, or all of it.

    It is printed whole if it cannot be written.
    """
    from han.cli.tune_texts import pruned_list, pruned_text
    from han.tuning.tuned.places import left_out_file

    if not found.pruned:
        return
    file, everything = left_out_file(found.path), pruned_list(found.pruned)
    try:
        if not rank():
            file.parent.mkdir(parents=True, exist_ok=True)
            write_whole(file, everything + "\n")
    except OSError as error:
        say(f"# {file}: cannot be written: {error.strerror or error}")
        verbose = True
    lines = "\n".join(f"#   {line}" for line in everything.splitlines())
    tell(f"# left out:\n{lines}" if verbose else pruned_text(found.pruned, str(file)))


def _left(left: Sequence[Input]) -> str:
    from han.common.units import format_size, plural

    if not left:
        return "the budget was spent before some candidates were measured"
    named = ", ".join(f"{one.collective} of {format_size(one.nbytes)}" for one in left[:4])
    more = ", ..." if len(left) > 4 else ""
    return f"the budget was spent before {plural(len(left), 'input')}: {named}{more}"


def _record(found: Outcome, plans: Plans) -> dict[str, Any]:
    """Return what was measured, predicted and left out as plain data."""
    import json

    from han.common.version import __version__
    from han.tuning.tuned.files import as_text

    table = json.loads(as_text(found.table))
    return {
        "format": FORMAT,
        "version": VERSION,
        "han": __version__,
        "unit": "s",
        "machine": table["machines"][0],
        "strategy": plans.strategy,
        "complete": found.complete,
        "left": [{"collective": one.collective, "nbytes": one.nbytes} for one in found.left],
        "pruned": [*map(str, found.pruned)],
        "rows": table["calls"],
    }


# ---- export and report ----------------------------------------------------------------------


EXAMPLES = {
    Action.EXPORT: "rules.yaml", Action.REPORT: "report.html", Action.MERGE: "tuned.json",
}  # fmt: skip


def _show(
    action: Action, file: Path | None, tables: Sequence[Path], runs: Sequence[Path],
    compared: Path | None,
) -> None:  # fmt: skip
    if file is None:
        example = EXAMPLES[action]
        raise ArgumentError(f"han tune {action.value}: name the file to write, such as {example}")
    check_files(file)
    if action is Action.MERGE:
        _merge(file, tables)
        return
    if len(tables) > 1:
        raise ArgumentError(f"han tune {action.value}: one --table; join several with merge first")
    found = _table(tables[0] if tables else None)
    if rank():
        return
    if action is Action.EXPORT:
        from han.model.measurements import read
        from han.tuning.tuned.confirmed import confirmed
        from han.tuning.tuned.export import as_rules, chosen
        from han.tuning.tuned.files import as_text

        if runs:
            found = confirmed(found, [read(path) for path in runs])
        write_file(file, as_text(chosen(found)) if file.suffix == ".json" else as_rules(found))
        return
    from han.cli.quality_file import rows_of
    from han.plots.tuning import report

    rows = () if compared is None else rows_of(compared)
    for path in report(found, file, _left_out(found.source), rows):
        wrote(path)


def _left_out(source: str) -> str:
    """Return what the last run into a table left out, or ""."""
    from han.tuning.tuned.places import left_out_file

    try:
        return left_out_file(Path(source)).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""


def _merge(file: Path, tables: Sequence[Path]) -> None:
    """Write the points of several tables, and tell where their runs contradict each other."""
    from han.tuning.tuned.files import as_text, read
    from han.tuning.tuned.merge import merge

    if not tables:
        raise ArgumentError("han tune merge: name the tables to join, each with --table")
    found = merge([read(path) for path in tables])
    for note in found.notes:
        say(f"# {note}")
    if not rank():
        write_file(file, as_text(found.table))


def _table(path: Path | None) -> TunedTable:
    """Return the table of a file, or that of this machine; raises TunedError or ArgumentError."""
    from han.tuning.tuned.files import read

    if path is not None:
        return read(path)
    from han.ranks.machine import fingerprint
    from han.tuning.tuned.places import AUTO, find_table

    found = find_table(AUTO, fingerprint)
    if found.table is None:
        raise ArgumentError(f"no tuned table of this machine ({found.about}): name one (--table)")
    return read(Path(found.table.source))
