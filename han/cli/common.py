"""The ranks that run a command, printing on rank 0, and files."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from han.common.atomic import write_output
from han.common.errors import ArgumentError, MissingLibraryError
from han.common.library import require_mpi
from han.common.suggest import expect_known
from han.common.units import parse_size
from han.model.element_types import OPS
from han.plots.style import check_picture

if TYPE_CHECKING:
    from mpi4py import MPI

# The begin of reports, traces, plans and tables, which commands read.
READ = re.compile(r'\s*\{\s*"format":\s*"han-')


def world() -> MPI.Intracomm:
    """Return MPI.COMM_WORLD; raises MissingLibraryError."""
    require_mpi()
    from mpi4py import MPI

    return MPI.COMM_WORLD


def rank() -> int:
    """Return this process's rank; 0 without an MPI library."""
    try:
        return world().rank
    except MissingLibraryError:
        return 0


def say(text: str) -> None:
    """Print on rank 0."""
    if not rank():
        print(text, flush=True)


def size_of(text: str) -> int:
    """Return the bytes of a size such as ``4MiB``. Raises ArgumentError."""
    try:
        return parse_size(text)
    except ValueError as error:
        raise ArgumentError(f"size {error}") from None


def known_op(name: str) -> str:
    """Return the name of a predefined operation; raises ArgumentError for another one."""
    expect_known("operation", name, OPS)
    return name


def numbers(option: str, text: str) -> tuple[int, ...]:
    """Return the numbers of an option, in order; raises ArgumentError."""
    parts = text.split(",")
    if not all(part.isdecimal() and int(part) for part in parts):
        raise ArgumentError(f"{option} {text!r}: expected numbers such as 2,4,16")
    return tuple(sorted({int(part) for part in parts}))


def check_files(*paths: Path | None, plot: Path | None = None) -> None:
    """Raise ArgumentError if a file cannot be written or has an unknown picture format.

    Commands check their files before they measure or plan.
    """
    for path in (*paths, plot):
        reason = None if path is None or str(path) == "-" else _no_file(path)
        if reason is not None:
            raise ArgumentError(f"{path}: cannot be written: {reason}")
    if plot is not None:
        check_picture(plot)


def check_json(json_file: Path | None) -> None:
    """Check the file of --json; raise ArgumentError too for a document that commands read.

    In ``han compare --json a.json b.json`` the first file would be written.
    """
    check_files(json_file)
    if json_file is not None and json_file.is_file() and READ.match(_begin_of(json_file)):
        raise ArgumentError(
            f"--json {json_file}: this is a document that han reads, and would be overwritten; "
            "to print JSON put --json last, to write it name another file"
        )


def _begin_of(path: Path) -> str:
    with path.open(encoding="utf-8", errors="replace") as file:
        return file.read(64)


def _no_file(path: Path) -> str | None:
    """Return why a file cannot be written there, or None."""
    if path.is_dir():
        return "it is a folder; name a file in it"
    if not path.parent.is_dir():
        return f"there is no folder {path.parent}"
    there = path if path.exists() else path.parent
    return None if os.access(there, os.W_OK) else f"you may not write to {there}"


def prints(json_file: Path | None) -> Callable[[str], None]:
    """Return a function that prints on rank 0; it does nothing if JSON goes to standard output."""
    return (lambda text: None) if str(json_file) == "-" else say


def keep(record: object, json_file: Path | None) -> None:
    """Write, or print, a JSON document on rank 0, if a file is given."""
    if json_file is None or rank():
        return
    text = json.dumps(record, indent=1)
    if str(json_file) == "-":
        say(text)
    else:
        write_file(json_file, text + "\n")


def answer(json_file: Path | None, text: Callable[[], str], record: Callable[[], object]) -> None:
    """Print an answer on rank 0, and keep it as JSON; for standard output, as JSON only."""
    if rank():
        return
    if str(json_file) != "-":
        say(text())
    if json_file is not None:
        keep(record(), json_file)


def write_file(path: Path, text: str) -> None:
    """Write a text on rank 0, and say so. Raises ArgumentError with the file and the cause."""
    if not rank():
        replace_file(path, text)
        wrote(path)


def replace_file(path: Path, text: str) -> None:
    """Write a text to a file. Raises ArgumentError with the file and the cause."""
    try:
        write_output(path, text)
    except OSError as error:
        raise ArgumentError(f"{path}: cannot be written: {error.strerror or error}") from None


def drawn(path: Path | None, draw: Callable[[Path], object]) -> None:
    """Draw a picture on rank 0, if a path is given, and say so."""
    if path is not None and not rank():
        draw(path)
        wrote(path)


def wrote(path: Path) -> None:
    """Tell on rank 0's standard error that a file was written."""
    if not rank():
        print(f"Wrote {path}", file=sys.stderr, flush=True)
