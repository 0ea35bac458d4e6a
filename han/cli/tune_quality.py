"""``han tune quality``: strategies compared with exhaustive search."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from han.cli.common import say, wrote
from han.cli.progress import phases
from han.cli.world import rank
from han.common.tables import shown_table
from han.common.units import format_size, format_us

if TYPE_CHECKING:
    from han.measure.tune.quality import Row
    from han.measure.tune.tuner import Plans

FORMAT, VERSION = "han-tuning-quality", 1
WORST = 0.1  # share of the predictions that are listed
MOST = 20  # lines of these
SUMMARY = ["strategy", "within 5 %", "within 15 %", "worst", "seconds", "of exhaustive"]
ERRORS = ["call", "size", "measured us", "predicted us", "error", "choice", "prediction"]


def compare(
    config: Any, plans: Plans, strategies: Sequence[str], fresh: bool,
    picture: Path | None, file: Path | None,
) -> None:  # fmt: skip
    """Measure, print tables, and write a picture and JSON; collective."""
    from mpi4py import MPI

    from han.measure.tune import quality

    tell = (lambda text: None) if str(file) == "-" else say
    total = len(plans.inputs) * len(quality.compared(strategies))
    with phases() as bar:
        done = count()

        def step(text: str) -> None:
            if bar is not None:
                bar(text, next(done), total)

        rows = quality.compare(MPI.COMM_WORLD, config, plans, strategies, fresh, step)
    tell(text_of(rows))
    if file is not None:
        from han.cli.measuring import keep

        keep(_record(rows, MPI.COMM_WORLD.size), file)
    if picture is not None and not rank():
        from han.plots.quality import quality as draw

        draw(rows, picture)
        wrote(picture)


def wanted(text: str | None) -> list[str]:
    """Return the strategies that a user names with commas, or the usual ones."""
    from han.measure.tune.quality import USUAL

    return [name for name in (text or "").split(",") if name] or [*USUAL]


def text_of(rows: Sequence[Row]) -> str:
    """Return the tables of inputs, of strategies and of the worst predictions."""
    from han.measure.tune.quality import errors, summaries

    heads = ["call", "size", "candidates", *rows[0].ratio, "best choice"]
    title = "time of the choice / choice of exhaustive search, in turns"
    inputs = shown_table(title, heads, map(_input, rows), left=["call", "best choice"])
    lines = map(_summary, summaries(rows))
    summary = shown_table("strategies", SUMMARY, lines, left=["strategy"])
    every = errors(rows)
    if not every:
        return f"{inputs}\n{summary}"
    worst = every[: min(MOST, max(1, round(WORST * len(every))))]
    told = shown_table(
        "the worst predictions", ERRORS, map(_error, worst), ["call", "choice", "prediction"]
    )
    middle = median(one.error for _, one in every)
    return (
        f"{inputs}\n{summary}\n# error of {len(every)} predictions: median {100 * middle:.1f} %\n"
        f"{told}"
    )


def _input(row: Row) -> list[str]:
    ratios = [f"{ratio:.3f}" for ratio in row.ratio.values()]
    best = next(iter(row.choice.values()))
    return [row.collective, format_size(row.nbytes), str(row.candidates), *ratios, best]


def _summary(one: Any) -> list[str]:
    return [one.strategy, f"{100 * one.within_5:.0f} %", f"{100 * one.within_15:.0f} %",
            f"{one.worst:.2f}", f"{one.seconds:.1f}", f"{100 * one.cost:.1f} %"]  # fmt: skip


def _error(pair: Any) -> list[str]:
    row, one = pair
    return [row.collective, format_size(row.nbytes), format_us(one.measured * 1e6),
            format_us(one.predicted * 1e6), f"{100 * one.error:.0f} %", one.choice,
            one.basis]  # fmt: skip


def _record(rows: Sequence[Row], ranks: int) -> dict[str, Any]:
    from dataclasses import asdict

    from han.common.version import __version__
    from han.ranks.machine import fingerprint

    return {
        "format": FORMAT, "version": VERSION, "han": __version__, "unit": "s", "ranks": ranks,
        "machine": asdict(fingerprint()), "rows": [row.record() for row in rows],
    }  # fmt: skip
