"""Read and write tables of rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

from han.common.suggest import unknown
from han.common.units import format_size
from han.config.rules import Composition, KindUse, LevelUse, Schedule, Use
from han.tuning.built_in.amounts import Amount, size_of
from han.tuning.built_in.reading import FORMAT, digest_of, expect_keys, machines_of
from han.tuning.built_in.rows import (
    WHEN,
    collectives_of,
    each_row,
    known_keys,
    level_of,
    named_row,
    test_of,
)
from han.tuning.tuned.export import Run, facts_of_key, runs, use_document
from han.tuning.tuned.files import FORMAT as POINTS
from han.tuning.tuned.files import TunedError, of_record, text_of
from han.tuning.tuned.fingerprint import SAME, Fingerprint
from han.tuning.tuned.rows import Measured, RowTable, TunedRow
from han.tuning.tuned.table import Key, Point, Timing, TunedTable

SECTION = "calls"
KEYS = ("format", "version", "about", "machines", SECTION)
OF_LEVELS = ("outermost", "whole", "composition")  # what only rows for one level test
TESTS = (*(key for key in WHEN if key not in OF_LEVELS), "levels")
ABOUT = "Made by 'han tune export'. The first row that serves a call decides; a person may edit it."
FORMS = "expected {'bytes': size, 'us': [low, median, high], 'calls': n, 'built_in_us': [...], ...}"


# ---- reading --------------------------------------------------------------------------------


def either(path: Path) -> TunedTable | RowTable:
    """Return the table of a file, of points or of rows; raises TunedError."""
    return made_from(content_of(path), str(path))


def content_of(path: Path) -> Any:
    """Return what a file holds, not checked; raises TunedError."""
    text = text_of(path)
    try:
        return POINTS.content(text)
    except ValueError as error:
        raise TunedError(f"{path}: {error}") from None


def is_of_another(content: Any, here: Fingerprint) -> bool:
    """Whether what a file holds says clearly that it is of another machine; it may be damaged."""
    try:
        machine = content["machine"] if "machine" in content else content["machines"][0]
        return any(machine[name] != getattr(here, name) for name in SAME)
    except (LookupError, TypeError):
        return False


def made_from(record: Any, place: str) -> TunedTable | RowTable:
    """Return the table that a file holds; `place` names it. Raises TunedError."""
    try:
        if isinstance(record, dict) and record.get("format") == FORMAT.name:
            return table_of(record, place)
        record = POINTS.checked(record)
    except ValueError as error:
        raise TunedError(f"{place}: {error}") from None
    return of_record(record, place)


def table_of(record: Any, place: str) -> RowTable:
    """Return the table of a file's content; `place` names it. Raises ValueError."""
    record = FORMAT.checked(record)
    expect_keys(record, KEYS, "", ("machines", SECTION))
    machines = machines_of(record["machines"])
    if len(machines) != 1:
        raise ValueError("machines: expected the one on which the rows were measured")
    rows = each_row(record[SECTION], SECTION, _row)
    digest = digest_of(json.dumps(record, sort_keys=True).encode())
    return RowTable(tuple(rows), machines[0], place, digest)


def _row(record: object) -> TunedRow:
    given = named_row(record, ("name", "about", "when", "use", "measured"), "use")
    when = dict(known_keys(given.get("when", {}), TESTS, "when"))
    levels, collectives = when.pop("levels", []), collectives_of(when.pop("collective", ()))
    if not isinstance(levels, list) or not all(isinstance(name, str) for name in levels):
        raise ValueError("when.levels: expected a list of names")
    tests = tuple(test_of(key, value) for key, value in when.items())
    use, measured = _use(given["use"]), _measured(given.get("measured", []))
    return TunedRow(
        given["name"], tests, collectives, use=use, levels=tuple(levels), measured=measured
    )


def _use(record: object) -> Use:
    given = known_keys(record, ("composition", "segment", "schedule", "levels"), "use")
    for key, type_ in (("composition", Composition), ("schedule", Schedule)):
        known = get_args(type_)
        if key in given and given[key] not in known:
            raise ValueError(f"use.{key}: {unknown(f'{key} {given[key]!r}', given[key], known)}")
    segment = given.get("segment")
    if segment not in (None, "whole"):
        segment = size_of(segment)
        if not segment:
            raise ValueError("use.segment: a segment has at least 1 byte; or write 'whole'")
    levels = given.get("levels", {})
    if not isinstance(levels, dict):
        raise ValueError("use.levels: expected keys and values")
    return Use(
        segment, given.get("schedule"), dict(map(_level, levels.items())), given.get("composition")
    )


