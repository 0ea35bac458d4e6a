"""The command ``han ablation``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from mpi4py import MPI

from han.cli import options
from han.cli.common import check_files, drawn, keep, prints
from han.cli.measuring import cases_of
from han.cli.progress import progress
from han.cli.words import calls_of
from han.common.suggest import expect_known
from han.common.tables import shown_table
from han.common.units import format_size
from han.measure.ablation import BUILT_IN, COLLECTIVES, VARIANTS, Ablation, VariantResult
from han.measure.bench import Settings
from han.measure.bench_machine import document, heading, look
from han.model.element_types import element_type
from han.plots import plots

FORMAT, VERSION = "han-ablation", 1


def ablation(
    words: options.Calls = None,
    dtype: options.Dtype = "f8",
    op: options.Op = "sum",
    root: options.Root = 0,
    rounds: Annotated[int, typer.Option(min=1, help="Batches of each variant, in turns.")] = 7,
    iterations: options.Iterations = None,
    config: options.Config = None,
    json_file: options.JsonFile = None,
    plot: options.Plot = None,
) -> None:
    """Measure what each optimisation in shared memory is worth, by leaving it out.

    The built-in choice and variants without one optimisation take turns in one run. A ratio is the
    time of a variant divided by the time of the built-in choice in the same round. Results are
    compared with the MPI library's. Variants that do not apply to a call are not listed.

    \b
    Examples:
      mpiexec -n 4 han ablation
      mpiexec -n 4 han ablation reduce 8:4MiB:8 --plot ablation.png
      mpiexec -n 2 han ablation bcast 64KiB --json -
    """
    settings = Settings(
        dtype=element_type(dtype).name, op=op, root=root, rounds=rounds, iterations=iterations,
        seconds=0.02,
    )  # fmt: skip
    check_files(json_file, plot=plot)
    called = calls_of(words, COLLECTIVES, "8,4KiB,64KiB,1MiB")
    for name in called.names:
        expect_known("collective", name, COLLECTIVES)
    cases = cases_of(called, settings.case)
    with Ablation(MPI.COMM_WORLD, config, settings, cases) as running:
        _run(running, settings, json_file, plot)


def _run(running: Ablation, settings: Settings, json_file: Path | None, plot: Path | None) -> None:
    """Measure all cases, print the tables, and write the files; collective."""
    machine, tell = look(MPI.COMM_WORLD, running.han), prints(json_file)
    tell(heading(
        "ablation", f"reductions: {settings.dtype} {settings.op}", machine,
        f"built-in: microseconds per call of the slowest rank, median of {settings.rounds} rounds",
        "others:   time / time of built-in (min .. max); above 1, the optimisation is worth it",
    ))  # fmt: skip
    results: list[VariantResult] = []
    with progress(len(running.cases)) as advance:
        for case in running.cases:
            results += running.measure(case)
            advance()
    for collective in dict.fromkeys(result.collective for result in results):
        tell("\n" + _table([r for r in results if r.collective == collective]))
    how = {name: getattr(settings, name) for name in ("dtype", "op", "root", "rounds")}
    keep(document(FORMAT, VERSION, machine, map(asdict, results), settings=how), json_file)
    title = f"{machine.ranks} ranks, {machine.library}, wait {machine.wait}"
    drawn(plot, lambda path: plots.of_ablation(results, path, title))


def _table(results: Sequence[VariantResult]) -> str:
    """Return the table of one collective: a row for each variant, a column for each size."""
    sizes = list(dict.fromkeys(r.nbytes for r in results))
    found = {(r.variant, r.nbytes): r for r in results}
    about = {BUILT_IN: "the built-in choice", **{v.name: v.about for v in VARIANTS}}
    rows = [
        [name, *(_cell(found.get((name, n))) for n in sizes), text]
        for name, text in about.items()
        if any((name, n) in found for n in sizes)
    ]
    heads = ["without", *map(format_size, sizes), "about"]
    return shown_table(results[0].collective, heads, rows, left=["about"])


def _cell(result: VariantResult | None) -> str:
    if result is None:
        return "-"
    if result.variant == BUILT_IN:
        return f"{result.us:.2f} us"
    return f"{result.ratio:.2f} ({result.low:.2f} .. {result.high:.2f})"
