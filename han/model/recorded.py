"""Mixes of calls that statistics of a program recorded: read, checked, as a sequence of calls."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field

from han.common.errors import ArgumentError
from han.common.json_files import Format
from han.model.collectives import COLLECTIVES, calls, carried
from han.model.statistics import FORMAT, VERSION

STATISTICS = Format(FORMAT, VERSION, "record of statistics", "record", ArgumentError)
STARTS = ": Start"  # of a persistent request
ITEM = 8  # bytes; sizes are whole numbers of float64
BLOCKING, NONBLOCKING, PERSISTENT, MAKING = "blocking", "nonblocking", "persistent", "making"


@dataclass(frozen=True)
class Recorded:
    """Calls of one kind: the collective, how it is called, bytes of a call, number of calls.

    `how` is BLOCKING, NONBLOCKING, PERSISTENT (a start) or MAKING (of a persistent request).
    """

    collective: str
    how: str
    nbytes: int
    calls: float


@dataclass(frozen=True)
class Mix:
    """The calls of a program that both sides can make, and the number of the others."""

    name: str
    kinds: tuple[Recorded, ...]
    others: float

    def sequence(self, count: int) -> list[Recorded]:
        """Return `count` calls in a random order, as often as recorded; the same on all ranks."""
        weights = [kind.calls for kind in self.kinds]
        return random.Random(count).choices(self.kinds, weights, k=count)


# ---- what a file must hold; it may hold more ----------------------------------------------------


class _Row(BaseModel):
    call: str
    ranks: Annotated[int, Field(ge=1)]
    calls: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    nbytes: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None


class _File(BaseModel):
    rows: list[_Row]


def read_mix(path: Path) -> Mix:
    """Read what ``HAN_STATS=FILE.json`` wrote; raises ArgumentError for any other file.

    Calls of communicators of one rank are left out, as no rank waits for another one there.
    """
    said = STATISTICS.validate(_File, STATISTICS.read(path), str(path))
    rows = [row for row in said.rows if row.ranks > 1 and row.calls > 0]
    kinds = tuple(_kinds(rows))
    if not kinds:
        raise ArgumentError(f"{path}: holds no collective of several ranks that han has")
    known = sum(kind.calls for kind in kinds)
    return Mix(path.stem, kinds, sum(row.calls for row in rows) - known)


def _kinds(rows: list[_Row]) -> Iterator[Recorded]:
    for row in rows:
        name, how = _named(row.call)
        if name in calls() and carried(name) in COLLECTIVES and row.nbytes is not None:
            nbytes = round(row.nbytes / row.calls / ITEM) * ITEM
            yield Recorded(carried(name), how, max(nbytes, ITEM if row.nbytes else 0), row.calls)


def _named(call: str) -> tuple[str, str]:
    """Return the name of the blocking call in lower case, and how the call was made."""
    if call.endswith(STARTS):
        return call.removesuffix(STARTS).removesuffix("_init").lower(), PERSISTENT
    if call.endswith("_init"):
        return call.removesuffix("_init").lower(), MAKING
    if call[0].islower():
        return "", BLOCKING  # objects
    blocking = call.lower() in calls()
    return (call.lower(), BLOCKING) if blocking else (call[1:], NONBLOCKING)
