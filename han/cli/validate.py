"""The command ``han validate``: predictions beside reports of ``han bench``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from han.cli import options
from han.cli.common import answer, check_files, check_json, drawn, rank, write_file
from han.cli.progress import progress
from han.common.errors import ArgumentError
from han.common.tables import shown_table
from han.common.units import format_size
from han.config.machine import MachineModel, load_machine
from han.model.measurements import Report, read
from han.model.series import Panel, short
from han.plots.plots import lines
from han.tuning.fit import ROUNDS, Case, fitted
from han.tuning.prediction import Where
from han.tuning.validation import Compared, Comparison, case_of, compared, measured_of

HEADS = ("collective", "size", "run", "measured", "predicted", "error")


def validate(
    files: Annotated[
        list[Path], typer.Argument(help="Files that 'han bench --json FILE' wrote on the machine.")
    ],
    machine: options.Machine,
    fit: Annotated[
        Path | None,
        typer.Option(help="Fit the machine to the measurements, and write it to a file."),
    ] = None,
    plot: options.Plot = None,
    json_file: options.JsonFile = None,
) -> None:
    """Compare predictions with measurements, and fit a machine to them.

    Each measured call of han is predicted under the configuration of its measurement. For pairs of
    configurations, the table counts how often the faster one is predicted to be faster.

    \b
    Examples:
      han validate --machine emulated-1gbit 32KiB.json 128KiB.json whole.json
      han validate --machine emulated-1gbit *.json --fit my-cluster.yaml
    """
    check_json(json_file)
    check_files(fit, plot=plot)
    runs = [read(path) for path in files]
    measured = [one for run in runs for one in measured_of(run)]
    if not measured:
        raise ArgumentError(
            f"{', '.join(map(str, files))}: the files have no times of han; measure han too"
        )
    where = _where(runs, machine)
    if rank():
        return
    cases = [case_of(where, one) for one in measured]
    model = where.machine if fit is None else _fit(where.machine, cases, fit)
    rows = []
    with progress(len(cases), "simulating") as advance:
        for one, case in zip(measured, cases, strict=True):
            rows.append(compared(one, case, model))
            advance()
    found = Comparison(tuple(rows))
    told = partial(_lines, found, machine)
    answer(json_file, lambda: "\n".join(told()), partial(_document, found, machine))
    drawn(plot, partial(_plot, found, machine))


def _where(runs: Sequence[Report], machine: str) -> Where:
    places = {(run.data["machine"]["nodes"], run.data["machine"]["ranks"]) for run in runs}
    if len(places) > 1:
        raise ArgumentError(f"the runs have different (nodes, ranks): {sorted(places)}")
    nodes, ranks = places.pop()
    if ranks % nodes:
        raise ArgumentError(
            f"{ranks} ranks on {nodes} nodes: expected the same number on each node"
        )
    for run in runs:
        root = run.data["settings"]["root"]
        if root >= ranks:
            raise ArgumentError(f"{run.name}: settings.root: {root} is not in 0..{ranks - 1}")
    return Where(load_machine(machine), nodes, ranks // nodes)


def _fit(first: MachineModel, cases: Sequence[Case], path: Path) -> MachineModel:
    with progress(ROUNDS, "fitting") as advance:
        model, _ = fitted(first, cases, advance)
    write_file(path, yaml.safe_dump(model.to_mapping(), sort_keys=False))
    return model


def _document(found: Comparison, machine: str) -> dict[str, Any]:
    same, clear, close = found.pairs()
    return {
        "machine": machine, "cases": len(found.rows),
        "median_error": found.error_of(0.5), "error_of_90_percent": found.error_of(0.9),
        "pairs": {"same_winner": same, "clear": clear, "too_close": close},
        "rows": [_record(row) for row in found.rows],
    }  # fmt: skip


def _record(row: Compared) -> dict[str, Any]:
    collective, nbytes = row.case.key
    return {"collective": collective, "nbytes": nbytes, "choice": row.case.choice,
            "measured": row.case.microseconds, "predicted": row.predicted,
            "error": row.error}  # fmt: skip


def _lines(found: Comparison, machine: str) -> list[str]:
    same, clear, close = found.pairs()
    rows = [
        [
            row.case.key[0], format_size(row.case.key[1]), row.case.choice,
            short(row.case.microseconds), short(row.predicted), f"{row.error:+.0%}",
        ]
        for row in found.rows
    ]  # fmt: skip
    told = [
        f"# {machine}: predicted against measured, microseconds per call",
        shown_table("", HEADS, rows, left=["run"]),
        f"# median error {found.error_of(0.5):.1%} over {len(found.rows)} cases, "
        f"{found.error_of(0.9):.0%} or less in 90 % of them",
    ]
    if clear or close:
        share = f" ({same / clear:.0%})" if clear else ""
        told.append(
            f"# pairs of plans for one call: the same winner in {same} of {clear}{share}; "
            f"{close} more are within 5% of each other"
        )
    return told


def _plot(found: Comparison, machine: str, path: Path) -> None:
    panels: dict[str, dict[str, dict[int, float]]] = {}
    for row in found.rows:
        collective, nbytes = row.case.key
        series = panels.setdefault(collective, {})
        series.setdefault(f"{row.case.choice}, measured", {})[nbytes] = row.case.microseconds
        series.setdefault(f"{row.case.choice}, predicted", {})[nbytes] = row.predicted
    each = [Panel(name, "bytes", series) for name, series in panels.items()]
    lines(each, path, f"{machine}: predicted and measured")
