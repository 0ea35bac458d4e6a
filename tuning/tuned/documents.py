"""Models of tuned tables as JSON, for files that han did not write as they are.

Unknown keys are errors. A document has the keys of the plain data of the same name.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from han.config import rules
from han.config.checks import named_rules
from han.config.documents import Use
from han.model.collectives import COLLECTIVES
from han.submodules.catalogue import catalogue


class Model(BaseModel):
    """Base of all models of tuned tables."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def _listed(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _collective(name: str) -> str:
    if name not in COLLECTIVES:
        raise ValueError(f"unknown collective {name!r}; known: {', '.join(COLLECTIVES)}")
    return name


def _parsed(use: Use) -> tuple[rules.Use, list[str]]:
    """Return the plain data with parsed parameters, and what is wrong with its names."""
    (rule,), problems = named_rules((rules.Rule(use.data()),), catalogue())
    return rule.use, [f"{'.'.join(map(str, p.path[4:]))} {p.reason}" for p in problems]


def _of_catalogue(use: Use) -> Use:
    """Check the names of submodules, algorithms and parameters."""
    _, problems = _parsed(use)
    if problems:
        raise ValueError("; ".join(problems))
    return use


Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Names = Annotated[tuple[str, ...], BeforeValidator(_listed)]


class Timing(Model):
    """A measured time in seconds, and the interval that holds its median with 95 %."""

    median: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    low: Seconds
    high: Seconds
    count: int = Field(ge=1)


class Candidate(Model):
    """What was measured."""

    use: Annotated[Use, AfterValidator(_of_catalogue)]
    timing: Timing
    predicted: Seconds | None = None

    @property
    def use_data(self) -> rules.Use:
        """The use as plain data, with parsed parameters."""
        return _parsed(self.use)[0]


class Key(Model):
    """The calls for which points are comparable."""

    collective: Annotated[str, AfterValidator(_collective)]
    operation: str
    nodes: int = Field(ge=1)
    ppn: int = Field(ge=1)
    levels: Names
    shared: bool = False


class Conditions(Model):
    """The calls that a search made."""

    dtype: str = ""
    op: str = ""
    fresh: bool = False
    space: str = ""


class Point(Model):
    """What was found for one size."""

    key: Key
    nbytes: int = Field(ge=1)
    keeps: bool
    candidates: Annotated[tuple[Candidate, ...], BeforeValidator(_listed)]
    default: Timing
    library: Timing | None = None
    strategy: str = ""
    made: str = ""
    seconds: Seconds = 0.0
    tried: int = Field(default=0, ge=0)
    machine: Fingerprint | None = None
    conditions: Conditions = Conditions()
    gains: Annotated[tuple[Seconds, ...], BeforeValidator(_listed)] = ()
    complete: bool = True


class Fingerprint(Model):
    """The machine on which points were measured."""

    cpu: str
    cores: int = Field(ge=1)
    library: str
    library_version: str
    transport: str = ""
    quota: Seconds = 0.0
    mesh: bool = False
    han: str = ""
    layout: str = ""
    binding: str = ""
    link: Seconds = 0.0
    wait: str = ""


class Table(Model):
    """The whole file."""

    format: str
    version: int
    digest: str = ""
    machine: Fingerprint
    points: Annotated[tuple[Point, ...], BeforeValidator(_listed)]
