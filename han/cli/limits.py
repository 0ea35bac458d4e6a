"""The command ``han limits``: collectives against plain copies of the same bytes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from mpi4py import MPI

from han.cli import options
from han.cli.common import check_files, keep, prints
from han.cli.measuring import cases_of
from han.cli.progress import progress
from han.cli.words import calls_of
from han.common.suggest import expect_known
from han.common.tables import shown_table
from han.common.units import format_size
from han.measure.bench import Bench, Settings
from han.measure.bench_calls import Case
from han.measure.bench_machine import document, heading, look
from han.measure.limits import MODES, MOVING, USUAL, Limit, measure

HEADS = (
    "collective", "size", "arrays", "han us", "GB/s", "plain us", "GB/s", "by", "reached",
)  # fmt: skip


def limits(
    words: options.Calls = None,
    shared: Annotated[
        bool | None,
        typer.Option(
            "--shared/--ordinary",
            help="Persistent calls on shared arrays, or blocking calls on ordinary arrays. By "
            "default both.",
        ),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Batches of each, in turns.")] = 9,
    time: options.Time = 0.3,
    config: options.Config = None,
    json_file: options.JsonFile = None,
) -> None:
    """Compare the speed of collectives with plain copies and additions of the same bytes.

    In turns with han's calls, all ranks at once copy and add the bytes that their programs move, in
    large blocks and without waiting for each other: with NumPy, with han's kernels, and with stores
    past the caches. The fastest of these is the limit. GB/s count all bytes that the ranks copy and
    combine.

    \b
    Examples:
      mpiexec -n 2 han limits
      mpiexec -n 4 han limits allreduce 1MiB:64MiB:8 --shared
      mpiexec -n 2 han limits bcast --ordinary --json limits.json
    """
    check_files(json_file)
    called = calls_of(words, USUAL, "64MiB")
    for name in called.names:
        expect_known("collective", name, MOVING)
    kinds = (True, False) if shared is None else (shared,)
    settings = [
        Settings(MODES[kind], rounds=rounds, seconds=time, only="han", shared=kind)
        for kind in kinds
    ]
    _run(config, settings, cases_of(called, settings[0].case), json_file)


def _run(
    config: str | None, settings: Sequence[Settings], cases: Sequence[Case], json_file: Path | None
) -> None:
    """Measure all cases on each kind of array, print the table, write the file; collective."""
    found: list[Limit] = []
    tell = prints(json_file)
    with progress(len(cases) * len(settings)) as advance:
        for one in settings:
            with Bench(MPI.COMM_WORLD, config, one) as bench:
                machine = look(MPI.COMM_WORLD, bench.han)
                if one is settings[0]:
                    tell(heading("limits", "collectives beside plain copies", machine))
                for case in cases:
                    found.append(measure(bench, case))
                    advance()
    tell(_table(found))
    keep(document("han-limits", 1, machine, [one.record() for one in found]), json_file)


def _table(found: Sequence[Limit]) -> str:
    rows = [
        [
            one.collective, format_size(one.nbytes), "shared" if one.shared else "ordinary",
            f"{one.han.median:.1f}", f"{one.rate(one.han):.2f}",
            f"{one.plain.median:.1f}", f"{one.rate(one.plain):.2f}", one.by, f"{one.share:.0%}",
        ]
        for one in found
    ]  # fmt: skip
    return shown_table("medians of the slowest rank", HEADS, rows)
