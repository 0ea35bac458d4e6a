"""Compare compositions of an allreduce by size on nodes with a latency, measured and predicted.

    python tests/cluster/crossover.py crossover.png
    python tests/cluster/crossover.py crossover.png --measured measured.json

The first form measures (as root, a few minutes) and writes crossover.json beside the picture; the
second draws what was measured before.
"""

import json
from pathlib import Path
from statistics import median
from typing import Annotated

import typer
from launch import Cluster
from wiring import Links

from han.common.units import format_size
from han.config.config import Config
from han.config.machine import load_machine
from han.model.series import Panel
from han.plots.plots import lines
from han.tasks.call import call_signature
from han.tuning.prediction import Where, plan_of, predict, with_choice

COMPOSITIONS = ("tree", "nap", "lanes", "flat")
CALLS = 3  # of a turn, all of which begin together
FEW, LARGE = 2, 64 << 10  # turns and calls from this size on: such messages take the processors
SIZES = (8, 512, *(n << 10 for n in (8, 32, 128, 256, 512, 2048)))
Times = dict[str, dict[int, float]]  # ms by composition and bytes


def measure(where: Where, latency: float, path: Path) -> None:
    """Run compositions.py on emulated nodes, small and large sizes in a job each; write a file."""
    found: dict[str, object] = {}
    small = [n for n in SIZES if n < LARGE]
    with Cluster(where.nodes, Links(latency=latency)) as cluster:
        for sizes, turns in ((small, CALLS), ([n for n in SIZES if n >= LARGE], FEW)):
            program = Path(__file__).with_name("compositions.py")
            count = ["--sizes", ",".join(map(str, sizes)), "--rounds", "3"]
            count += ["--iterations", str(turns), "--out", str(path)]
            cluster.run(
                ["python", str(program), *count, *COMPOSITIONS],
                ppn=where.ppn, timeout=600, capture=False,
            ).check_returncode()  # fmt: skip
            found |= json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def measured(path: Path) -> Times:
    """Return medians."""
    document = json.loads(path.read_text(encoding="utf-8"))
    names = next(iter(document.values()))
    return {name: {int(n): median(row[name]) for n, row in document.items()} for name in names}


def predicted(where: Where) -> Times:
    """Return what the simulator says."""
    found: Times = {name: {} for name in COMPOSITIONS}
    for name in COMPOSITIONS:
        config = with_choice(Config(), [], None, name)
        for nbytes in SIZES:
            plan = plan_of(where, config, call_signature("allreduce", nbytes))
            found[name][nbytes] = predict(where, plan, runs=CALLS).seconds * 1e3
    return found


def table(real: Times, model: Times) -> str:
    """Return both as a table: measured / predicted, in ms."""
    rows = [f"| size | {' | '.join(real)} |", "| --- " * (len(real) + 1) + "|"]
    for n in next(iter(real.values())):
        cells = [f"{of[n]:.0f}" + (f" / {model[k][n]:.0f}" if k in model else "")
                 for k, of in real.items()]  # fmt: skip
        rows.append(f"| {format_size(n)} | {' | '.join(cells)} |")
    return "\n".join(rows)


def main(
    picture: Annotated[Path, typer.Argument(help="Where the picture goes.")],
    machine: Annotated[str, typer.Option(help="A machine model.")] = "emulated-50ms",
    measurements: Annotated[
        Path | None, typer.Option("--measured", help="A file of an earlier run.")
    ] = None,
) -> None:
    """Measure if needed, predict, print the table and draw it."""
    model = load_machine(machine)
    where = Where(model, model.nodes, model.ppn)
    path = measurements or picture.with_suffix(".json")
    if measurements is None:
        measure(where, model.levels[-1].latency, path)
    real, guess = measured(path), predicted(where)
    print(table(real, guess))
    micro = [{k: {n: 1e3 * t for n, t in of.items()} for k, of in one.items()}
             for one in (real, guess)]  # fmt: skip
    panels = [Panel("measured", "bytes", micro[0]), Panel("predicted", "bytes", micro[1])]
    lines(panels, picture, f"allreduce: {where.nodes} nodes of {where.ppn}, {machine}")


if __name__ == "__main__":
    typer.run(main)
