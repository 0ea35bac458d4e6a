"""A table of 2 x 2 ranks on 4 x 2, 4 x 4 and 8 x 1, on the simulator's machine.

Each decision is compared with what a search finds there: its regret. The costs of tasks are those
of a run of the tuner on 2 x 2; they may vary by a deviation, as those of real ranks do.

    python tests/tuning/bench_shapes.py [MACHINE [DEVIATION]]
"""

import math
import sys
from dataclasses import replace
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

from simulated_tuner import ShapeLab, answering, regrets, steady, tuned_on

from han.common.tables import shown_table
from han.common.units import format_size
from han.tuning.search.limits import Limits
from han.tuning.search.portfolio import OWN, Case, Grid
from han.tuning.shapes.worth import worth_a_run

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


def varied(table, deviation):
    """Return a table whose costs of tasks vary by a deviation of their logarithms."""
    draw = Random(1)
    tasks = (
        replace(one, seconds=one.seconds * math.exp(draw.gauss(0, deviation)))
        for one in table.tasks
    )
    return replace(table, tasks=tuple(tasks))


def main():
    """Print the regrets of each shape, those that are large, and the shapes worth a run."""
    name, deviation = [*sys.argv[1:], *("emulated-1gbit", "0")[len(sys.argv) - 1 :]]
    machine = steady(name)
    inputs = [(c, n) for c in COLLECTIVES for n in SIZES if c != "allgather" or n <= LARGEST]
    table = varied(tuned_on(ShapeLab(machine, 2, 2), inputs, LIMITS), float(deviation))
    print(f"{len(table.points)} inputs on 2 x 2, {len(table.tasks)} costs of tasks", flush=True)
    grid = Grid(COLLECTIVES, (2, 4, 8), (1, 2, 4), SIZES, 16)
    told, study, error = answering(table, grid)
    print(f"{len(told.predicted)} rows predicted, error of the model {error:.3f}", flush=True)
    rows, every = [], []
    for shape in OTHERS:
        found = regrets(told, machine, [Case(c, *shape, n) for c, n in inputs])
        rows.append(line("{} x {}".format(*shape), found))
        every += found
        for one in found:
            if one.told > GOOD:
                size = format_size(one.case.nbytes)
                call = f"{one.case.collective} of {size} on {shape[0]} x {shape[1]}"
                print(f"  {call}: {one.told:.2f}, built-in {one.built_in:.2f}", flush=True)
    heads = ["ranks", "within 1.15", "mean", "worst", "built-in: within 1.15", "mean", "worst"]
    print(shown_table("", heads, [*rows, line("all", every)], left=["ranks"]))
    print(worth_a_run(study.ratios, [(2, 2)], error))


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
