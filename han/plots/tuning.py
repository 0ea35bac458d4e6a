"""The report of a tuned table: one page that stands alone, and its pictures. Needs matplotlib."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from functools import partial
from html import escape
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from han.common.atomic import write_output
from han.common.grouped import grouped
from han.common.units import format_size, format_us, plural
from han.measure.tune.quality import QualityRow, summaries
from han.model.measurements import Times
from han.plots.plots import prediction_axes, times_and_ratios
from han.plots.style import (
    COLORS,
    GREY,
    HAN,
    PAGE,
    PlotError,
    legend,
    new_figure,
    save,
    size_axis,
    styled,
)
from han.tuning.costs.estimates import Estimate
from han.tuning.row import Row
from han.tuning.tuned.points import Point
from han.tuning.tuned.table import TunedTable, by_key
from han.tuning.tuned.uses import spell

STYLE = (
    "body{font:15px/1.5 sans-serif;max-width:70em;margin:2em auto;padding:0 1em}"
    "table{border-collapse:collapse;font-size:13px}td,th{padding:2px 8px;text-align:right;"
    "border-bottom:1px solid #ddd}td:last-child,th:last-child{text-align:left}img{max-width:100%}"
)
TUNED, BUILT_IN, LIBRARY = "tuned", "built-in", "MPI"
CAPTIONS = {
    "curves": "Times by size, and their ratios to the tuned ones",
    "choices": "What calls run, by size",
    "predictions": "Predicted against measured",
    "costs": "What the searches cost",
    "strategies": "Strategies beside exhaustive search: quality, cost, predictions",
}


def report(
    table: TunedTable, path: Path, left_out: str = "", compared: Sequence[QualityRow] = ()
) -> list[Path]:
    """Write a page and its pictures beside it; return their files. Raises PlotError.

    `left_out` is the text about candidates that were left out, `compared` a comparison of
    strategies (figures 8 and 9 of Luo et al.).
    """
    draw: dict[str, Callable[[Path], None]] = {
        "curves": partial(curves, table), "choices": partial(choices, table),
        "predictions": partial(predictions, table), "costs": partial(costs, table),
    }  # fmt: skip
    if compared:
        draw["strategies"] = partial(quality, compared)
    written = []
    figures = []
    for name, picture in draw.items():
        file = path.with_name(f"{path.stem}-{name}.png")
        picture(file)
        written.append(file)
        data = base64.b64encode(file.read_bytes()).decode()
        figures.append(
            f"<h2>{CAPTIONS[name]}</h2><img alt='{name}' src='data:image/png;base64,{data}'>"
        )
    try:
        write_output(path, _page(table, figures, left_out))
    except OSError as error:
        raise PlotError(f"{path}: cannot be written: {error.strerror or error}") from None
    return [path, *written]


def _page(table: TunedTable, figures: Sequence[str], left_out: str) -> str:
    machine = table.machine
    about = (
        f"{machine.cpu}, {machine.cores} processors, {machine.library} {machine.library_version}, "
        f"han {machine.han}"
    )
    about = "; ".join([about, *table.others()])
    rows = "".join(_row(point) for points in by_key(table.points).values() for point in points)
    heads = "".join(
        f"<th>{head}</th>"
        for head in ("call", "size", "tuned us", "built-in us", "MPI us", "gain", "choice")
    )
    return (
        f"<!doctype html><meta charset=utf-8><title>han tune</title><style>{STYLE}</style>"
        f"<h1>Tuned table</h1><p>{escape(about)}</p>{_gains(table)}{''.join(figures)}"
        f"<h2>All points</h2><table><tr>{heads}</tr>{rows}</table>\n{_left_out(left_out)}"
    )


def _gains(table: TunedTable) -> str:
    """Return a table with a row for each kind of call: its gain over the built-in choices."""
    rows = "".join(_gain(points) for points in by_key(table.points).values())
    heads = "<tr><th>call</th><th>sizes</th><th>tuned</th><th>gain</th><th>most</th></tr>"
    told = (
        "The gain is the time of the built-in choice over that of the tuned one: the geometric "
        "mean of all sizes, and the greatest one."
    )
    return f"<p>{told}</p><table>{heads}{rows}</table>"


def _gain(points: Sequence[Point]) -> str:
    gains = {one.nbytes: one.default.median / one.best.median for one in points}
    most = max(gains, key=gains.__getitem__)
    changed = sum(one.use is not None for one in points)
    cells = [
        label(points[0]), str(len(points)), f"{changed} of {len(points)}",
        f"{geometric_mean(gains.values()):.2f}", f"{gains[most]:.2f} at {format_size(most)}",
    ]  # fmt: skip
    return _row_of(cells)


def _row_of(cells: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"


def _left_out(text: str) -> str:
    return f"<h2>Left out by the last run</h2><pre>{escape(text)}</pre>\n" if text else ""


def _row(point: Point) -> str:
    library = "" if point.library is None else format_us(point.library.median * 1e6)
    cells = [
        label(point), format_size(point.nbytes), format_us(point.best.median * 1e6),
        format_us(point.default.median * 1e6), library,
        f"{point.default.median / point.best.median:.2f}",
        "built-in" if point.use is None else spell(point.use),
    ]  # fmt: skip
    return _row_of(cells)


def label(point: Point) -> str:
    """Return the name of a point's curve: ``bcast, 2 nodes of 4 ranks``."""
    nodes, ranks = plural(point.key.nodes, "node"), plural(point.key.ppn, "rank")
    return f"{point.key.call}, {nodes} of {ranks}"


