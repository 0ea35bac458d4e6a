"""The parameters that submodules declare and configurations set."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from han.common.suggest import unknown
from han.common.units import format_size, parse_size

ParameterValue = bool | int | str | tuple[int, ...]


@dataclass(frozen=True)
class Parameter:
    """A parameter of an algorithm.

    A ``size`` (bytes), an ``int``, a ``bool`` or ``factors`` (whole numbers) within a range, or a
    ``name`` among `choices`; () means any name. `joint`: all kinds of tasks of a level have the
    same value. `asked`: only users set it, as it changes results; the tuner does not try it.
    """

    kind: Literal["size", "int", "bool", "name", "factors"]
    about: str
    minimum: int = 0
    maximum: int = 1 << 40
    choices: tuple[str, ...] = ()
    joint: bool = False
    asked: bool = False

    def parse(self, value: ParameterValue) -> ParameterValue:
        """Return ``value`` as this kind (``"64KiB"`` as 65536), or raise ValueError."""
        if self.kind == "size":
            return self._bounded(parse_size(value), format_size)
        if self.kind == "int" and isinstance(value, int) and not isinstance(value, bool):
            return self._bounded(value, str)
        if self.kind == "bool" and isinstance(value, bool):
            return value
        if self.kind == "name" and isinstance(value, str):
            return self._chosen(value)
        if self.kind == "factors":
            return tuple(self._factor(f) for f in _listed(value))
        raise ValueError(f"expected {_EXPECTED[self.kind]}")

    def _bounded(self, value: int, show: Callable[[int], str]) -> int:
        if value < self.minimum:
            raise ValueError(f"must be at least {show(self.minimum)}")
        if value > self.maximum:
            raise ValueError(f"must be at most {show(self.maximum)}")
        return value

    def _factor(self, value: int) -> int:
        """Check a factor, whose sign says what its step does."""
        if abs(value) < self.minimum:
            raise ValueError(f"must be {self.minimum} or more, or {-self.minimum} or less")
        self._bounded(abs(value), str)
        return value

    def _chosen(self, name: str) -> str:
        if self.choices and name not in self.choices:
            raise ValueError(unknown("name", name, self.choices))
        return name


def _listed(value: ParameterValue) -> tuple[int, ...]:
    """Return factors that are written as a list, as ``"-2x2x2"`` or as one number."""
    if isinstance(value, str):
        parts = value.split("x")
        value = tuple(int(p) for p in parts if p.strip().removeprefix("-").isdecimal())
        value = value if len(value) == len(parts) else ()
    if isinstance(value, int) and not isinstance(value, bool):
        value = (value,)
    if not isinstance(value, tuple) or not value:
        raise ValueError(f"expected {_EXPECTED['factors']}")
    return value


def not_taken(algorithm: str, name: str, taken: Iterable[str]) -> str:
    """Return why an algorithm cannot have a parameter: it does not read it."""
    return f"{algorithm} does not take {name}; it takes {', '.join(taken) or 'no parameters'}"


_EXPECTED = {
    "int": "a whole number",
    "bool": "true or false",
    "name": "a name",
    "factors": "factors: a list of whole numbers such as [-2, 2, 2], or -2x2x2",
}
