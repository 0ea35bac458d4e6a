"""The table of built-in choices: sections of rows, read when they are first asked for."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from han.common.errors import HanError
from han.tuning.built_in.safe import SAFE
from han.tuning.row import Row, Rows
from han.tuning.row_reading import rows_of
from han.tuning.tuned.fingerprint import Fingerprint

# What each section of rows decides.
SECTIONS = {
    "compositions": "the composition of a call on several nodes",
    "segments": "the segment of a message that passes through several levels",
    "cells": "tasks of a level whose ranks share memory",
    "messages": "tasks of a level whose ranks send messages",
    "blocks": "calls whose buffers hold a block for each rank",
    "nap": "both levels of the composition nap",
    "lanes": "the inner level of the composition lanes",
    "ring": "the outermost level of the composition ring, and levels whose ranks share memory",
}
OFFER = 1 << 16  # without a table
UNUSED = "safe choices are used, which may be slow"


class ChoicesError(HanError, ValueError):
    """A table of built-in choices cannot be used. The text names the file, the row and the key."""


class ChoiceTable:
    """The rows of each section, and the machines on which they were found.

    `record` is the content of a file with known keys. A section that cannot be used is told of in a
    warning when it is first asked for, and the safe choices take its place. Calls on shared arrays
    of fewer than `offer` bytes do not ask whether all ranks have some. Any thread may use it.
    """

    def __init__(
        self, record: Mapping[str, Any], offer: int = OFFER, source: str = "", digest: str = ""
    ) -> None:
        self.record, self.offer, self.source, self.digest = record, offer, source, digest
        self._rows: dict[str, Rows] = {}

    @cached_property
    def machines(self) -> tuple[Fingerprint, ...]:
        """The machines on which the rows were found."""
        return tuple(Fingerprint(**one) for one in self.record.get("machines", ()))

    def nearest(self, here: Fingerprint) -> Fingerprint | None:
        """Return the machine of the table that differs least from this one."""
        return min(self.machines, key=lambda m: len(here.differences(m)), default=None)

    def distance(self, here: Fingerprint) -> str:
        """Return how the machine that differs least from `here` differs from it."""
        machine = self.nearest(here)
        return "of no machine" if machine is None else here.distance(machine)

    @property
    def count(self) -> int:
        """The number of rows in all."""
        return sum(len(self.record[section]) for section in SECTIONS)

    def section(self, section: str) -> Rows:
        """Return the rows of a section that decide, safe ones last."""
        return self._rows.get(section) or self._load(section)

    def rows(self, section: str) -> tuple[Row, ...]:
        """Return the rows of a section; raises ChoicesError."""
        try:
            return rows_of(self.record[section], section)
        except ValueError as error:
            raise ChoicesError(f"{self.source}: {error}") from None

    def check(self) -> None:
        """Raise ChoicesError if a section cannot be used."""
        for section in SECTIONS:
            self.rows(section)

    def _load(self, section: str) -> Rows:
        rows: tuple[Row, ...] = ()
        problem = None
        try:
            rows = self.rows(section)
        except ChoicesError as error:
            problem = error
        found = self._rows[section] = Rows((*rows, *rows_of(SAFE[section], section)))
        if problem is not None:  # last: a program may turn warnings into errors
            warnings.warn(f"built-in choices: {problem}; {UNUSED}", UserWarning, stacklevel=2)
        return found