def _level(item: tuple[str, object]) -> tuple[str, LevelUse]:
    name, record = item
    try:
        choice = level_of(record)
        for key, value in (pair for one in choice.each for pair in one.parameters):
            if isinstance(value, Amount):
                raise ValueError(f"{key}: expected a size; rows for one level may have {value}")
    except ValueError as error:
        raise ValueError(f"use.levels.{name}: {str(error).removeprefix('use.')}") from None
    kinds = {kind: KindUse(own.algorithm, dict(own.parameters)) for kind, own in choice.kinds}
    return name, LevelUse(choice.submodule, choice.algorithm, dict(choice.parameters), kinds)


def _measured(records: object) -> tuple[Measured, ...]:
    if not isinstance(records, list):
        raise ValueError("measured: expected a list")
    keys = (
        "bytes",
        "us",
        "calls",
        "built_in_us",
        "built_in_calls",
        "strategy",
        "made",
        "versions",
        "conditions",
        "gains",
    )
    found = []
    for k, record in enumerate(records):
        given = known_keys(record, keys, f"measured[{k}]")
        try:
            timing = _timing(given["us"], given["calls"])
            default = _timing(given["built_in_us"], given.get("built_in_calls", given["calls"]))
            told = [str(given.get(key, "")) for key in keys[5:-1]]
            gains = tuple(float(gain) for gain in given.get("gains", ()))
            found.append(Measured(size_of(given["bytes"]), timing, default, *told, gains=gains))
        except (KeyError, TypeError, ValueError, OverflowError):  # JSON's numbers have no limit
            raise ValueError(f"measured[{k}]: {FORMS}") from None
    return tuple(found)


def _timing(us: Any, count: Any) -> Timing:
    low, median, high = (float(one) * 1e-6 for one in us)
    if not 0 <= low <= median <= high < 1e9 or not median or count < 1:
        raise ValueError
    return Timing(median, low, high, int(count))


# ---- writing --------------------------------------------------------------------------------


def as_rows(table: TunedTable) -> str:
    """Return a table of points as the text of a table of rows.

    Adjacent sizes with one choice are one row. Where the built-in choice is kept there is no row.
    """
    rows = [_row_record(ranges.points[0].key, run) for ranges in table.ranges()
            for run in runs(ranges)]  # fmt: skip
    head = {
        "format": FORMAT.name, "version": FORMAT.version, "about": ABOUT,
        "machines": [asdict(table.machine)],
    }  # fmt: skip
    lines = [f" {json.dumps(key)}: {json.dumps(value)}," for key, value in head.items()]
    body = ",\n".join("  {" + ",\n   ".join(_entries(row)) + "}" for row in rows)
    return "{\n" + "\n".join(lines) + f'\n "{SECTION}": [\n{body}\n ]\n}}\n'


def _entries(row: Mapping[str, Any]) -> Iterator[str]:
    for key, value in row.items():
        text = json.dumps(value)
        if key == "measured":
            text = "[\n    " + ",\n    ".join(json.dumps(one) for one in value) + "]"
        yield f"{json.dumps(key)}: {text}"


def _row_record(key: Key, run: Run) -> dict[str, Any]:
    low, high = format_size(run.low), format_size(run.high)
    return {
        "name": f"{key.call}{_of(key)}, {low} to {high}, {key.nodes} x {key.ppn}",
        "when": when_of(key, run),
        "use": use_document(run.points[0]),
        "measured": [_measured_record(point) for point in run.points],
    }


def _of(key: Key) -> str:
    return f" ({key.operation})" if key.operation not in ("", "native") else ""


def when_of(key: Key, run: Run) -> dict[str, Any]:
    """Return the calls of a key and a run of sizes, as a row tests them."""
    return {
        "collective": key.collective,
        "bytes": {"min": format_size(run.low), "max": format_size(run.high)},
        "nodes": key.nodes,
        "ppn": key.ppn,
        "levels": list(key.levels),
        **facts_of_key(key),
    }


def _measured_record(point: Point) -> dict[str, Any]:
    best, default = point.best, point.default
    record = {
        "bytes": format_size(point.nbytes),
        "us": _us(best), "calls": best.count,
        "built_in_us": _us(default), "built_in_calls": default.count,
        "strategy": point.strategy, "made": point.made, "versions": point.versions,
        "conditions": point.conditions.describe(), "gains": list(point.gains),
    }  # fmt: skip
    return {key: value for key, value in record.items() if value not in ("", [])}


def _us(timing: Timing) -> list[float]:
    return [round(s * 1e6, 3) for s in (timing.low, timing.median, timing.high)]
