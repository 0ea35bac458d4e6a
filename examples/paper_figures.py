"""Draw figures of two papers with han's models and simulator, and print the papers' claims.

    python examples/paper_figures.py nap          # NAP against recursive doubling and SMP
    python examples/paper_figures.py han-bcast    # a 4 MiB broadcast over segment sizes

The machines are those of configs/machines. The papers print few of their parameters; each file
says where its values come from.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from han.common.units import format_size
from han.config.config import load_config
from han.config.machine import load_machine
from han.plots import lines as plots_lines
from han.tasks.signature import Signature
from han.tuning.formulas import FORMULAS, Costs, crossover
from han.tuning.prediction import Where, plan_of, predict, with_choice

app = typer.Typer(help=__doc__, add_completion=False, no_args_is_help=True)
Out = Annotated[Path, typer.Option(help="The picture to write.")]
PPN = 16
PROCESSES = [1 << k for k in range(5, 16)]
SIZES = [8 << k for k in range(15)]
SEGMENTS = [16 << 10 << k for k in range(8)]


@app.command()
def nap(out: Out = Path("nap.png"), machine: str = "blue-waters") -> None:
    """Figures 10 and 11 of Bienz, Olson and Gropp: equations 4 to 6 over ranks and over sizes."""
    costs = Costs.of(load_machine(machine), PPN)

    def times(nbytes: int, ranks: int) -> dict[str, float]:
        return {n: f(costs, nbytes, ranks // PPN, PPN) * 1e6 for n, f in FORMULAS.items()}

    over_ranks = {ranks: times(8, ranks) for ranks in PROCESSES}
    most = PROCESSES[-1]
    over_sizes = {nbytes: times(nbytes, most) for nbytes in SIZES}
    limit = crossover(costs, "NAP", "SMP", most // PPN, PPN)
    print(f"{'ranks':>8}" + "".join(f"{name:>20}" for name in FORMULAS))
    for ranks, row in over_ranks.items():
        print(f"{ranks:>8}" + "".join(f"{us:>18.2f}us" for us in row.values()))
    print(f"NAP is the fastest up to {limit} bytes on {most} ranks; the paper: up to 2048 bytes")
    plots_lines.lines(
        [
            plots_lines.Panel("one value (figure 10)", "ranks", _turn(over_ranks),
                        note="the paper: NAP wins, more with more ranks"),
            plots_lines.Panel(f"{most} ranks (figure 11)", "bytes", _turn(over_sizes), marks={
                2048: "the paper's crossover: 2048 B", limit: f"this model's: {limit} B"}),
        ],
        out, f"allreduce on {machine}, {PPN} ranks a node: modelled",
    )  # fmt: skip


@app.command()
def han_bcast(
    out: Out = Path("han-bcast.png"),
    machine: str = "stampede2",
    nodes: int = 64,
    ppn: int = 12,
    nbytes: int = 4 << 20,
) -> None:
    """Figure 4 of Luo et al.: a broadcast over segment sizes, by algorithm between nodes."""
    where = Where(load_machine(machine), nodes, ppn)
    series: dict[str, dict[int, float]] = {}
    for name in ("chain", "binary", "binomial"):
        for segment in SEGMENTS:
            choice = [f"network=adapt.{name}:segment={nbytes}"]
            config = with_choice(load_config(), choice, format_size(segment))
            found = predict(where, plan_of(where, config, Signature("bcast", nbytes)))
            series.setdefault(f"adapt {name}", {})[segment] = found.seconds * 1e6
            print(f"adapt {name:<9} {format_size(segment):>8} {found.seconds * 1e6:>10.0f} us")
    best = min(((us, n, s) for n, row in series.items() for s, us in row.items()))
    claim = "the paper measured: binary, 128 KiB"
    print(f"best: {best[1]}, segments of {format_size(best[2])}: {best[0]:.0f} us; {claim}")
    panel = plots_lines.Panel("", "bytes of a segment", series, marks={128 << 10: claim})
    plots_lines.lines(
        [panel],
        out,
        f"bcast of {format_size(nbytes)} on {machine}, {nodes} nodes x {ppn}: simulated, "
        "one message a segment",
    )


def _turn(rows: dict[int, dict[str, float]]) -> dict[str, dict[int, float]]:
    """Turn rows, one for each x, into series, one for each name."""
    series: dict[str, Any] = {}
    for x, row in rows.items():
        for name, us in row.items():
            series.setdefault(name, {})[x] = us
    return series


if __name__ == "__main__":
    app()
