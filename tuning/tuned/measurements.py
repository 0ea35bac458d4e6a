"""The measurements of a row: points, from and to the form in which files have them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from han.common.units import format_size, parse_size
from han.config.rules import Use, When
from han.model.collectives import COLLECTIVES
from han.tuning import row_reading
from han.tuning.classes import TUNED
from han.tuning.costs.estimates import Estimate
from han.tuning.row import Predicted, Row
from han.tuning.row_reading import known_keys, use_of
from han.tuning.tuned.fingerprint import Fingerprint
from han.tuning.tuned.points import Candidate, Conditions, MeasuredCall, Point
from han.tuning.tuned.table import key_of_row
from han.tuning.tuned.uses import use_record

KEYS = (
    "bytes", "us", "calls", "predicted_us", "built_in_us", "built_in_calls", "library_us",
    "library_calls", "strategy", "made", "seconds", "tried", "complete", "versions", "conditions",
    "space", "gains", "others",
)  # fmt: skip
OF_PREDICTED = ("from", "gain")
OF_OTHERS = ("use", "us", "calls", "predicted_us")
FORMS = "expected {'bytes': size, 'us': [low, median, high], 'calls': n, 'built_in_us': [...], ...}"
DIGITS = 9  # of times: those of a file stay as they are when it is written again


def row_of(record: object, section: str, machine: Fingerprint) -> Row:
    """Return a row for whole calls with its measurements on a machine; raises ValueError."""
    row = row_reading.row_of(record, section)
    found = record.get("measured", []) if isinstance(record, dict) else []
    if not isinstance(found, list):
        raise ValueError("measured: expected a list")
    points = tuple(_placed(row, k, one, machine) for k, one in enumerate(found))
    told = _predicted(record.get("predicted")) if isinstance(record, dict) else None
    return replace(row, measured=points, rule=TUNED, predicted=told)


def _predicted(record: object) -> Predicted | None:
    """Return from what a row is predicted; None: it is not."""
    if record is None:
        return None
    given = known_keys(record, OF_PREDICTED, "predicted", OF_PREDICTED)
    try:
        low, high = map(float, given["gain"])
        return Predicted(tuple(map(str, given["from"])), (low, high))
    except (TypeError, ValueError):
        raise ValueError("predicted: expected {'from': ['2 x 2'], 'gain': [1.1, 1.4]}") from None


def predicted_record(told: Predicted) -> dict[str, Any]:
    """Return from what a row is predicted as plain data for JSON."""
    return {"from": [*told.shapes], "gain": [*told.gains]}


def _placed(row: Row, k: int, record: object, machine: Fingerprint) -> Point:
    given = known_keys(record, KEYS, f"measured[{k}]")
    try:
        return _point(row, given, machine)
    except (KeyError, TypeError, OverflowError):  # JSON's numbers have no limit
        raise ValueError(f"measured[{k}]: {FORMS}") from None
    except ValueError as error:
        raise ValueError(f"measured[{k}]: {str(error) or FORMS}") from None


def _point(row: Row, given: Mapping[str, Any], machine: Fingerprint) -> Point:
    default = given["built_in_us"], given.get("built_in_calls", given.get("calls"))
    chosen = [] if row.use is None else [_candidate(row.use, given)]
    others = [_other(one) for one in given.get("others", ())]
    library, conditions = given.get("library_us"), str(given.get("conditions", ""))
    return Point(
        key=key_of_row(row.when) or _some_key(row.when),
        nbytes=parse_size(given["bytes"]),
        keeps=row.use is None,
        candidates=(*chosen, *others),
        default=_timing(*default),
        library=None if library is None else _timing(library, given["library_calls"]),
        strategy=str(given.get("strategy", "")),
        made=str(given.get("made", "")),
        seconds=float(given.get("seconds", 0)),
        tried=int(given.get("tried", 0)),
        machine=_machine(str(given.get("versions", "")), machine),
        conditions=Conditions.of_text(conditions, str(given.get("space", ""))),
        gains=tuple(float(gain) for gain in given.get("gains", ())),
        complete=bool(given.get("complete", True)),
    )


def _some_key(when: When) -> MeasuredCall:
    """Return a key for measurements of a row that a person wrote, which are told of only."""
    return MeasuredCall((*when.collective, *COLLECTIVES)[0], "", 1, 1, when.levels)


def _other(record: object) -> Candidate:
    given = known_keys(record, OF_OTHERS, "others")
    use = use_of(given["use"])
    if use is None:
        raise ValueError
    return _candidate(use, given)


def _candidate(use: Use, given: Mapping[str, Any]) -> Candidate:
    us = given.get("predicted_us")
    predicted = None if us is None else _seconds(us)
    return Candidate(use, _timing(given["us"], given["calls"]), predicted)


def _timing(us: Any, count: Any) -> Estimate:
    low, median, high = map(_seconds, us)
    if not 0 <= low <= median <= high < 1e9 or not median or count < 1:
        raise ValueError
    return Estimate(median, low, high, int(count))


def _seconds(us: Any) -> float:
    return float(f"{float(us) * 1e-6:.{DIGITS}g}")


def _machine(versions: str, machine: Fingerprint) -> Fingerprint | None:
    """Return the machine with the versions that a point names; None: those of the table."""
    if not versions:
        return None
    library, _, han = versions.partition(", han ")
    version = library.removeprefix(f"{machine.library} ")
    return replace(machine, library_version=version, han=han)


def measured_record(point: Point) -> dict[str, Any]:
    """Return a point as plain data for JSON; its key and its choice are the row's."""
    chosen = point.candidates[: point.use is not None]
    others = point.candidates[len(chosen) :]
    record: dict[str, Any] = {"bytes": format_size(point.nbytes)}
    for candidate in chosen:
        record |= _timed(candidate)
    record |= _calls("built_in_", point.default)
    if point.library is not None:
        record |= _calls("library_", point.library)
    record |= {
        "strategy": point.strategy, "made": point.made, "seconds": round(point.seconds, 3),
        "tried": point.tried, "versions": point.versions,
        "conditions": point.conditions.describe(), "space": point.conditions.space,
        "gains": list(point.gains),
        "others": [{"use": use_record(one.use), **_timed(one)} for one in others],
    }  # fmt: skip
    told = {key: value for key, value in record.items() if value not in ("", [], 0)}
    return told if point.complete else told | {"complete": False}


def _timed(candidate: Candidate) -> dict[str, Any]:
    predicted = candidate.predicted
    more = {} if predicted is None else {"predicted_us": _rounded(predicted)}
    return _calls("", candidate.timing) | more


def _calls(of: str, timing: Estimate) -> dict[str, Any]:
    us = [_rounded(seconds) for seconds in (timing.low, timing.median, timing.high)]
    return {f"{of}us": us, f"{of}calls": timing.count}


def _rounded(seconds: float) -> float:
    return float(f"{seconds * 1e6:.{DIGITS}g}")
