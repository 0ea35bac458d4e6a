"""The command ``han calibrate``: the machine measured, or predictions held against reports."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from han.cli import options
from han.cli.common import check_files, drawn, rank, say, write_file
from han.cli.progress import progress
from han.common.errors import ArgumentError
from han.common.tables import shown_table
from han.common.units import format_size
from han.config.machine import MachineModel, load_machine
from han.model.measurements import Report, read
from han.model.series import Panel, short
from han.plots.plots import lines
from han.tuning import calibration
from han.tuning.calibration import Compared, Comparison, Measured, Oracle
from han.tuning.prediction import Where

HEADS = ("collective", "size", "run", "measured", "predicted", "error")


def calibrate(
    files: Annotated[
        list[Path] | None,
        typer.Argument(help="Files that 'han bench --json FILE' wrote on the machine."),
    ] = None,
    machine: Annotated[
        str, typer.Option(help="Of files: a YAML file, or the name of a ready machine.")
    ] = "",
    fit: Annotated[
        Path | None,
        typer.Option(help="Of files: fit the machine to the measurements, and write it to a file."),
    ] = None,
    plot: options.Plot = None,
    out: Annotated[
        Path | None, typer.Option(help="Without files: write a machine file for the simulator.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Without files: keep also what was disturbed.")
    ] = False,
    as_json: options.JsonFlag = False,
) -> None:
    """Measure this machine and keep what was found, or compare predictions with measurements.

    Without files, all ranks measure in at most 5 s how fast messages, copies and reductions are.
    Later jobs on this machine choose by it what calls run. With files, each measured call of han is
    predicted under the configuration of its measurement. For pairs of configurations, the table
    counts how often the faster one is predicted to be faster.

    \b
    Examples:
      mpiexec -n 8 han calibrate
      mpiexec -n 8 han calibrate --out here.yaml
      han calibrate --machine emulated-1gbit 32KiB.json 128KiB.json whole.json
      han calibrate --machine emulated-1gbit *.json --fit my-cluster.yaml
    """
    if files:
        _expect(not (out or force), "--out and --force are for calibrations without files")
        _expect(bool(machine), "--machine is missing: whose predictions are compared with files")
        _compare(machine, files, fit, plot, as_json)
        return
    _expect(not (machine or fit or plot), "files of 'han bench --json' are missing")
    from han.cli.calibrate_here import calibrate_here

    calibrate_here(out, force, as_json)


def _expect(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ArgumentError(otherwise)


def _compare(
    machine: str, files: Sequence[Path], fit: Path | None, plot: Path | None, as_json: bool
) -> None:
    check_files(fit, plot=plot)
    runs = [read(path) for path in files]
    cases = [case for run in runs for case in calibration.measured_of(run)]
    if not cases:
        raise ArgumentError(
            f"{', '.join(map(str, files))}: the files have no times of han; measure han too"
        )
    where = _where(runs, machine)
    if rank():
        return
    oracle = calibration.Oracle(where)
    model = load_machine(machine)
    if fit is not None:
        model = _fit(oracle, cases, fit)
    with progress(len(cases), "simulating") as advance:
        rows = []
        for case in cases:
            rows.append(oracle.predict(model, case))
            advance()
    _tell(calibration.Comparison(tuple(rows)), machine, plot, as_json)


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


def _fit(oracle: Oracle, cases: Sequence[Measured], path: Path) -> MachineModel:
    with progress(calibration.rounds(), "fitting") as advance:
        model = calibration.fit(oracle, cases, advance)
    data = calibration.to_mapping(model)
    write_file(path, yaml.safe_dump(data, sort_keys=False))
    return model


def _tell(found: Comparison, machine: str, plot: Path | None, as_json: bool) -> None:
    same, clear, close = found.pairs()
    if as_json:
        say(json.dumps({
            "machine": machine, "median_error": found.median_error,
            "pairs": {"same_winner": same, "clear": clear, "too_close": close},
            "rows": [_record(row) for row in found.rows],
        }, indent=1))  # fmt: skip
    else:
        say("\n".join(_lines(found, machine)))
    drawn(plot, partial(_plot, found, machine))


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
        f"# median error {found.median_error:.1%} over {len(found.rows)} cases",
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
