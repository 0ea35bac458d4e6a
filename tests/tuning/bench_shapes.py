"""A table of 2 x 2 ranks on 4 x 2, 4 x 4 and 8 x 1, on the simulator's machine.

Each decision is compared with what a search finds there: its regret. The costs of tasks are those
of a run of the tuner on 2 x 2; they may vary by a deviation, as those of real ranks do. It takes
some minutes.

    python tests/tuning/bench_shapes.py [MACHINE [DEVIATION]]
"""

import math
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

from simulated_tuner import HERE, ShapeLab, regrets, steady, tuned_on

from han.common.tables import shown_table
from han.common.units import format_size
from han.tuning.search.class_files import Processes
from han.tuning.search.limits import Limits
from han.tuning.search.portfolio import OWN, Case, Grid
from han.tuning.shapes.machine import fitted
from han.tuning.shapes.rows import study
from han.tuning.shapes.worth import worth_a_run
from han.tuning.tuned.table import with_predictions

KiB = 1024
COLLECTIVES = "bcast", "reduce", "allreduce", "allgather"
SIZES = 8, 256, 8 * KiB, 64 * KiB, 512 * KiB, 4096 * KiB
OTHERS = (4, 2), (4, 4), (8, 1)
LIMITS = Limits(
    submodules=OWN, schedules=("dataflow",), segments=(16 * KiB, 64 * KiB, 256 * KiB),
    parameters={"adapt.segment": (8 * KiB, 32 * KiB), "factors": (), "skew": (), "cells": (),
                "trailing": (), "radix": (), "in_recv": ()},
)  # fmt: skip
GOOD = 1.15
LARGEST = 512 * KiB  # of blocks of an allgather
INPUTS = [(c, n) for c in COLLECTIVES for n in SIZES if c != "allgather" or n <= LARGEST]
HEADS = "ranks", "within 1.15", "mean", "worst", "built-in: within 1.15", "mean", "worst"


def varied(table, deviation):
    """Return a table whose costs of tasks vary by a deviation of their logarithms."""
    draw = Random(1)
    tasks = (
        replace(one, seconds=one.seconds * math.exp(draw.gauss(0, deviation)))
        for one in table.tasks
    )
    return replace(table, tasks=tuple(tasks))


def regrets_on(name, table, shape):
    """Return the regrets of all inputs on a shape."""
    return regrets(table, steady(name), [Case(c, *shape, n) for c, n in INPUTS])


def main():
    """Print the regrets of each shape, those that are large, and the shapes worth a run."""
    name, deviation = [*sys.argv[1:], *("emulated-1gbit", "0")[len(sys.argv) - 1 :]]
    table = varied(tuned_on(ShapeLab(steady(name), 2, 2), INPUTS, LIMITS), float(deviation))
    models = fitted(table.tasks, HERE.cores, HERE.link)
    print(f"{len(table.tasks)} costs of tasks, errors of models:", [m.error for m in models])
    workers = len(os.sched_getaffinity(0))
    machines = [one.machine.to_mapping() for one in models]
    processes = Processes(machines, workers, lambda *_: nullcontext(lambda: None))
    grid = Grid(COLLECTIVES, (2, 4, 8), (1, 2, 4), SIZES, 16)
    found = study(table, grid, processes.winners, processes.compared, models[0].error)
    told = with_predictions(table, found.rows)
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        every = [*pool.map(partial(regrets_on, name, told), OTHERS)]
    for one in (one for some in every for one in some if one.told > GOOD):
        size, (collective, nodes, ppn, _) = format_size(one.case.nbytes), one.case
        call = f"{collective} of {size} on {nodes} x {ppn}"
        print(f"  {call}: {one.told:.2f}, built-in {one.built_in:.2f}")
    rows = [line(f"{n} x {p}", some) for (n, p), some in zip(OTHERS, every, strict=True)]
    rows.append(line("all", [one for some in every for one in some]))
    print(shown_table("", HEADS, rows, left=["ranks"]))
    for worth in worth_a_run(found.ratios, [(2, 2)], models[0].error):
        print("worth a run:", worth)


def line(name, found):
    """Return the share of good decisions, the geometric mean and the worst, and the built-in's."""
    cells = [name]
    for key in ("told", "built_in"):
        values = [getattr(one, key) for one in found]
        mean = math.exp(sum(map(math.log, values)) / len(values))
        share = 100 * sum(value <= GOOD for value in values) / len(values)
        cells += [f"{share:.0f} %", f"{mean:.2f}", f"{max(values):.2f}"]
    return cells


if __name__ == "__main__":
    main()
