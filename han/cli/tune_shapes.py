"""``han tune shapes``: what a tuned table says for other numbers of nodes and ranks."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from han.cli.common import replace_file, say, wrote
from han.cli.progress import phases, progress
from han.common.errors import ArgumentError
from han.common.tables import shown_table
from han.common.units import plural
from han.tuning.fit import ROUNDS
from han.tuning.search.class_files import Processes
from han.tuning.shapes.machine import FIRST, Fitted, fitted
from han.tuning.shapes.rows import Study, grid_of, measured_shapes, study
from han.tuning.shapes.worth import Worth, worth_a_run
from han.tuning.tuned.files import as_text
from han.tuning.tuned.table import TunedTable, with_predictions

MOST_ERROR = 0.5  # of a model, from which on its predictions say nothing


def run(
    table: TunedTable, file: Path, nodes: Sequence[int], ppn: Sequence[int], *, jobs: int
) -> None:
    """Predict rows for shapes that were not measured, write the table, and tell of both."""
    shapes = measured_shapes(table)
    if not shapes:
        raise ArgumentError(
            f"{table.source}: has no measurements between nodes on the levels node and network, "
            "from which other shapes could be predicted"
        )
    grid = grid_of(table, nodes, ppn)
    if min(grid.nodes) < 2:
        raise ArgumentError(
            "--nodes: predictions are for calls between nodes, of which two or more"
        )
    if not any(grid.shapes()):
        most = f"{grid.ranks} ranks"
        raise ArgumentError(f"--nodes, --ppn: no shape of those has at most {most}")
    models = _models(table)
    machines = [one.machine.to_mapping() for one in models]
    workers = jobs or len(os.sched_getaffinity(0))
    processes = Processes(machines, workers, progress, models[0].in_a_row)
    found = study(table, grid, processes.winners, processes.compared, models[0].error)
    replace_file(file, as_text(with_predictions(table, found.rows)))
    say(told(found, models, worth_a_run(found.ratios, shapes, models[0].error)))
    wrote(file)


def _models(table: TunedTable) -> list[Fitted]:
    """Return the models that explain the costs of tasks; raises ArgumentError without any."""
    with phases() as bar:
        done, total = Counter[str](), ROUNDS * len(FIRST)

        def tell() -> None:
            done["rounds"] += 1
            bar("fitting", done["rounds"], total)

        found = fitted(table.tasks, table.machine.cores, table.machine.link, tell)
    if not found:
        raise ArgumentError(
            f"{table.source}: keeps no costs of tasks between nodes, from which other shapes could "
            "be predicted: run 'han tune' on several nodes into it"
        )
    if found[0].error > MOST_ERROR:
        raise ArgumentError(
            f"{table.source}: the costs of tasks fit no machine model, the best one is "
            f"{100 * found[0].error:.0f} % off: run 'han tune' again while nothing else runs"
        )
    return found


def told(found: Study, models: Sequence[Fitted], worth: Sequence[Worth]) -> str:
    """Return what was predicted, and which shapes are worth a run."""
    grid, error = found.grid, 100 * models[0].error
    counts = Counter(name for row in found.rows for name in row.when.collective)
    rows = [(name, str(counts[name])) for name in grid.collectives]
    shapes = ", ".join(f"{n} x {p}" for n, p in grid.shapes())
    lines = [
        f"# {plural(len(models), 'machine model')} explain the costs of tasks, error {error:.0f} %",
        f"# predicted for {shapes}",
        shown_table("", ["call", "rows"], rows, left=["call"]),
    ]
    if not worth:
        return "\n".join([*lines, "# no other shape is worth a run: the models agree"])
    lines.append("# worth a run of han tune, as the models differ there or it is far:")
    lines += [
        f"#   {n} x {p}: choices may take {doubt:.2f} times the best" for (n, p), doubt in worth
    ]
    return "\n".join(lines)
