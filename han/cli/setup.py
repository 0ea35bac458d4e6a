"""The command ``han setup-costs``: what planning and making costs, and when it pays."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from mpi4py import MPI

import han
from han.cli.common import (
    ConfigOption,
    JsonOption,
    PlotOption,
    check_files,
    measured_record,
    shown_table,
    tell_measured,
)
from han.common.units import format_size
from han.measure.bench_calls import Case, check_case, measurable
from han.measure.bench_machine import look
from han.measure.sizes import parse_sizes
from han.model.collectives import DATALESS

if TYPE_CHECKING:
    from han.measure.setup_costs import Costs

CALLS = [1 << k for k in range(15)]  # shown in pictures


def setup_costs(
    collectives: Annotated[
        list[str] | None, typer.Argument(help=f"{', '.join(measurable())}; all if none is named.")
    ] = None,
    sizes: Annotated[str, typer.Option(help="As of han bench.")] = "8,64KiB,8MiB",
    rounds: Annotated[int, typer.Option(min=1, help="Each with new communicators.")] = 5,
    calls: Annotated[int, typer.Option(min=1, help="Of a shape whose plan is there.")] = 20,
    config: ConfigOption = None,
    json_file: JsonOption = None,
    plot: PlotOption = None,
) -> None:
    """Measure first, cached and persistent calls, and the making of what they need.

    Microseconds of the slowest rank. "pays after" is the number of calls beyond which making a
    persistent request has cost less than blocking calls (Jocksch et al., figure 14); "stored" is
    a first call whose plan HAN_WISDOM has kept.

    \b
    Examples:
      mpiexec -n 4 han setup-costs
      mpiexec -n 4 han setup-costs allreduce --sizes 8,1MiB --plot costs.png
      mpiexec -n 4 han setup-costs --json costs.json
    """
    from han.measure.setup_costs import PARTS, measure

    check_files(json_file, plot=plot)
    cases = [
        Case(name, nbytes)
        for name in collectives or measurable()
        for nbytes in (parse_sizes(sizes) if name not in DATALESS else [0])
    ]
    for case in cases:
        check_case(case, MPI.COMM_WORLD.size)
    comm = han.Comm(MPI.COMM_WORLD.Dup(), config)
    machine = look(comm, comm)
    comm.Free()
    found = measure(MPI.COMM_WORLD, config, cases, rounds, calls)
    record = measured_record(
        "han-setup-costs", 1, machine, [one.record() for one in found],
        settings={"rounds": rounds, "calls": calls}, parts=PARTS,
    )  # fmt: skip
    tell_measured(_table(found), record, json_file)
    if plot is not None and not MPI.COMM_WORLD.rank:
        _picture(found, plot)


def _table(found: Sequence[Costs]) -> str:
    from han.measure.setup_costs import PARTS

    rows = [
        [
            one.collective, format_size(one.nbytes),
            *(f"{getattr(one, part):.1f}" for part in PARTS),
            "never" if one.pays is None else str(one.pays),
        ]
        for one in found
    ]  # fmt: skip
    title = f"set-up on {MPI.COMM_WORLD.size} ranks, microseconds"
    return shown_table(title, ["collective", "size", *PARTS, "pays after"], rows)


def _picture(found: Sequence[Costs], plot: Path) -> None:
    """Draw the time per call over the number of calls, set-up included."""
    from han.plots.lines import Panel, lines

    panels = []
    for one in found:
        series: dict[str, dict[int, float]] = {}
        for calls in CALLS:
            for how, each in one.per_call(calls).items():
                series.setdefault(how, {})[calls] = each
        marks = {} if one.pays is None else {one.pays: f"persistent pays after {one.pays}"}
        title = f"{one.collective} of {format_size(one.nbytes)}"
        panels.append(Panel(title, "calls", series, marks))
    lines(panels, plot, f"set-up included, {MPI.COMM_WORLD.size} ranks")