def curves(table: TunedTable, path: Path) -> None:
    """Draw times by size, and what they are of the tuned ones; a panel for each kind of call."""
    panels: dict[str, dict[str, dict[int, Times]]] = {}
    ratios: dict[str, dict[str, dict[int, float]]] = {}
    for points in by_key(table.points).values():
        series: dict[str, dict[int, Times]] = {TUNED: {}, BUILT_IN: {}, LIBRARY: {}}
        for point in points:
            for name, one in zip(series, (point.best, point.default, point.library), strict=True):
                if one is not None:
                    series[name][point.nbytes] = _times(one)
        shown = panels[label(points[0])] = {name: some for name, some in series.items() if some}
        ratios[label(points[0])] = {
            name: {n: one.median / shown[TUNED][n].median for n, one in some.items()}
            for name, some in shown.items() if name != TUNED
        }  # fmt: skip
    times_and_ratios(panels, ratios, path, base=TUNED)


def _times(one: Estimate) -> Times:
    return Times(one.median * 1e6, one.low * 1e6, one.high * 1e6, one.count)


@styled
def choices(table: TunedTable, path: Path) -> None:
    """Draw a map of the choices: a row for each kind of call, a colour for each choice."""
    every = grouped((label(row.measured[0]), row) for row in table.rows if row.measured)
    figure, axis = new_figure(PAGE, 1.5 + 0.35 * len(every))
    colors: dict[str, str] = {}
    for place, rows in enumerate(every.values()):
        for one in rows:
            _bar(axis, place, one, colors)
    size_axis(axis, sorted({n for rows in every.values() for row in rows for n in _ends(row)}))
    axis.set_yticks(range(len(every)), [*every])
    handles = [axis.barh(0, 0, color=color, label=name) for name, color in colors.items()]
    legend(figure, handles)
    save(figure, path)


def _ends(row: Row) -> tuple[int, int]:
    low, high = row.when.ends("bytes") or (1, 1)
    return int(low), int(high)


def _bar(axis: Any, place: int, row: Row, colors: dict[str, str]) -> None:
    low, high = _ends(row)
    name = "built-in" if row.use is None else spell(row.use)
    color = GREY if row.use is None else COLORS[len(colors) % len(COLORS)]
    color = colors.setdefault(name, color)
    axis.barh(place, high - low, left=low, color=color, edgecolor="white")


@styled
def predictions(table: TunedTable, path: Path) -> None:
    """Draw predicted over measured times of all candidates that have both."""
    figure, axis = new_figure(0.75 * PAGE, 0.6 * PAGE)
    ends = []
    for k, points in enumerate(by_key(table.points).values()):
        pairs = [
            (c.timing.median * 1e6, c.predicted * 1e6)
            for p in points for c in p.candidates if c.predicted
        ]  # fmt: skip
        color = COLORS[k % len(COLORS)]
        measured, predicted = [a for a, _ in pairs], [b for _, b in pairs]
        axis.plot(measured, predicted, "o", ms=4, color=color, label=label(points[0]))
        ends += [*measured, *predicted]
    prediction_axes(axis, ends)
    axis.legend()
    save(figure, path)


@styled
def costs(table: TunedTable, path: Path) -> None:
    """Draw the seconds of the searches, by strategy and kind of call."""
    spent: dict[str, float] = {}
    for point in table.points:
        name = f"{point.strategy}: {label(point)}"
        spent[name] = spent.get(name, 0.0) + point.seconds
    figure, axis = new_figure(PAGE, 1.0 + 0.3 * len(spent))
    axis.barh(list(spent), list(spent.values()), color=HAN)
    axis.set_xlabel("seconds")
    save(figure, path)


@styled
def quality(rows: Sequence[QualityRow], path: Path) -> None:
    """Draw ratios by size, the time of each strategy, and predicted over measured times.

    Raises PlotError.
    """
    figure, axes = new_figure(PAGE, 9, 3, 1)
    _ratios(axes[0], rows)
    _costs(axes[1], rows)
    _predictions(axes[2], rows)
    save(figure, path)


def _ratios(axis: Any, rows: Sequence[QualityRow]) -> None:
    marks = ("o", "s", "^", "D")
    collectives = list(dict.fromkeys(row.collective for row in rows))
    for k, name in enumerate(rows[0].ratio):
        for mark, collective in zip(marks, collectives, strict=False):
            mine = [row for row in rows if row.collective == collective]
            label = name if len(collectives) == 1 else f"{name}, {collective}"
            axis.plot([row.nbytes for row in mine], [row.ratio[name] for row in mine], mark + "-",
                      ms=4, lw=1, color=COLORS[k % len(COLORS)], label=label)  # fmt: skip
    size_axis(axis, sorted({row.nbytes for row in rows}))
    axis.axhline(1.05, color=GREY, lw=1, ls="--")
    axis.set_ylabel("time of the choice / exhaustive")
    axis.set_xlabel("bytes")
    axis.set_title("quality")
    axis.legend()


def _costs(axis: Any, rows: Sequence[QualityRow]) -> None:
    found = summaries(rows)
    bars = axis.bar([one.strategy for one in found], [one.seconds for one in found],
                    color=COLORS[: len(found)])  # fmt: skip
    axis.bar_label(bars, [f"{100 * one.cost:.1f} %" for one in found])
    axis.set_ylabel("seconds of the search")
    axis.set_title("cost")


def _predictions(axis: Any, rows: Sequence[QualityRow]) -> None:
    pairs = [(one.measured * 1e6, one.predicted * 1e6) for row in rows for one in row.predictions]
    axis.plot([a for a, _ in pairs], [b for _, b in pairs], "o", ms=3, color=COLORS[0])
    prediction_axes(axis, [value for pair in pairs for value in pair])
    axis.set_title("predictions")
