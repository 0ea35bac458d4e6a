"""The table of built-in choices: sections of rows, read when they are first asked for.

Tables are checked when they are read, because a person may have changed them.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping
from dataclasses import MISSING, fields
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from han.common.errors import HanError
from han.common.json_files import Format
from han.common.units import parse_size
from han.config.source import READY
from han.tuning.row import Row, Rows
from han.tuning.row_reading import known_keys, rows_of
from han.tuning.tuned.fingerprint import Fingerprint

# What each section of rows decides.
SECTIONS = {
    "compositions": "the composition of a call on several nodes",
    "segments": "the segment of a message that passes through several levels",
    "cells": "tasks of a level whose ranks share memory",
    "messages": "tasks of a level whose ranks send messages",
    "blocks": "calls whose buffers hold a block for each rank",
    "bundles": "such calls on several nodes",
    "pairs": "calls whose ranks know their own blocks only, of ranks that share memory",
    "nap": "both levels of the composition nap",
    "lanes": "the inner level of the composition lanes",
    "ring": "the outermost level of the composition ring, and levels whose ranks share memory",
}
OFFER = 1 << 16  # without a table
UNUSED = "safe choices are used, which may be slow"
FILE = READY / "tuned" / "built-in.json"
KEYS = ("format", "version", "about", "machines", "offer", *SECTIONS)


class ChoicesError(HanError, ValueError):
    """A table of built-in choices cannot be used. The text names the file, the row and the key."""


FORMAT = Format("han-choices", 2, "table of built-in choices", "write", ChoicesError, (1,))


# ---- safe choices -------------------------------------------------------------------------------

# They are right for every call, and take the place of sections that cannot be used. They also serve
# calls for which a table that a person has changed has no row.
_DIRECT = {"submodule": "sm", "algorithm": "direct"}
_SPLIT = {"submodule": "sm", "algorithm": "split"}
_ONE_BY_ONE = {"submodule": "adapt", "algorithm": "linear", "window": 1}


def _row(use: dict[str, Any], **when: Any) -> dict[str, Any]:
    return {"name": "safe", "when": when, "use": use}


SAFE: dict[str, list[dict[str, Any]]] = {
    "compositions": [{"name": "safe", "composition": "tree"}],
    "segments": [{"name": "safe", "segment": "whole"}],
    "cells": [
        _row({"submodule": "sm", "algorithm": "prefix"}, collective=["scan", "exscan"]),
        _row({"submodule": "sm", "algorithm": "flat"}),
    ],
    "messages": [
        _row({"submodule": "scan", "algorithm": "doubling"}, collective=["scan", "exscan"]),
        _row({"submodule": "adapt", "algorithm": "by_rank"}, reproducible=True),
        _row(_ONE_BY_ONE, commutative=False, root={"min": 1}),
        _row({"submodule": "adapt", "algorithm": "binomial"}),
    ],
    "blocks": [_row({"submodule": "sm", "algorithm": "blocks"})],
    "bundles": [
        _row({"submodule": "bundle", "algorithm": "linear"}, outermost=True),
        _row({"submodule": "sm", "algorithm": "blocks"}),
    ],
    "pairs": [_row({"submodule": "sm", "algorithm": "pairs"})],
    "nap": [
        _row({"submodule": "nap", "algorithm": "pairs"}, outermost=True),
        _row({"submodule": "sm", "algorithm": "flat"}, whole=False),
        _row(_DIRECT, bytes={"max": "2KiB"}),
        _row(_SPLIT),
    ],
    "lanes": [_row({"submodule": "sm", "algorithm": "shares"})],
    "ring": [
        _row({"submodule": "ring", "algorithm": "pieces"}, collective="allreduce", outermost=True),
        _row({"submodule": "adapt", "algorithm": "chain"}, outermost=True),
        _row({"submodule": "sm", "algorithm": "flat"}),
    ],
}


# ---- the table ----------------------------------------------------------------------------------


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

    def distance(self, here: Fingerprint) -> str:
        """Return how the machine that differs least from `here` differs from it."""
        nearest = min(self.machines, key=lambda m: len(here.differences(m)), default=None)
        return "of no machine" if nearest is None else here.distance(nearest)

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


# ---- reading ------------------------------------------------------------------------------------


def content_of(path: Path) -> bytes:
    """Return the content of a file; raises ChoicesError."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise ChoicesError(f"{path}: cannot be read: {error.strerror or error}") from None


def digest_of(content: bytes) -> str:
    """Return what stands for the content of a file."""
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def parse(content: bytes, place: str) -> ChoiceTable:
    """Return the table of a file's content; `place` names it. Raises ChoicesError.

    Rows are checked when their section is asked for.
    """
    record = FORMAT.record(content, place)
    try:
        known_keys(record, KEYS, "", ("offer", *SECTIONS))
        machines_of(record.get("machines", []))
        offer = parse_size(record["offer"])
    except ValueError as error:
        raise ChoicesError(f"{place}: {error}") from None
    return ChoiceTable(record, offer, place, digest_of(content))


def machines_of(records: object) -> tuple[Fingerprint, ...]:
    """Return the machines of a table; raises ValueError."""
    known = {one.name: one.default is MISSING for one in fields(Fingerprint)}
    needed = [name for name, always in known.items() if always]
    every: list[Any] = records if isinstance(records, list) else [None]
    for k, record in enumerate(every):
        known_keys(record, known, f"machines[{k}]", needed)
    return tuple(Fingerprint(**record) for record in every)


# ---- the table that comes with han, read once in a process --------------------------------------


@cache
def content() -> bytes | ChoicesError:
    """Return the content of the file as this process first found it, or why it has none.

    It is not read again: the ranks have agreed on what they found.
    """
    try:
        return content_of(FILE)
    except ChoicesError as error:
        return error


@cache
def digest() -> str:
    """Return what stands for the table: ranks with the same one make the same built-in choices."""
    found = content()
    return digest_of(b"" if isinstance(found, ChoicesError) else found)


@cache
def shipped() -> ChoiceTable:
    """Return the table; safe choices, after a warning, if it cannot be used."""
    found = content()
    try:
        if isinstance(found, ChoicesError):
            raise found
        return parse(found, str(FILE))
    except ChoicesError as error:
        warnings.warn(f"built-in choices: {error}; {UNUSED}", UserWarning, stacklevel=2)
        return safe_table()


@cache
def safe_table() -> ChoiceTable:
    """Return a table that decides for the safe choices only."""
    return ChoiceTable(SAFE)
