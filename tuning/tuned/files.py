"""Read, write and merge the files of tuned tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from han.common.atomic import alone_in, write_whole
from han.common.errors import HanError
from han.tuning.built_in.table import FORMAT as BUILT_IN_FORMAT
from han.tuning.built_in.table import digest_of, machines_of
from han.tuning.row import Row
from han.tuning.row_reading import BUILT_IN, CALLS, known_keys, rows_of
from han.tuning.tuned.fingerprint import SAME, Fingerprint
from han.tuning.tuned.measurements import measured_record, predicted_record, row_of
from han.tuning.tuned.older import NAME, VERSION, points_of
from han.tuning.tuned.points import Point
from han.tuning.tuned.table import TunedTable, of_points, with_points, with_predictions
from han.tuning.tuned.tasks import TASKS, task_record, tasks_of
from han.tuning.tuned.tasks import joined as joined_tasks
from han.tuning.tuned.uses import use_record

CONDITIONS = ("transport", "quota", "mesh", "link", "wait")  # what is faster may differ
KEYS = ("format", "version", "about", "machines", TASKS, CALLS)
ABOUT = "Made by 'han tune'. The first row that serves a call decides; a person may edit it."


class TunedError(HanError, ValueError):
    """A tuned table cannot be read or written. The text names the file and the cause."""


FORMAT = replace(BUILT_IN_FORMAT, what="tuned table", again="tune", error=TunedError)
OLDER = replace(FORMAT, name=NAME, version=VERSION, reads=())
NOTE = "points of an earlier han, read as rows; 'han tune merge' writes them as rows"


# ---- reading --------------------------------------------------------------------------------


def read(path: Path) -> TunedTable:
    """Return the table of a file; raises TunedError, whose text names the row and the key."""
    return table_of(content_of(path), str(path))


def content_of(path: Path) -> Any:
    """Return what a file holds, not checked; raises TunedError."""
    return FORMAT.content(FORMAT.read(path), str(path))


def parse(text: str, place: str) -> TunedTable:
    """Return the table of a text; `place` names it. Raises TunedError."""
    return table_of(FORMAT.content(text, place), place)


def is_of_another(content: Any, here: Fingerprint) -> bool:
    """Whether what a file holds says clearly that it is of another machine; it may be damaged."""
    try:
        machine = content["machine"] if "machine" in content else content["machines"][0]
        return any(machine[name] != getattr(here, name) for name in SAME)
    except (LookupError, TypeError):
        return False


def table_of(record: Any, place: str) -> TunedTable:
    """Return the table that a file holds; `place` names it. Raises TunedError."""
    older = isinstance(record, dict) and record.get("format") == OLDER.name
    record = (OLDER if older else FORMAT).checked(record, place)
    try:
        table = of_points(*points_of(record)) if older else _table(record)
    except ValueError as error:
        raise TunedError(f"{place}: {error}") from None
    rows = tuple(replace(row, source=place) for row in table.rows)
    digest = digest_of(json.dumps(record, sort_keys=True).encode())
    note = f"{place}: {NOTE}" if older else ""
    return replace(table, rows=rows, source=place, digest=digest, note=note)


def _table(record: dict[str, Any]) -> TunedTable:
    known_keys(record, KEYS, "", ("machines", CALLS))
    machines = machines_of(record["machines"])
    if len(machines) != 1:
        raise ValueError("machines: expected the one on which the rows were measured")

    def read(one: object, section: str) -> Row:
        return row_of(one, section, machines[0])

    tasks = tasks_of(record.get(TASKS, []))
    return TunedTable(rows_of(record[CALLS], CALLS, read), machines[0], tasks=tasks)


# ---- writing --------------------------------------------------------------------------------


def as_text(table: TunedTable) -> str:
    """Return a table as the text of a file."""
    head = {
        "format": FORMAT.name, "version": FORMAT.version, "about": ABOUT,
        "machines": [asdict(table.machine)],
    }  # fmt: skip
    lines = [f" {json.dumps(key)}: {json.dumps(value)}," for key, value in head.items()]
    if table.tasks:
        costs = ",\n".join(f"  {json.dumps(task_record(one))}" for one in table.tasks)
        lines.append(f' "{TASKS}": [\n{costs}\n ],')
    rows = map(row_record, table.rows)
    body = ",\n".join("  {" + ",\n   ".join(_entries(row)) + "}" for row in rows)
    return "{\n" + "\n".join(lines) + f'\n "{CALLS}": [\n{body}\n ]\n}}\n'


def _entries(row: Mapping[str, Any]) -> Iterator[str]:
    for key, value in row.items():
        text = json.dumps(value)
        if key == "measured":
            text = "[\n    " + ",\n    ".join(json.dumps(one) for one in value) + "]"
        yield f"{json.dumps(key)}: {text}"


def row_record(row: Row) -> dict[str, Any]:
    """Return a row as plain data for JSON."""
    when = {key: _short(value) for key, value in row.when.document().items()}
    when |= {"levels": [*row.when.levels]} if row.when.levels else {}
    use = BUILT_IN if row.use is None else use_record(row.use)
    measured = [measured_record(point) for point in row.measured]
    record: dict[str, Any] = {"name": row.name, "when": when, "use": use}
    if measured:
        record["measured"] = measured
    if row.predicted is not None:
        record["predicted"] = predicted_record(row.predicted)
    return record


def _short(ends: Any) -> Any:
    """Return the value itself in place of equal ends."""
    one = isinstance(ends, dict) and ends.get("min") == ends.get("max")
    return ends["min"] if one else ends


# ---- merging --------------------------------------------------------------------------------


def merged(old: TunedTable, new: TunedTable) -> TunedTable:
    """Return the points of both as a table of `new`'s machine; see `Point.replaces`."""
    return joined(old, new, later)


def later(known: Point, point: Point) -> Point:
    """Return which of two points of one input a table should hold."""
    return point if point.replaces(known) else known


def joined(old: TunedTable, new: TunedTable, choose: Callable[[Point, Point], Point]) -> TunedTable:
    """Return the points of both as a table of `new`'s machine; `choose` joins those of one input.

    Raises TunedError if they are of different machines, or were measured in other conditions.
    """
    check_machine(old, new)
    check_conditions(old, new, "keep their tables apart")
    points = {(point.key, point.nbytes): point for point in old.named_points}
    for point in new.named_points:
        place = point.key, point.nbytes
        points[place] = choose(points[place], point) if place in points else point
    told = new.predicted or old.predicted
    known = replace(new, tasks=joined_tasks(old.tasks, new.tasks))
    return with_points(with_predictions(known, told), points.values())


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


def write(path: Path, table: TunedTable) -> None:
    """Write a table, joined with the one that the file already has; raises TunedError.

    If two jobs write at once, the file has the points of both in the end.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with alone_in(path.parent):
            if path.exists():
                table = merged(read(path), table)
            write_whole(path, as_text(table))
    except OSError as error:
        raise TunedError(f"{path}: cannot be written: {error.strerror or error}") from None
