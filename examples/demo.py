"""Show the pipeline of han on one machine, as two virtual nodes of two ranks each.

    mpiexec -n 4 python examples/demo.py

Runs a broadcast and an allreduce, compares the results with MPI's own, prints the stages that the
calls went through, and draws ``taskgraph.png`` (the tasks of an allreduce) and ``timeline.png``
(when they ran). Virtual nodes show the pipeline, not its speed: their ranks exchange messages
although they share memory. ``han bench`` measures the machine as it is.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from _common import all_agree, fail, run
from mpi4py import MPI

import han
from han.model.timeline import typical_call
from han.plots.tasks import plan_picture
from han.plots.timeline import gantt
from han.trace.timeline_parts import select

SIZE = 4 << 20
DRAWN = 1 << 20  # bytes of the allreduce in the pictures
CALLS = 9
CONFIG = "virtual-2x2"


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
    """Print what ran, stage by stage, and whether the result was right."""
    say(str(comm.explain(collective, SIZE, root=comm.size - 1 if collective == "bcast" else 0)))
    say(f"  result    {'the same as MPI gives, on all ranks' if right else 'WRONG'}\n")
    if not right:
        fail(MPI.COMM_WORLD, f"{collective}: han and MPI differ")


def draw(comm: han.Comm, folder: Path) -> None:
    """Draw the tasks of an allreduce, and when they ran in the median of a few calls."""
    mine = np.ones(DRAWN // 8)
    total = np.empty_like(mine)
    comm.Allreduce(mine, total)  # the first call makes the plan
    with comm.trace(align=True) as trace:
        for _ in range(CALLS):
            comm.Allreduce(mine, total)
    timeline = trace.timeline()
    if timeline is not None:  # on rank 0
        plan_picture(comm.explain("allreduce", DRAWN).plan, folder / "taskgraph.png")
        gantt([select(timeline, typical_call(timeline))], folder / "timeline.png")


def main(
    out: Annotated[Path, typer.Option(help="A folder for the pictures.")] = Path("demo"),
) -> None:
    """Show the pipeline of han: stages, results compared with MPI's, task graph, timeline."""
    comm = han.Comm(MPI.COMM_WORLD, config=CONFIG)
    if comm.rank == 0:
        out.mkdir(parents=True, exist_ok=True)
    say(f"{comm.size} ranks as virtual nodes of two\n")
    show(comm, "bcast", broadcast(comm))
    show(comm, "allreduce", sum_up(comm))
    draw(comm, out)
    say(f"pictures: {out / 'taskgraph.png'}, {out / 'timeline.png'}")
    say(
        "most of the timeline is waiting: messages, ranks that are not there yet and, where ranks\n"
        "outnumber processors, the wait for one; 'han trace' says which rank came last"
    )


if __name__ == "__main__":
    run(main)
