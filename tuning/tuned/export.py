"""Tuned tables as rules of a configuration, which a person can read and edit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from han.common.units import format_size
from han.config.rules import KINDS
from han.model.collectives import ROWS
from han.submodules.registry import submodule
from han.tasks.contract import Parameter
from han.tuning.tuned.files import use_record
from han.tuning.tuned.table import BEYOND, INSIDE, Key, Point, Ranges, TunedTable
from han.tuning.tuned.texts import spell

OPERATIONS = {
    "native": {"commutative": True, "native": True, "heavy": False},
    "heavy": {"commutative": True, "native": True, "heavy": True},
    "user-defined": {"commutative": True, "native": False},
    "ordered": {"commutative": False},
}


@dataclass(frozen=True)
class Run:
    """Adjacent sizes, from `low` to `high` bytes, for which points decide for one choice."""

    points: tuple[Point, ...]
    low: int
    high: int


def runs(ranges: Ranges) -> Iterator[Run]:
    """Yield the runs of a key's sizes for which points decide for another choice than built-in."""
    found: Run | None = None
    for point, low, high in _reaches(ranges):
        if found is not None and found.points[-1].use == point.use and found.high + 1 == low:
            found = Run((*found.points, point), found.low, high)
            continue
        if found is not None:
            yield found
        found = None if point.use is None else Run((point,), low, high)
    if found is not None:
        yield found


def _reaches(ranges: Ranges) -> Iterator[tuple[Point, int, int]]:
    """Yield each point with the least and the largest size that it decides for."""
    begins = (-(-ranges.points[0].nbytes // BEYOND), *(bound + 1 for bound in ranges.bounds))
    for point, low, high in zip(ranges.points, begins, ranges.bounds, strict=False):
        near = max(low, -(-point.nbytes // INSIDE)), min(high, point.nbytes * INSIDE)
        yield point, *near


def about(run: Run) -> str:
    """Return the measured sizes of a run, how fast its choice is, and the choice."""
    ends = run.points[0], run.points[-1]
    sizes = " to ".join(dict.fromkeys(format_size(p.nbytes) for p in ends))
    gains = [p.default.median / p.best.median for p in run.points]
    most = f"{min(gains):.2f} to {max(gains):.2f}" if len(gains) > 1 else f"{gains[0]:.2f}"
    use = run.points[0].use
    return f"{sizes}: {most} times as fast as built-in; {spell(use) if use else ''}"


def facts_of_key(key: Key) -> dict[str, bool]:
    """Return what holds of all calls of a key, besides the collective, its ranks and its size."""
    row = ROWS[key.collective]
    return {
        **OPERATIONS.get(key.operation, {}),
        "mapped": key.shared,
        **({"in_place": False} if row.replaces else {}),
        **({"uneven": False} if row.uneven else {}),
    }


def as_rules(table: TunedTable) -> str:
    """Return a table as YAML that ``load_config`` reads.

    Adjacent sizes with one choice are one rule. Where the built-in choice is kept there is no rule.
    """
    import yaml

    lines = [
        f"# Made by 'han tune export' from {table.source or 'a tuned table'},",
        f"# measured on {table.machine.cpu}, {table.machine.library} "
        f"{table.machine.library_version}.",
        *(f"# {line}" for line in table.others()),
    ]
    rules = [_rule(ranges.points[0].key, run) for ranges in table.ranges() for run in runs(ranges)]
    if not rules:
        return "\n".join([*lines, "# The built-in choices are the best ones found.", "rules: []\n"])
    lines.append("rules:")
    for text, rule in rules:
        written = yaml.safe_dump([rule], sort_keys=False, allow_unicode=True)
        lines += [f"# {text}", written.rstrip()]
    return "\n".join(lines) + "\n"


def _rule(key: Key, run: Run) -> tuple[str, dict[str, Any]]:
    """Return the rule of a run, with a comment that names its measurements."""
    when: dict[str, Any] = {
        "collective": key.collective,
        "bytes": {"min": format_size(run.low), "max": format_size(run.high)},
        "nodes": {"min": key.nodes, "max": key.nodes},
        "ppn": {"min": key.ppn, "max": key.ppn},
    }
    return about(run), {"when": when | facts_of_key(key), "use": use_document(run.points[0])}


def _spell(values: dict[str, Any], known: Mapping[str, Parameter]) -> None:
    for name, value in values.items():
        if name in known and known[name].kind == "size":
            values[name] = format_size(value)
        elif isinstance(value, tuple):
            values[name] = list(value)


def use_document(point: Point) -> dict[str, Any]:
    """Return what calls run, as rules write it, with sizes as text."""
    assert point.use is not None
    record = use_record(point.use)
    for level in record["levels"].values():
        known = submodule(level["submodule"]).parameters
        _spell(level, known)
        for kind in KINDS:
            _spell(level.get(kind, {}), known)
    if isinstance(record.get("segment"), int):
        record["segment"] = format_size(record["segment"])
    return record
