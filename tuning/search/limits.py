"""Files that restrict the space of a search, as YAML."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field

from han.common.errors import ConfigError
from han.common.suggest import unknown
from han.config.document_types import FromList, Model, Names, Parameter, Size, validated
from han.config.rules import Schedule
from han.config.yaml_file import read_yaml
from han.submodules.registry import registered
from han.tasks.compositions import COMPOSITIONS

Values = Annotated[tuple[Parameter, ...], FromList]


class Limits(Model):
    """What a user restricts a search to. A key that is not given restricts nothing.

    `parameters` gives the values to try by the name of the parameter, ``segment`` or
    ``adapt.segment``; () tries none.
    """

    submodules: Names | None = Field(default=None, description="Submodules to try.")
    algorithms: Names | None = Field(default=None, description="Algorithms to try.")
    segments: Annotated[tuple[Size, ...], FromList] | None = Field(
        default=None, description="Bytes of a segment of the pipeline over the levels."
    )
    schedules: Annotated[tuple[Schedule, ...], FromList] = Field(
        default=("dataflow", "lockstep"), description="Schedules to try."
    )
    parameters: Mapping[str, Values] | None = Field(
        default=None, description="Values to try, by parameter or submodule.parameter."
    )
    compositions: Names | None = Field(
        default=None, description="Compositions to try besides tree, on several nodes."
    )


EVERYTHING = Limits()


def load_limits(path: Path) -> Limits:
    """Return what a file restricts a search to; raises ConfigError with all problems."""
    data, origin = read_yaml(path)
    found = validated(Limits, data, origin, {"": tuple(Limits.model_fields)})
    _check_names(found, str(path))
    parameters = found.parameters or {}
    given = {name: _parsed(name, values, path) for name, values in parameters.items()}
    return found.model_copy(update={"parameters": given})


def _check_names(found: Limits, place: str) -> None:
    parts = registered()
    algorithms = [name for part in parts.values() for name in part.algorithms]
    known = {"submodule": (found.submodules, [*parts]),
             "algorithm": (found.algorithms, list(dict.fromkeys(algorithms))),
             "composition": (found.compositions, [*COMPOSITIONS])}  # fmt: skip
    for what, (wanted, names) in known.items():
        for name in wanted or ():
            if name not in names:
                raise ConfigError(f"{place}: {what}s: {name!r}: {unknown(what, name, names)}")


def _parsed(name: str, values: tuple[Parameter, ...], path: Path) -> tuple[Parameter, ...]:
    """Return the values of a parameter as its kind; raises ConfigError."""
    submodule, dot, key = name.rpartition(".")
    parts = registered()
    fits = {n: p for n, p in parts.items() if n == submodule or not dot}
    infos = [part.parameters[key] for part in fits.values() if key in part.parameters]
    if not infos:
        known = sorted({k for part in parts.values() for k in part.parameters})
        raise ConfigError(f"{path}: parameters: {unknown('parameter', name, known)}")
    try:
        return tuple(infos[0].parse(value) for value in values)
    except ValueError as error:
        raise ConfigError(f"{path}: parameters.{name}: {error}") from None
