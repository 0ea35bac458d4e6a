"""Read, write and merge the files of tuned tables."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from han.common.atomic import alone_in, write_whole
from han.common.errors import HanError
from han.common.units import format_size
from han.config.rules import KINDS, KindUse, LevelUse, Use
from han.model.element_types import heavy
from han.tuning.built_in.reading import FORMAT as ROWS
from han.tuning.record import Format
from han.tuning.tuned.conditions import Conditions
from han.tuning.tuned.fingerprint import Fingerprint
from han.tuning.tuned.table import Candidate, Key, Point, Timing, TunedTable

Join = Callable[[TunedTable, TunedTable], TunedTable]
CONDITIONS = ("transport", "quota", "mesh", "link", "wait")  # what is faster may differ
FORMAT = Format("han-tuned", 1, "tuned table", "tune again")


class TunedError(HanError, ValueError):
    """A tuned table cannot be read or written. The text names the file and the cause."""


def read(path: Path) -> TunedTable:
    """Return the table of a file; raises TunedError.

    A file as han wrote it is known by its digest. Any other one is checked key by key.
    """
    return parse(text_of(path), str(path))


def text_of(path: Path) -> str:
    """Return the text of a file; raises TunedError."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise TunedError(f"{path}: cannot be read: {reason}") from None


def parse(text: str, place: str) -> TunedTable:
    """Return the table of a text; `place` names it in errors."""
    try:
        record = FORMAT.content(text)
        if isinstance(record, dict) and record.get("format") == ROWS.name:
            raise ValueError("holds rows: name the tuned table that they were exported from")
        return of_record(FORMAT.checked(record), place)
    except TunedError:
        raise
    except ValueError as error:
        raise TunedError(f"{place}: {error}") from None


def of_record(record: dict[str, Any], place: str) -> TunedTable:
    """Return the table of a file's content of this format; raises TunedError."""
    digest = digest_of(record)
    if record.get("digest") != digest:
        record = _checked(record, place)
    try:
        return replace(_table(record, place), source=place, digest=digest)
    except TunedError:
        raise
    except (KeyError, TypeError, ValueError) as error:  # a digest that was computed for nonsense
        raise TunedError(f"{place}: not a {FORMAT.what}: {type(error).__name__}: {error}") from None


def _checked(record: Mapping[str, Any], place: str) -> dict[str, Any]:
    """Return a record that was changed by hand, with sizes as numbers; raises TunedError.

    The error names the first wrong key.
    """
    from pydantic import ValidationError

    from han.tuning.tuned.documents import Table

    try:
        table = Table.model_validate(record)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"])) or "the file"
        raise TunedError(f"{place}: {key}: {first['msg']}") from None
    plain = table.model_dump()
    for point, read in zip(plain["points"], table.points, strict=True):
        point["candidates"] = [
            {
                "use": use_record(c.use_data),
                "timing": c.timing.model_dump(),
                "predicted": c.predicted,
            }
            for c in read.candidates
        ]
    return plain


