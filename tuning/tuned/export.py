"""Tuned tables as rules of a configuration, which a person can read and edit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from han.common.units import format_size
from han.config.rules import KINDS
from han.submodules.registry import submodule
from han.tasks.contract import Parameter
from han.tuning.tuned.files import use_record
from han.tuning.tuned.table import Key, Point, Ranges, TunedTable, spell

COMMUTATIVE = {"native": True, "user-defined": True, "ordered": False}


def as_rules(table: TunedTable) -> str:
    """Return a table as YAML that ``load_config`` reads.

    Adjacent sizes with one choice are one rule. Where the built-in choice is kept there is no rule.
    """
    import yaml

    lines = [
        f"# Made by 'han tune export' from {table.source or 'a tuned table'},",
        f"# measured on {table.machine.cpu}, {table.machine.library} "
        f"{table.machine.library_version}.",
    ]
    rules = [rule for ranges in table.ranges() for rule in _rules(ranges)]
    if not rules:
        return "\n".join([*lines, "# The built-in choices are the best ones found.", "rules: []\n"])
    lines.append("rules:")
    for about, rule in rules:
        text = yaml.safe_dump([rule], sort_keys=False, allow_unicode=True)
        lines += [f"# {about}", text.rstrip()]
    return "\n".join(lines) + "\n"


def _rules(ranges: Ranges) -> list[tuple[str, dict[str, Any]]]:
    """Return the rules of one key, each with a comment that names its measurements."""
    found: list[tuple[str, dict[str, Any]]] = []
    low = -(-ranges.points[0].nbytes // 2)
    same: list[Point] = []
    for k, point in enumerate(ranges.points):
        same.append(point)
        last = k + 1 == len(ranges.points)
        if not last and ranges.points[k + 1].use == point.use:
            continue
        if point.use is not None:
            rule = {"when": _when(point.key, low, ranges.bounds[k]), "use": _use(point)}
            found.append((_about(same), rule))
        low, same = ranges.bounds[k] + 1, []
    return found


def _about(points: list[Point]) -> str:
    sizes = " to ".join(dict.fromkeys(format_size(p.nbytes) for p in (points[0], points[-1])))
    gains = [p.default.median / p.best.median for p in points]
    most = f"{min(gains):.2f} to {max(gains):.2f}" if len(points) > 1 else f"{gains[0]:.2f}"
    use = points[0].use
    return f"{sizes}: {most} times as fast as built-in; {spell(use) if use else ''}"


def _when(key: Key, low: int, high: int) -> dict[str, Any]:
    when: dict[str, Any] = {
        "collective": key.collective,
        "bytes": {"min": format_size(low), "max": format_size(high)},
        "nodes": {"min": key.nodes, "max": key.nodes},
        "ppn": {"min": key.ppn, "max": key.ppn},
    }
    return when | (
        {"commutative": COMMUTATIVE[key.operation]} if key.operation in COMMUTATIVE else {}
    )


def _spell(values: dict[str, Any], known: Mapping[str, Parameter]) -> None:
    for name, value in values.items():
        if name in known and known[name].kind == "size":
            values[name] = format_size(value)
        elif isinstance(value, tuple):
            values[name] = list(value)


def _use(point: Point) -> dict[str, Any]:
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
