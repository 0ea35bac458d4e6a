"""Measure han under several configurations in one run, in turns, for ``han validate``.

    mpiexec -n 8 python choices.py --out build --sizes 8,64KiB,4MiB a.yaml b.yaml

In turns, other load on the machine affects all configurations equally. Writes a file for each
configuration, as ``han bench --json`` does.
"""

import json
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Annotated

import typer
from mpi4py import MPI

from han.common.units import parse_sizes
from han.measure.bench import Bench, BenchRow, Settings, report
from han.measure.bench_machine import look
from han.model.measurements import Times

COLLECTIVES = ("bcast", "reduce", "allreduce")


def main(
    configs: Annotated[list[Path], typer.Argument(help="YAML files.")],
    out: Annotated[Path, typer.Option(help="Folder of NAME.json for NAME.yaml.")] = Path(),
    sizes: Annotated[str, typer.Option(help="As han bench takes them.")] = "8:4MiB:8",
    rounds: Annotated[int, typer.Option(help="Turns of each configuration.")] = 9,
) -> None:
    """Measure bcast, reduce and allreduce."""
    settings = Settings(rounds=1, check=False, only="han", seconds=0.02)
    comm = MPI.COMM_WORLD
    benches = {path: Bench(comm, str(path), settings) for path in configs}
    rows: dict[Path, list[BenchRow]] = defaultdict(list)
    for collective in COLLECTIVES:
        for nbytes in parse_sizes(sizes):
            case = settings.case(collective, nbytes)
            times = defaultdict(list)
            for _ in range(rounds):
                for path, bench in benches.items():
                    times[path].append(bench.measure(case).times["han"])
            for path, found in times.items():
                rows[path].append(BenchRow(collective, nbytes, {"han": _together(found)}))
    for path, bench in benches.items():
        machine = look(comm, bench.han)
        config = bench.han._han.parts.config.to_yaml()
        made = report(machine, settings, rows[path], config)
        if not comm.rank:
            (out / f"{path.stem}.json").write_text(
                json.dumps(made.data, indent=1), encoding="utf-8"
            )


def _together(found: list[Times]) -> Times:
    each = [times.median for times in found]
    calls = round(median(times.calls for times in found))
    return Times(median(each), min(each), max(each), calls)


if __name__ == "__main__":
    typer.run(main)
