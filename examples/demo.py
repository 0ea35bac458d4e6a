"""Show han at work on one machine: two virtual nodes of two ranks each.

    mpiexec -n 4 python examples/demo.py

Runs a pipelined broadcast and allreduce, compares the results with MPI's own, prints their
stages, measures han beside MPI, and draws ``taskgraph.png`` and ``comparison.png``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from _common import all_agree, fail, run
from mpi4py import MPI

import han
from han.measure.bench import Bench, Settings
from han.measure.bench_machine import library_name, look
from han.measure.bench_report import head, report, table_head, table_row
from han.plots import plots
from han.plots.tasks import plan_picture

SIZE = 4 << 20
CONFIG = "virtual-2x2"
SIZES = [8, 1 << 10, 16 << 10, 128 << 10, 1 << 20, 4 << 20]
COLLECTIVES = ("bcast", "allreduce")


def say(text: str = "") -> None:
    """Print on rank 0."""
    if MPI.COMM_WORLD.rank == 0:
        print(text, flush=True)


def broadcast(comm: han.Comm) -> bool:
    """Broadcast from the last rank with han and with MPI; tell whether all ranks agree."""
    root = comm.size - 1
    ours = np.random.default_rng(comm.rank).random(SIZE // 8)
    theirs = ours.copy()
    comm.Bcast(ours, root=root)
    MPI.COMM_WORLD.Bcast(theirs, root=root)
    return all_agree(MPI.COMM_WORLD, np.array_equal(ours, theirs))


def sum_up(comm: han.Comm) -> bool:
    """Sum whole numbers with han and with MPI; tell whether all ranks agree."""
    mine = np.arange(SIZE // 8, dtype=np.float64) + comm.rank
    ours, theirs = np.empty_like(mine), np.empty_like(mine)
    comm.Allreduce(mine, ours, op=MPI.SUM)
    MPI.COMM_WORLD.Allreduce(mine, theirs, op=MPI.SUM)
    return all_agree(MPI.COMM_WORLD, np.array_equal(ours, theirs))


def show(comm: han.Comm, collective: str, right: bool) -> None:
    """Print what ran, stage by stage, and whether it was right."""
    say(str(comm.explain(collective, SIZE, root=comm.size - 1 if collective == "bcast" else 0)))
    say(f"  result    {'the same as MPI gives, on all ranks' if right else 'WRONG'}\n")
    if not right:
        fail(MPI.COMM_WORLD, f"{collective}: han and MPI differ")


def measure(folder: Path) -> None:
    """Measure han beside MPI, print the table, and draw it."""
    settings = Settings(seconds=0.2)
    with Bench(MPI.COMM_WORLD, CONFIG, settings) as bench:
        machine = look(MPI.COMM_WORLD, bench.han)
        say(head(machine, settings, han.__version__))
        rows = []
        for collective in COLLECTIVES:
            say(table_head(collective, machine, settings))
            for row in bench.rows(collective, SIZES):
                rows.append(row)
                say(table_row(row))
    if MPI.COMM_WORLD.rank == 0:
        measured = report(machine, settings, rows, han.__version__)
        plots.comparison(
            plots.panels_of(measured), folder / "comparison.png", plots.title_of(measured)
        )


def main(
    out: Annotated[Path, typer.Option(help="Folder for the pictures.")] = Path("demo"),
) -> None:
    """Show han at work: stages, results checked against MPI, times, pictures."""
    comm = han.Comm(MPI.COMM_WORLD, config=CONFIG)
    if comm.rank == 0:
        out.mkdir(parents=True, exist_ok=True)
    say(f"{comm.size} ranks as virtual nodes of two, {library_name()}\n")
    show(comm, "bcast", broadcast(comm))
    show(comm, "allreduce", sum_up(comm))
    if comm.rank == 0:
        plan_picture(comm.explain("allreduce", SIZE).plan, out / "taskgraph.png")
    measure(out)
    say(f"\npictures: {out / 'taskgraph.png'}, {out / 'comparison.png'}")


if __name__ == "__main__":
    run(main)
