"""Where tuned tables are found: a named file, the user's data folder, those that come with han."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from han.config.source import READY
from han.tuning.built_in.shipped import FILE as BUILT_IN
from han.tuning.tuned.files import TunedError
from han.tuning.tuned.fingerprint import Fingerprint
from han.tuning.tuned.row_files import either
from han.tuning.tuned.rows import RowTable
from han.tuning.tuned.table import TunedTable

OFF, AUTO = "off", "auto"
UNUSED = "; the built-in choices are used"
SHIPPED = READY / "tuned"
_read: dict[
    tuple[Path, int, int], TunedTable | RowTable | TunedError
] = {}  # by path, time and size


@dataclass(frozen=True)
class Search:
    """The table that this rank would use, and what is to be told about others.

    `problem` is what the user should know: a file that was named, or that han wrote, is no use.
    """

    table: TunedTable | RowTable | None = None
    about: str = ""
    problem: str = ""

    @property
    def digest(self) -> str:
        """What ranks compare: those with the same one decide alike."""
        return "" if self.table is None else self.table.digest

    @property
    def missing(self) -> str:
        """Why there is no table, and what to do."""
        reason = self.about.removesuffix(UNUSED)
        has_remedy = "tune again" in reason or "HAN_TUNED=" in reason
        return reason if has_remedy else f"{reason}; make one with han tune"

    def without_table(self, problem: str) -> Search:
        """Return a search that found nothing to use, for a reason."""
        return replace(self, table=None, about=problem, problem=problem)


def user_folder() -> Path:
    """Return the folder of the user's tables, below the data folder of this platform."""
    from platformdirs import user_data_path

    return user_data_path("han", appauthor=False) / "tuned"


def default_file(here: Fingerprint) -> Path:
    """Return the file of a machine and its MPI library in the user's folder."""
    words = f"{here.library.rpartition(' ')[0] or here.library}-{here.cores}-{here.cpu}".lower()
    return user_folder() / f"{re.sub('[^a-z0-9]+', '-', words).strip('-')[:80]}.json"


def named_file(wanted: str) -> Path:
    """Return the file that a setting names; raises TunedError if it names none."""
    path = os.path.expanduser(wanted)  # leaves unknown users as they are
    if path.startswith("~") or "\0" in path:
        cause = "a name has no zero bytes" if "\0" in path else "there is no such user"
        raise TunedError(f"{wanted}: {cause}")
    return Path(path)


def left_out_file(table: Path) -> Path:
    """Return the file beside a table that lists what its last run left out."""
    return table.with_name(f"{table.stem}.left-out.txt")


def find_table(wanted: str, here: Callable[[], Fingerprint]) -> Search:
    """Return the table for a setting: ``off``, ``auto`` or a file. It never raises.

    ``auto`` takes the table that differs least from `here`, of the user's folder or of those that
    come with han; the user's, if both differ as much.
    """
    if wanted == OFF:
        return Search(about="off")
    if wanted != AUTO:
        try:
            return _named(named_file(wanted), here)
        except TunedError as error:
            return Search().without_table(f"{error}{UNUSED}")
    files = [*_files(user_folder()), *_files(SHIPPED)]
    if not files:
        return Search(about=f"none in {user_folder()}")
    machine, problems, fits = here(), [], []
    for path in files:
        found = _load(path)
        if isinstance(found, TunedError):
            problems.append(f"{found}; it is not used")
        elif not machine.is_other(found.machine):
            fits.append(found)
    best = min(fits, key=lambda t: len(machine.differences(t.machine)), default=None)
    told = "; ".join(problems)
    if best is None:
        return Search(None, told or f"none of {len(files)} tables is of this machine", told)
    return Search(best, best.about(machine), told)


def holds_rows(path: Path) -> bool:
    """Whether a file is a table of rows, which takes no points."""
    return path.exists() and isinstance(_load(path), RowTable)


def _named(path: Path, here: Callable[[], Fingerprint]) -> Search:
    found = _load(path)
    if isinstance(found, TunedError):
        return Search().without_table(f"{found}{UNUSED}")
    machine = here()
    if machine.is_other(found.machine):
        return Search().without_table(
            f"{path}: measured on another machine: {machine.distance(found.machine)}{UNUSED}"
        )
    return Search(found, found.about(machine))


def _files(folder: Path) -> Iterator[Path]:
    try:
        found = sorted(p for p in folder.iterdir() if p.suffix == ".json" and p.name[0] != ".")
        yield from (p for p in found if p != BUILT_IN)
    except OSError:
        return


def _load(path: Path) -> TunedTable | RowTable | TunedError:
    """Read a table, once in a process for as long as the file stays the same."""
    try:
        about = path.stat()
    except OSError as error:
        return TunedError(f"{path}: cannot be read: {error.strerror}")
    key = path, about.st_mtime_ns, about.st_size
    if key not in _read:
        try:
            _read[key] = either(path)
        except TunedError as error:
            _read[key] = error
    return _read[key]
