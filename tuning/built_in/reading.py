"""Read tables of built-in choices: a person may have changed them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from han.common.suggest import unknown
from han.tuning.amounts import size_of
from han.tuning.built_in.table import SECTIONS, ChoicesError, ChoiceTable
from han.tuning.record import Format
from han.tuning.tuned.fingerprint import Fingerprint

FORMAT = Format("han-choices", 2, "table of built-in choices", reads=(1,))
KEYS = ("format", "version", "about", "machines", "offer", *SECTIONS)


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
    try:
        record = FORMAT.record(content)
        expect_keys(record, KEYS, "", ("offer", *SECTIONS))
        machines_of(record.get("machines", []))
        offer = size_of(record["offer"])
    except ValueError as error:
        raise ChoicesError(f"{place}: {error}") from None
    return ChoiceTable(record, offer, place, digest_of(content))


def machines_of(records: object) -> tuple[Fingerprint, ...]:
    """Return the machines of a table; raises ValueError."""
    known = {one.name: one.default is MISSING for one in fields(Fingerprint)}
    needed = [name for name, always in known.items() if always]
    every: list[Any] = records if isinstance(records, list) else [None]
    for k, record in enumerate(every):
        expect_keys(record, known, f"machines[{k}]: ", needed)
    return tuple(Fingerprint(**record) for record in every)


def expect_keys(record: object, known: Iterable[str], at: str, needed: Iterable[str] = ()) -> None:
    """Raise ValueError unless a record has known keys only, and those that are needed."""
    if not isinstance(record, dict):
        raise ValueError(f"{at}expected keys and values")
    for key in record:
        if key not in known:
            raise ValueError(f"{at}{unknown(f'key {key!r}', key, known)}")
    for key in needed:
        if key not in record:
            raise ValueError(f"{at}the key {key!r} is missing")
