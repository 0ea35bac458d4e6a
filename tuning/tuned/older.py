"""Tuned tables of earlier versions of han, which held points: read as rows with measurements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from han.common.units import format_size
from han.model.element_types import heavy
from han.tuning.built_in.table import machines_of
from han.tuning.row_reading import BUILT_IN, CALLS, known_keys
from han.tuning.tuned.fingerprint import Fingerprint
from han.tuning.tuned.measurements import row_of
from han.tuning.tuned.points import Conditions, MeasuredCall, Point
from han.tuning.tuned.table import when_of_key

NAME, VERSION = "han-tuned", 1
KEYS = ("format", "version", "digest", "machine", "points")
OF_POINTS = (
    "key", "nbytes", "keeps", "candidates", "default", "library", "strategy", "made", "seconds",
    "tried", "machine", "conditions", "gains", "complete",
)  # fmt: skip


def points_of(record: dict[str, Any]) -> tuple[list[Point], Fingerprint]:
    """Return the points of a file, and its machine; raises ValueError."""
    known_keys(record, KEYS, "", ("machine", "points"))
    (machine,) = machines_of([record["machine"]])
    if not isinstance(record["points"], list):
        raise ValueError("points: expected a list")
    points: dict[tuple[MeasuredCall, int], Point] = {}
    for k, one in enumerate(record["points"]):
        try:
            point = _point(one, machine)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"points[{k}]: {type(error).__name__}: {error}") from None
        except ValueError as error:
            raise ValueError(f"points[{k}]: {error}") from None
        if points.setdefault((point.key, point.nbytes), point) is not point:
            raise ValueError(f"points[{k}]: {_input(point)} is there already; remove one of both")
    return [*points.values()], machine


def _input(point: Point) -> str:
    key = point.key
    return f"{key.call} of {format_size(point.nbytes)} on {key.nodes} x {key.ppn}"


def _point(record: Any, machine: Fingerprint) -> Point:
    known_keys(record, OF_POINTS, "", OF_POINTS[:5])
    conditions = Conditions(**record.get("conditions") or {})
    key = MeasuredCall(**{**record["key"], "levels": tuple(record["key"]["levels"])})
    if key.operation == "native" and heavy(conditions.op, conditions.dtype):
        key = MeasuredCall(**{**vars(key), "operation": "heavy"})
    candidates = [_candidate(one) for one in record["candidates"]]
    chosen = [] if record["keeps"] else candidates[:1]
    use, best = (chosen[0].pop("use"), chosen[0]) if chosen else (BUILT_IN, {})
    (versions,) = machines_of([record["machine"]]) if record.get("machine") else (None,)
    row = row_of({
        "name": "a point", "when": when_of_key(key, record["nbytes"]), "use": use,
        "measured": [{
            "bytes": record["nbytes"], **best, **_timed("built_in_", record["default"]),
            **(_timed("library_", record["library"]) if record.get("library") else {}),
            **{name: record[name] for name in MORE if name in record},
            "versions": versions.versions if versions else "",
            "conditions": conditions.describe(), "space": conditions.space,
            "others": candidates[len(chosen) :],
        }],
    }, CALLS, machine)  # fmt: skip
    return row.measured[0]


MORE = ("strategy", "made", "seconds", "tried", "gains", "complete")


def _candidate(record: Mapping[str, Any]) -> dict[str, Any]:
    predicted = record.get("predicted")
    return {
        "use": record["use"], **_timed("", record["timing"]),
        "predicted_us": None if predicted is None else predicted * 1e6,
    }  # fmt: skip


def _timed(of: str, timing: Mapping[str, Any]) -> dict[str, Any]:
    us = [timing[name] * 1e6 for name in ("low", "median", "high")]
    return {f"{of}us": us, f"{of}calls": timing["count"]}
