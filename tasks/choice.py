"""A Choice: everything that decides which Program a call becomes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from han.common.kept import kept
from han.common.units import format_size

Value = int | bool | str | tuple[int, ...]
LEFT = "left to the MPI library"  # instead of a composition
SIZES = ("segment", "chunk", "partition", "whole")  # parameters in bytes


@dataclass(frozen=True)
class LevelChoice:
    """The submodule of one level, its algorithm and the algorithm's parameters.

    `kinds` are the kinds of tasks that run otherwise on this level: (kind, choice) of each, with
    the same submodule.
    """

    submodule: str
    algorithm: str
    parameters: tuple[tuple[str, Value], ...] = ()
    kinds: tuple[tuple[str, LevelChoice], ...] = ()

    def __hash__(self) -> int:
        return self._hash

    @kept
    def _hash(self) -> int:
        return hash((self.submodule, self.algorithm, self.parameters, self.kinds))

    def __getstate__(self) -> dict[str, object]:
        """Leave out the hash: another process has other hashes of texts."""
        return {name: value for name, value in self.__dict__.items() if name != "_hash"}

    def of(self, kind: str) -> LevelChoice:
        """Return what tasks of a kind run."""
        if not self.kinds:
            return self
        return dict(self.kinds).get(kind) or self.alike

    @kept
    def alike(self) -> LevelChoice:
        """The same for all kinds of tasks."""
        return replace(self, kinds=()) if self.kinds else self

    @property
    def each(self) -> tuple[LevelChoice, ...]:
        """What all kinds of tasks run, the level's own choice first."""
        return (self.alike, *(choice for _, choice in self.kinds))

    def where(self, kind: str, choice: LevelChoice) -> LevelChoice:
        """Return the same, but tasks of a kind run `choice`."""
        own = {**dict(self.kinds), kind: choice}
        kept = tuple(sorted((k, c) for k, c in own.items() if c != self.alike))
        return replace(self, kinds=kept)

    @kept
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

    def record(self) -> dict[str, object]:
        """Return it as plain data for JSON; what kinds of tasks run is in ``kinds``."""
        own: dict[str, object] = {"algorithm": self.algorithm, "parameters": dict(self.parameters)}
        kinds = {kind: choice.record() for kind, choice in self.kinds}
        return {"submodule": self.submodule, **own, **({"kinds": kinds} if kinds else {})}

    def describe(self) -> str:
        """Return a name such as ``adapt chain (segment 32KiB), reduce: binomial``."""
        own = [f", {kind}: {choice._described()}" for kind, choice in self.kinds]
        return f"{self.submodule} {self._described()}{''.join(own)}"

    def _described(self) -> str:
        shown = ", ".join(f"{k} {text}" for k, text in self.spelled().items())
        return self.algorithm + (f" ({shown})" if shown else "")


def _spelled(name: str, value: Value) -> str:
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
        cut = "whole" if self.segment is None else f"segment {format_size(self.segment)}"
        levels = " < ".join(level.describe() for level in self.levels)
        return f"<Choice {self.composition}, {cut}, {self.schedule}: {levels}>"
