"""Reports of ``han bench --json``: times by collective and size, machine and settings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from han.common.errors import ArgumentError
from han.common.json_files import Format

FORMAT = Format("han-bench", 1, "report of 'han bench --json'", "measure", ArgumentError)


Count = Annotated[int, Field(ge=1)]  # in files
Number = Annotated[int, Field(ge=0)]
Microseconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


@dataclass(frozen=True)
class Times:
    """Microseconds a call on the slowest rank: median, least and greatest of the rounds."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    median: Microseconds
    low: Microseconds
    high: Microseconds
    calls: Count  # in a batch


# ---- what a file must hold; it may hold more ----------------------------------------------------


class _Row(BaseModel):
    collective: str
    nbytes: Number
    han: Times | None = None
    mpi: Times | None = None


class _Machine(BaseModel):
    library: str
    ranks: Count
    nodes: Count


class _Settings(BaseModel):
    mode: str
    dtype: str
    op: str
    root: Number
    shared: bool = False
    fresh: bool = False


class _Run(BaseModel):
    machine: _Machine
    settings: _Settings
    rows: Annotated[list[_Row], Field(min_length=1)]


@dataclass(frozen=True)
class Report:
    """The report of one run: the name of its file, and its content."""

    name: str
    data: Mapping[str, Any]

    @property
    def library(self) -> str:
        """The MPI library's name and version."""
        return str(self.data["machine"]["library"])

    def series(self, side: str) -> dict[tuple[str, int], Times]:
        """Return the times of a side (``han`` or ``mpi``) by collective and size in bytes."""
        return {
            (row["collective"], row["nbytes"]): Times(**row[side])
            for row in self.data["rows"]
            if row.get(side)
        }

    def about(self, key: str) -> object:
        """Return a value of the machine or the settings; False if the report does not have it."""
        return self.data["machine"].get(key, self.data["settings"].get(key, False))


def read(path: Path) -> Report:
    """Read a report of ``han bench --json``; raises ArgumentError for any other file."""
    text = FORMAT.read(path)
    FORMAT.validate(_Run, text, str(path))
    return Report(str(path), json.loads(text))
