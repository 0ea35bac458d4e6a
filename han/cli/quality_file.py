"""The JSON file of ``han tune quality``: written after each input, and continued."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mpi4py import MPI

from han.common.atomic import write_whole
from han.common.errors import ArgumentError
from han.common.json_files import Format
from han.common.version import __version__
from han.measure.tune.quality import Compared, Row, compared
from han.measure.tune.tuner import Plans
from han.ranks.machine import fingerprint

FORMAT = Format("han-tuning-quality", 2, "comparison of strategies", "make", ArgumentError)


def conditions(
    comm: MPI.Intracomm, config: Any, plans: Plans, strategies: Sequence[str], fresh: bool
) -> dict[str, Any]:
    """Return what must agree of runs whose rows stand in one table, as plain data; collective."""
    found = {
        "machine": asdict(fingerprint()),
        "ranks": comm.size,
        "nodes": len(set(comm.allgather(MPI.Get_processor_name()))),
        "strategies": [*compared(strategies)],
        "config": config,
        "fresh": fresh,
        "call": {"dtype": plans.dtype, "op": plans.op, "shared": plans.shared},
        "space": asdict(plans.limits),
        "limit": plans.limit,
    }
    plain: dict[str, Any] = json.loads(json.dumps(found))
    return plain


def as_record(found: Compared, where: Mapping[str, Any]) -> dict[str, Any]:
    """Return a comparison as plain data."""
    return {
        "format": FORMAT.name, "version": FORMAT.version, "han": __version__, "unit": "s", **where,
        "complete": not found.left, "left": [asdict(one) for one in found.left],
        "rows": [row.record() for row in found.rows],
    }  # fmt: skip


def is_kept(file: Path | None) -> bool:
    """Whether a file can be replaced after each input: not a pipe, a device or standard output."""
    return file is not None and str(file) != "-" and (not file.exists() or file.is_file())


def write_record(file: Path, record: Mapping[str, Any]) -> None:
    """Replace the file as a whole. Raises ArgumentError."""
    try:
        write_whole(file.resolve(), json.dumps(record, indent=1) + "\n")
    except OSError as error:
        raise ArgumentError(f"{file}: cannot be written: {error.strerror or error}") from None


def unfinished(file: Path, where: Mapping[str, Any]) -> tuple[Row, ...]:
    """Return the rows of an interrupted run; none if the file holds no such run.

    Raises ArgumentError if that run was made under other conditions.
    """
    try:
        record = FORMAT.record(FORMAT.read(file), str(file))
    except ArgumentError:
        return ()
    if record.get("complete", True):
        return ()
    for name, here in where.items():
        if record.get(name) != here:
            raise ArgumentError(
                f"{file} holds an unfinished comparison with {name} {_brief(record.get(name))}, "
                f"here {_brief(here)}; name another file, or begin anew with --restart"
            )
    try:
        return tuple(map(Row.of, record["rows"]))
    except (LookupError, TypeError, AttributeError) as error:
        raise ArgumentError(
            f"{file} holds a damaged comparison: {type(error).__name__}: {error}; name another "
            "file, or begin anew with --restart"
        ) from None


def rows_of(file: Path) -> tuple[Row, ...]:
    """Return the rows of a comparison, complete or not. Raises ArgumentError."""
    record = FORMAT.record(FORMAT.read(file), str(file))
    try:
        rows = tuple(map(Row.of, record["rows"]))
    except (LookupError, TypeError, AttributeError) as error:
        raise ArgumentError(
            f"{file}: a damaged comparison: {type(error).__name__}: {error}; make one with "
            "'han tune quality --json'"
        ) from None
    if not rows:
        raise ArgumentError(f"{file}: nothing was compared")
    return rows


def _brief(value: Any) -> str:
    return json.dumps(value) if value is not None else "by default"