def digest_of(record: Mapping[str, Any]) -> str:
    """Return the digest of a record, of all keys but the digest itself."""
    content = {key: value for key, value in record.items() if key != "digest"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


# ---- from and to plain data ---------------------------------------------------------------


def _table(record: Mapping[str, Any], place: str) -> TunedTable:
    points = tuple(_point(one) for one in record["points"])
    _expect_one_each(points, place)
    return TunedTable(points, Fingerprint(**record["machine"]))


def _expect_one_each(points: Iterable[Point], place: str) -> None:
    """Raise TunedError if two points are of one input."""
    found: dict[tuple[Key, int], int] = {}
    for k, point in enumerate(points):
        first = found.setdefault((point.key, point.nbytes), k)
        if first != k:
            ranks = f"{point.key.nodes} x {point.key.ppn}"
            call = f"{point.key.call} of {format_size(point.nbytes)} on {ranks}"
            both = f"points.{k}: {call} is points.{first} already"
            raise TunedError(f"{place}: {both}; remove one of both")


def _point(record: Mapping[str, Any]) -> Point:
    key, conditions = record["key"], Conditions(**record.get("conditions", {}))
    if key["operation"] == "native" and heavy(conditions.op, conditions.dtype):
        key = {**key, "operation": "heavy"}  # of a file from before that class
    parts = {
        "key": Key(**{**key, "levels": tuple(key["levels"])}),
        "candidates": tuple(_candidate(one) for one in record["candidates"]),
        "default": Timing(**record["default"]),
        "library": Timing(**record["library"]) if record.get("library") else None,
        "machine": Fingerprint(**record["machine"]) if record.get("machine") else None,
        "conditions": conditions,
        "gains": tuple(record.get("gains", ())),
    }
    return Point(**{**record, **parts})


def _candidate(record: Mapping[str, Any]) -> Candidate:
    timing = Timing(**record["timing"])
    return Candidate(use_of(record["use"]), timing, record.get("predicted"))


def use_of(record: Mapping[str, Any]) -> Use:
    """Return a use from the form in which configurations write it, with sizes as numbers."""
    levels = {}
    for name, level in record.get("levels", {}).items():
        given = {key: _value(value) for key, value in level.items()}
        kinds = {kind: _kind_use(given.pop(kind)) for kind in KINDS if kind in given}
        levels[name] = LevelUse(given.pop("submodule"), given.pop("algorithm"), given, kinds)
    return Use(record.get("segment"), record.get("schedule"), levels, record.get("composition"))


def _kind_use(record: Mapping[str, Any]) -> KindUse:
    given = {key: _value(value) for key, value in record.items()}
    return KindUse(given.pop("algorithm", None), given)


def _value(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def use_record(use: Use) -> dict[str, Any]:
    """Return a use in the form in which configurations write it."""
    levels = {
        name: {
            "submodule": level.submodule,
            "algorithm": level.algorithm,
            **level.parameters,
            **{kind: {"algorithm": k.algorithm, **k.parameters} for kind, k in level.kinds.items()},
        }
        for name, level in use.levels.items()
    }
    record: dict[str, Any] = {
        "segment": use.segment, "schedule": use.schedule, "composition": use.composition,
    }  # fmt: skip
    return {key: value for key, value in record.items() if value is not None} | {"levels": levels}


def _point_record(point: Point) -> dict[str, Any]:
    record = asdict(replace(point, candidates=()))
    if not point.key.shared:  # as in files of before
        del record["key"]["shared"]
    if point.machine is None:
        del record["machine"]
    if point.conditions == Conditions():
        del record["conditions"]
    if point.complete:
        del record["complete"]
    if not point.gains:
        del record["gains"]
    record["candidates"] = [
        {"use": use_record(c.use), "timing": asdict(c.timing), "predicted": c.predicted}
        for c in point.candidates
    ]
    return record


def as_text(table: TunedTable) -> str:
    """Return a table as the text of a file."""
    record: dict[str, Any] = {
        "format": FORMAT.name,
        "version": FORMAT.version,
        "machine": asdict(table.machine),
        "points": [_point_record(point) for point in table.points],
    }
    record = json.loads(json.dumps(record))  # tuples become lists, as the reader finds them
    return json.dumps({**record, "digest": digest_of(record)}, indent=1) + "\n"


# ---- merging and writing ------------------------------------------------------------------


def merged(old: TunedTable, new: TunedTable) -> TunedTable:
    """Return the points of both as a table of `new`'s machine; see `Point.replaces`.

    Raises TunedError if they are of different machines, or were measured in other conditions.
    """
    check_machine(old, new)
    check_conditions(old, new, "keep their tables apart")
    points = {(point.key, point.nbytes): point for point in old.named_points}
    for point in new.named_points:
        place = point.key, point.nbytes
        if place not in points or point.replaces(points[place]):
            points[place] = point
    return with_points(new, points.values())


def with_points(table: TunedTable, points: Iterable[Point]) -> TunedTable:
    """Return a table with other points; those of its machine do not name it."""
    own = (replace(p, machine=None) if p.machine == table.machine else p for p in points)
    return replace(table, points=in_order(own))


def in_order(points: Iterable[Point]) -> tuple[Point, ...]:
    """Return points in the order of files."""
    return tuple(sorted(points, key=_order))


def _order(point: Point) -> tuple[str, bool, int, int]:
    return point.key.collective, point.key.shared, point.key.nodes, point.nbytes


def check_machine(old: TunedTable, new: TunedTable) -> None:
    """Raise TunedError if two tables are of different machines."""
    if new.machine.is_other(old.machine):
        told = new.machine.distance(old.machine)
        raise TunedError(f"{old.source}: measured on another machine: {told}")


def check_conditions(old: TunedTable, new: TunedTable, remedy: str) -> None:
    """Raise TunedError if two tables were measured in conditions that change what is faster.

    Links matter where the old one has points between nodes.
    """
    differences = new.machine.differences(old.machine)
    if all(point.key.nodes == 1 for point in old.points):
        differences.pop("link", None)
    told = [f"{n} {a} here, {b} there" for n, (a, b) in differences.items() if n in CONDITIONS]
    if told:
        raise TunedError(f"{old.source}: measured in other conditions: {'; '.join(told)}; {remedy}")


def write(path: Path, table: TunedTable, join: Join = merged) -> None:
    """Write a table, joined with the one that the file already has; raises TunedError.

    If two jobs write at once, the file has the points of both in the end.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with alone_in(path.parent):
            if path.exists():
                table = join(read(path), table)
            write_whole(path, as_text(table))
    except OSError as error:
        raise TunedError(f"{path}: cannot be written: {error.strerror or error}") from None
