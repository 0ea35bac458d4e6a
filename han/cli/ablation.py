"""The command ``han ablation``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from mpi4py import MPI

import han
from han.cli.common import (
    ConfigOption,
    DtypeOption,
    OpOption,
    PlotOption,
    RootOption,
    check_files,
    measured_record,
    progress,
    say,
    write_file,
)
from han.common.suggest import expect_known
from han.common.units import format_size
from han.measure.sizes import parse_sizes
from han.model.element_types import element_type

if TYPE_CHECKING:
    from han.measure.ablation import Result
    from han.measure.bench import Settings
    from han.measure.bench_machine import Machine

FORMAT, VERSION = "han-ablation", 1
COLUMN = 24


def ablation(
    collectives: Annotated[
        list[str] | None, typer.Argument(help="bcast, reduce, allreduce; all if none is named.")
    ] = None,
    sizes: Annotated[str, typer.Option(help="As han bench takes them.")] = "8,4KiB,64KiB,1MiB",
    dtype: DtypeOption = "f8",
    op: OpOption = "sum",
    root: RootOption = 0,
    rounds: Annotated[int, typer.Option(min=1, help="Turns of each variant.")] = 7,
    iterations: Annotated[
        int | None, typer.Option(min=1, help="Calls in a batch; found out if unsaid.")
    ] = None,
    config: ConfigOption = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write JSON to a file; - is standard output.")
    ] = None,
    plot: PlotOption = None,
) -> None:
    """Measure what each optimisation in shared memory is worth, by leaving it out.

    The built-in choice and variants that lack one thing each take turns in one run; a ratio is
    a variant's time over the built-in choice's of the same round. Results are compared with the
    MPI library's. What a call does not use cannot be left out of it, and is not listed.

    \b
    Examples:
      mpiexec -n 4 han ablation
      mpiexec -n 4 han ablation reduce --sizes 8:4MiB:8 --plot ablation.png
      mpiexec -n 2 han ablation bcast --sizes 64KiB --json -
    """
    from han.measure import bench as measuring
    from han.measure import bench_calls as _bench_calls
    from han.measure.ablation import COLLECTIVES, Ablation

    settings = measuring.Settings(
        dtype=element_type(dtype).name, op=op, root=root, rounds=rounds, iterations=iterations,
        seconds=0.02,
    )  # fmt: skip
    check_files(json_file, plot=plot)
    names = collectives or list(COLLECTIVES)
    for name in names:
        expect_known("collective", name, COLLECTIVES)
    calls = [settings.case(name, n) for name in names for n in parse_sizes(sizes)]
    for case in calls:
        _bench_calls.check_case(case, MPI.COMM_WORLD.size)
    with Ablation(MPI.COMM_WORLD, config, settings, calls) as running:
        _run(running, settings, json_file, plot)


def _run(running: Any, settings: Settings, json_file: Path | None, plot: Path | None) -> None:
    """Measure, print, and write what is wanted."""
    from han.measure import bench_machine as machines

    machine = machines.look(MPI.COMM_WORLD, running.han)
    results: list[Result] = []
    with progress(len(running.calls)) as advance:
        for case in running.calls:
            results += running.measure(case)
            advance()
    if MPI.COMM_WORLD.rank:
        return
    text = json.dumps(_record(machine, settings, results), indent=1)
    if str(json_file) == "-":
        print(text)
    else:
        say(as_text(machine, settings, results))
    if json_file is not None and str(json_file) != "-":
        write_file(json_file, text + "\n")
    if plot is not None:
        from han.plots import ablation as plots_ablation

        title = f"{machine.ranks} ranks, {machine.library}, wait {machine.wait}"
        plots_ablation.bars(results, plot, title)


def _record(machine: Machine, settings: Settings, results: Sequence[Result]) -> dict[str, Any]:
    how = {
        "dtype": settings.dtype, "op": settings.op, "root": settings.root,
        "rounds": settings.rounds,
    }  # fmt: skip
    rows = [result.record() for result in results]
    return measured_record(FORMAT, VERSION, machine, rows, settings=how)


def as_text(machine: Machine, settings: Settings, results: Sequence[Result]) -> str:
    """Return a table for each collective: a line a variant, a column a size."""
    lines = [
        f"# han {han.__version__} ablation: {settings.dtype} {settings.op} where they reduce",
        *(f"# {line}" for line in machine.lines()),
        f"# built-in: microseconds per call of the slowest rank, median of {settings.rounds} turns",
        "# others:   their time / the built-in choice's (min .. max): more than 1, it pays",
    ]
    for collective in dict.fromkeys(result.collective for result in results):
        lines += ["", *_table([r for r in results if r.collective == collective])]
    return "\n".join(lines)


def _table(results: Sequence[Result]) -> list[str]:
    from han.measure.ablation import BUILT_IN, VARIANTS

    sizes = list(dict.fromkeys(r.nbytes for r in results))
    found = {(r.variant, r.nbytes): r for r in results}
    about = {BUILT_IN: "as han chooses", **{v.name: v.about for v in VARIANTS}}
    names = [n for n in about if any((n, size) in found for size in sizes)]
    head = "".join(f"{format_size(n):>{COLUMN}}" for n in sizes)
    lines = [f"# {results[0].collective}", f"#{'without':>16}{head}"]
    for name in names:
        cells = "".join(f"{_cell(found.get((name, n))):>{COLUMN}}" for n in sizes)
        lines.append(f"{name:>17}{cells}  # {about[name]}")
    return lines


def _cell(result: Result | None) -> str:
    from han.measure.ablation import BUILT_IN

    if result is None:
        return "-"
    if result.variant == BUILT_IN:
        return f"{result.us:.2f} us"
    return f"{result.ratio:.2f} ({result.low:.2f} .. {result.high:.2f})"
