"""Problems of a configuration, with file, line, key, value and the known names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from han.common.errors import ConfigError
from han.common.suggest import unknown

if TYPE_CHECKING:
    from pydantic import ValidationError

KeyPath = tuple[str | int, ...]

_NO_VALUE = object()
_LONGEST_VALUE = 60


@dataclass(frozen=True)
class Origin:
    """Where the values of a configuration were written.

    An origin is not part of the content of a configuration, so any two origins are equal.
    """

    name: str = field(default="config", compare=False)
    lines: Mapping[KeyPath, int] = field(default_factory=dict, compare=False)
    overrides: Mapping[KeyPath, str] = field(default_factory=dict, compare=False)

    def place(self, path: KeyPath) -> str:
        """Return the file and line, variable or attribute that sets the value at ``path``."""
        if path in self.overrides:
            return self.overrides[path]
        written = (path[:n] for n in range(len(path), -1, -1))
        line = next((self.lines[p] for p in written if p in self.lines), None)
        return self.name if line is None else f"{self.name}:{line}"


@dataclass(frozen=True)
class Problem:
    """One problem: its key, the reason, and the value, if there is one."""

    path: KeyPath
    reason: str
    value: Any = _NO_VALUE

    def render(self, origin: Origin) -> str:
        """Return ``"file:line: key = value: reason"``, without the value if it is long."""
        key = format_path(self.path)
        value = repr(self.value)
        told = self.value is _NO_VALUE or self.reason.startswith(value)
        if self.value is None:
            key += " is empty"
        elif not told and len(value) <= _LONGEST_VALUE:
            key = f"{key} = {value}" if key else value
        return ": ".join(part for part in (origin.place(self.path), key, self.reason) if part)


class Inconsistent(ValueError):
    """Raised by a check over several keys, with all problems that it found."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(problem.render(Origin()) for problem in self.problems))


def format_path(path: KeyPath) -> str:
    """Return ``("rules", 0, "use")`` as ``"rules[0].use"``."""
    keys = (f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)
    return "".join(keys).removeprefix(".")


def config_error(problems: Iterable[Problem], origin: Origin) -> ConfigError:
    """Return the error that lists ``problems``, one a line."""
    lines = [problem.render(origin) for problem in problems]
    if len(lines) == 1:
        return ConfigError(lines[0])
    return ConfigError("\n  ".join([f"{len(lines)} problems in the configuration:", *lines]))


def problems_of(error: ValidationError, known_keys: Mapping[str, Iterable[str]]) -> list[Problem]:
    """Return the problems that pydantic found.

    ``known_keys`` has the keys that each mapping takes, by the key of the mapping. Paths omit the
    parts in angle brackets, which tagged unions add to locations.
    """
    return [
        problem
        for details in error.errors(include_url=False)
        for problem in _problems(dict(details), known_keys)
    ]


def _problems(details: dict[str, Any], known: Mapping[str, Iterable[str]]) -> Iterator[Problem]:
    location = details["loc"]
    path = tuple(key for key in location if not str(key).startswith("<"))
    cause = details.get("ctx", {}).get("error")
    if isinstance(cause, Inconsistent):
        yield from (Problem(path + p.path, p.reason, p.value) for p in cause.problems)
    elif details["type"] == "missing":
        yield Problem(path, _missing(location[-1], details["input"]))
    elif details["type"] == "extra_forbidden":
        parents = [key for key in location[:-1] if isinstance(key, str)] or [""]
        yield Problem(path, unknown("key", location[-1], known[parents[-1]]))
    else:
        yield Problem(path, _reason(details), details["input"])


def _missing(key: object, written: object) -> str:
    """Return the reason for a missing key, with a similar key of the same mapping."""
    keys = [k for k in written if isinstance(k, str)] if isinstance(written, Mapping) else []
    import difflib

    close = difflib.get_close_matches(str(key), keys, n=1)
    return f"is missing; {close[0]!r} is there: did you mean {key!r}?" if close else "is missing"


def _reason(details: dict[str, Any]) -> str:
    kind, context = details["type"], details.get("ctx", {})
    if kind == "literal_error":
        key = [key for key in details["loc"] if isinstance(key, str)][-1]
        return unknown(key, details["input"], re.findall(r"'([^']*)'", context["expected"]))
    if kind in _EXPECTED:
        return _EXPECTED[kind].format(**context)
    return str(context.get("error") or details["msg"])


_EXPECTED = {
    "bool_type": "expected true or false",
    "dict_type": "expected a mapping (key: value)",
    "finite_number": "expected a finite number",
    "float_type": "expected a number",
    "greater_than_equal": "must be at least {ge}",
    "int_type": "expected a whole number",
    "invalid_key": "expected a key that is text",
    "mapping_type": "expected a mapping (key: value)",
    "model_type": "expected a mapping (key: value)",
    "string_type": "expected text",
    "tuple_type": "expected a list",
}
