"""A Choice: everything that decides which Program a call becomes."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

Value = int | bool | str | tuple[int, ...]
LEFT = "left to the MPI library"  # instead of a composition
SIZES = ("segment", "chunk", "partition", "whole")  # parameters in bytes


@dataclass(frozen=True)
class LevelChoice:
    """The submodule of one level, its algorithm and the algorithm's parameters."""

    submodule: str
    algorithm: str
    parameters: tuple[tuple[str, Value], ...] = ()

    @cached_property
    def _values(self) -> dict[str, Value]:
        return dict(self.parameters)

    def get(self, name: str, default: int) -> int:
        """Return an integer parameter, or `default`."""
        value = self._values.get(name, default)
        assert not isinstance(value, tuple), "factors() returns tuples"
        return int(value)

    def factors(self, name: str) -> tuple[int, ...] | None:
        """Return a parameter that is a list of factors, or None."""
        value = self._values.get(name)
        return value if isinstance(value, tuple) else None

    def spelled(self) -> dict[str, str]:
        """Return the parameters as users write them: ``{"segment": "32KiB"}``."""
        return {name: _spelled(name, value) for name, value in self.parameters}

    def describe(self) -> str:
        """Return a name such as ``adapt chain (segment 32KiB)``."""
        shown = ", ".join(f"{k} {text}" for k, text in self.spelled().items())
        text = f"{self.submodule} {self.algorithm}"
        return text + (f" ({shown})" if shown else "")


def _spelled(name: str, value: Value) -> str:
    from han.common.units import format_size

    if isinstance(value, tuple):
        return "x".join(map(str, value))
    return format_size(int(value)) if name in SIZES else str(value)


def level_choice(submodule: str, algorithm: str, **parameters: Value) -> LevelChoice:
    """Make a :class:`LevelChoice`; parameters are keywords."""
    return LevelChoice(submodule, algorithm, tuple(sorted(parameters.items())))


@dataclass(frozen=True, repr=False)
class Choice:
    """Composition, segment size, schedule and one :class:`LevelChoice` per level, innermost first.

    `segment` is in bytes, or None for the whole message. `rule` names the rule that decided.
    """

    levels: tuple[LevelChoice, ...]
    segment: int | None = None
    schedule: str = "dataflow"
    composition: str = "tree"
    rule: str = field(default="", compare=False)

    def __repr__(self) -> str:
        from han.common.units import format_size

        cut = "whole" if self.segment is None else f"segment {format_size(self.segment)}"
        levels = " < ".join(level.describe() for level in self.levels)
        return f"<Choice {self.composition}, {cut}, {self.schedule}: {levels}>"
