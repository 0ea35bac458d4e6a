"""Read rows from the form in which files have them; errors name the row and the key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, get_args

from han.common.suggest import unknown
from han.common.units import parse_size
from han.config.parameters import Parameter
from han.config.rules import KINDS, MOST, Composition, Ends, KindUse, LevelUse, Schedule, Use, When
from han.model.collectives import ROWS
from han.model.facts import COMPOSITIONS, FLAGS, SIZES, Facts
from han.submodules.registry import registered, submodule
from han.tasks.choice import LevelChoice, Value
from han.tasks.contract import Submodule
from han.tuning.row import Amount, Row, amount_of

CALLS = "calls"  # the section of rows for whole calls
WHAT = {"segments": "segment", "compositions": "composition"}  # what rows say; others: use
WHEN = ("collective", *Facts._fields)
OF_LEVELS = ("outermost", "whole", "composition")  # what only rows for one level test
OF_CALLS = (*(key for key in WHEN if key not in OF_LEVELS), "levels")
OF_TUNED = ("measured", "predicted")  # what rows of tuned tables may say besides
BUILT_IN = "built-in"  # the use of a row that keeps the built-in choice


def rows_of(
    records: object, section: str, read: Callable[[object, str], Row] | None = None
) -> tuple[Row, ...]:
    """Return the rows of a section; raises ValueError, whose text names the row and the key."""
    if not isinstance(records, list):
        raise ValueError(f"{section}: expected a list of rows")
    return tuple(_placed(record, section, k, read or row_of) for k, record in enumerate(records))


def _placed(record: object, section: str, k: int, read: Callable[[object, str], Row]) -> Row:
    try:
        return read(record, section)
    except ValueError as error:
        name = record.get("name") if isinstance(record, dict) else None
        told = f" {name!r}" if name else ""
        raise ValueError(f"{section}[{k}]{told}: {error}") from None


def row_of(record: object, section: str) -> Row:
    """Return a row of a section; raises ValueError, whose text names the key."""
    what = WHAT.get(section, "use")
    more = OF_TUNED if section == CALLS else ()
    given = named_row(record, ("name", "about", "when", *more, what), what)
    name, when = given["name"], when_of(given.get("when", {}), section)
    if section == CALLS:
        return Row(name, when, use_of(given["use"]))
    if what == "use":
        return Row(name, when, level=level_of(given["use"]))
    if what == "composition":
        return Row(name, when, composition=_composition(given[what]))
    return Row(name, when, segment=_segment(given["segment"]))


def named_row(record: object, known: Iterable[str], what: str) -> Mapping[str, Any]:
    """Return a row that has a name, known keys only, and the key `what`; raises ValueError."""
    given = known_keys(record, known, "")
    if not isinstance(given.get("name"), str) or not given["name"]:
        raise ValueError("name: expected a text")
    return known_keys(given, known, "", (what,))


def known_keys(
    record: object, known: Iterable[str], where: str, needed: Iterable[str] = ()
) -> Mapping[str, Any]:
    """Return a record that has known keys only, and those that are needed; raises ValueError."""
    at = f"{where}: " if where else ""
    if not isinstance(record, dict):
        raise ValueError(f"{at}expected keys and values")
    for key in record:
        if key not in known:
            raise ValueError(f"{at}{unknown(f'key {key!r}', key, known)}")
    for key in needed:
        if key not in record:
            raise ValueError(f"{at}the key {key!r} is missing")
    return record


def collectives_of(names: object) -> tuple[str, ...]:
    """Return the collectives that a row is for; raises ValueError."""
    found = tuple(names) if isinstance(names, list) else (names,) if names else ()
    for name in found:
        if not isinstance(name, str) or name not in ROWS:
            raise ValueError(f"when.collective: {unknown(f'collective {name!r}', name, ROWS)}")
    return found


def _segment(value: object) -> int | Amount | None:
    try:
        return None if value == "whole" else amount_of(value)
    except ValueError as error:
        raise ValueError(f"segment: {error}, or 'whole'") from None


def _composition(value: object) -> str:
    if not isinstance(value, str) or value not in COMPOSITIONS:
        raise ValueError(unknown(f"composition {value!r}", value, COMPOSITIONS))
    return value


# ---- conditions ---------------------------------------------------------------------------------


def when_of(record: object, section: str) -> When:
    """Return the condition of a row of a section; raises ValueError."""
    given = dict(known_keys(record, OF_CALLS if section == CALLS else WHEN, "when"))
    levels, collective = given.pop("levels", []), collectives_of(given.pop("collective", ()))
    if not isinstance(levels, list) or not all(isinstance(name, str) for name in levels):
        raise ValueError("when.levels: expected a list of names")
    ends = {key: _ends(key, value) for key, value in given.items()}
    return When.of(collective, ends, tuple(levels))


def _ends(key: str, value: object) -> Ends:
    """Return the least and the largest value of a fact that a row tests."""
    try:
        low, high = _range(key, value)
    except ValueError as error:
        raise ValueError(f"when.{key}: {error}") from None
    if low > high:
        raise ValueError(f"when.{key}: min is larger than max")
    return low, high


def _range(key: str, value: object) -> Ends:
    if key in FLAGS:
        if not isinstance(value, bool):
            raise ValueError("expected true or false")
        return int(value), int(value)
    if key == "composition":
        return (COMPOSITIONS.index(_composition(value)),) * 2
    number = parse_size if key in SIZES else _count
    if not isinstance(value, dict):
        return (number(value),) * 2
    ends = known_keys(value, ("min", "max"), "")
    low, high = (number(ends[end]) if end in ends else None for end in ("min", "max"))
    return low or 0, MOST if high is None else high


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{value!r} is not a count; known keys of a range: min, max")
    return value


# ---- what calls run -----------------------------------------------------------------------------


def use_of(record: object) -> Use | None:
    """Return what a whole call runs, None for the built-in choice; raises ValueError."""
    if record == BUILT_IN:
        return None
    given = known_keys(record, ("composition", "segment", "schedule", "levels"), "use")
    for key, type_ in (("composition", Composition), ("schedule", Schedule)):
        known = get_args(type_)
        if key in given and given[key] not in known:
            raise ValueError(f"use.{key}: {unknown(f'{key} {given[key]!r}', given[key], known)}")
    segment = given.get("segment")
    if segment not in (None, "whole"):
        segment = parse_size(segment)
        if not segment:
            raise ValueError("use.segment: a segment has at least 1 byte; or write 'whole'")
    levels = given.get("levels", {})
    if not isinstance(levels, dict):
        raise ValueError("use.levels: expected keys and values")
    return Use(
        segment, given.get("schedule"), dict(map(_named_level, levels.items())),
        given.get("composition"),
    )  # fmt: skip


def _named_level(item: tuple[str, object]) -> tuple[str, LevelUse]:
    name, record = item
    try:
        choice = level_of(record)
        for key, value in (pair for one in choice.each for pair in one.parameters):
            if isinstance(value, Amount):
                raise ValueError(f"{key}: expected a size; rows for one level may have {value}")
    except ValueError as error:
        raise ValueError(f"use.levels.{name}: {str(error).removeprefix('use.')}") from None
    return name, level_use(choice)


def level_use(choice: LevelChoice) -> LevelUse:
    """Return a choice of a level as a rule writes it."""
    kinds = {kind: KindUse(own.algorithm, dict(own.parameters)) for kind, own in choice.kinds}
    return LevelUse(choice.submodule, choice.algorithm, dict(choice.parameters), kinds)


def level_of(record: object) -> LevelChoice:
    """Return what a level runs; raises ValueError."""
    if not isinstance(record, dict):
        raise ValueError("use: expected keys and values")
    name = record.get("submodule")
    try:
        part = submodule(str(name))
    except KeyError:
        told = unknown(f"submodule {name!r}", name, registered())
        raise ValueError(f"use.submodule: {told}") from None
    rest = {k: v for k, v in record.items() if k not in ("submodule", *KINDS)}
    level = _one(part, rest, "use", False)
    for kind in (kind for kind in KINDS if kind in record):
        own = known_keys(record[kind], record[kind], f"use.{kind}")
        level = level.where(kind, _one(part, own, f"use.{kind}", True))
    return level


def _one(part: Submodule, record: Mapping[str, Any], where: str, of_kind: bool) -> LevelChoice:
    algorithm = record.get("algorithm")
    if not isinstance(algorithm, str) or algorithm not in part.algorithms:
        told = unknown(f"algorithm of {part.name} {algorithm!r}", algorithm, part.algorithms)
        raise ValueError(f"{where}.algorithm: {told}")
    values = dict(_values(part, record, where, of_kind))
    return LevelChoice(part.name, str(algorithm), tuple(sorted(values.items())))


def _values(
    part: Submodule, record: Mapping[str, Any], where: str, of_kind: bool
) -> Iterator[tuple[str, Value]]:
    for key, value in record.items():
        if key == "algorithm":
            continue
        row = part.parameters.get(key)
        if row is None:
            told = unknown(f"parameter of {part.name} {key!r}", key, [*part.parameters, *KINDS])
            raise ValueError(f"{where}: {told}")
        if of_kind and row.joint:
            raise ValueError(f"{where}.{key}: is for the level: write it in use")
        try:
            yield key, _value(row, value)
        except ValueError as error:
            raise ValueError(f"{where}.{key}: {error}") from None


def _value(parameter: Parameter, value: Any) -> Any:
    """Return the value of a parameter, or an amount whose bounds the parameter allows."""
    if parameter.kind != "size":
        return parameter.parse(tuple(value) if isinstance(value, list) else value)
    found = amount_of(value)
    for end in (found.low, found.high or found.low) if isinstance(found, Amount) else (found,):
        parameter.parse(end)
    return found
