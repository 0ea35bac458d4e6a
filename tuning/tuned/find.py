"""Where tuned tables are found: a named file, the user's data folder, those that come with han."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from han.config.source import READY
from han.tuning.built_in.table import FILE as BUILT_IN
from han.tuning.tuned.files import TunedError, content_of, is_of_another, table_of
from han.tuning.tuned.fingerprint import Fingerprint
from han.tuning.tuned.table import TunedTable, stacked

OFF, AUTO = "off", "auto"
UNUSED = "; the built-in choices are used"
SHIPPED = READY / "tuned"
Version = tuple[Path, int, int]  # path, time and size of a file
REMEMBERED = 64  # files, as they were read


@dataclass(frozen=True)
class Search:
    """The table that this rank would use, and what is to be told about others.

    `problem` is what the user should know: a file that was named, or that han wrote, is no use.
    """

    table: TunedTable | None = None
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
        has_remedy = "tune it again" in reason or "HAN_TUNED=" in reason
        return reason if has_remedy else f"{reason}; make one with han tune"

    def without_table(self, problem: str) -> Search:
        """Return a search that found nothing to use, for a reason."""
        return replace(self, table=None, about=problem, problem=problem)


def user_folder(what: str = "tuned") -> Path:
    """Return the folder of the user's tables, or of others, in the data folder of the platform."""
    from platformdirs import user_data_path

    return user_data_path("han", appauthor=False) / what


def default_file(here: Fingerprint, what: str = "tuned") -> Path:
    """Return the file of a machine and its MPI library in a folder of the user."""
    words = f"{here.library.rpartition(' ')[0] or here.library}-{here.cores}-{here.cpu}".lower()
    return user_folder(what) / f"{re.sub('[^a-z0-9]+', '-', words).strip('-')[:80]}.json"


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

    ``auto`` takes the table that is the least far from `here` of the user's folder, and of those
    that come with han. Of both, the one that is less far decides first; the user's, if both are as
    far.
    """
    if wanted == OFF:
        return Search(about="off")
    if wanted != AUTO:
        try:
            return _named(named_file(wanted), here)
        except TunedError as error:
            return Search().without_table(f"{error}{UNUSED}")
    folders = tuple(tuple(_files(folder)) for folder in (user_folder(), SHIPPED))
    if not any(folders):
        return Search(about=f"none in {user_folder()}")
    return _least_far(folders, here())


@lru_cache(maxsize=4)
def _least_far(folders: tuple[tuple[Version, ...], ...], machine: Fingerprint) -> Search:
    """Return the table of some folders that is the least far from a machine."""
    problems, best = list[str](), list[TunedTable]()
    for files in folders:
        best += _nearest(files, machine, problems)
    told = "; ".join(problems)
    if not best:
        count = sum(map(len, folders))
        return Search(None, told or f"none of {count} tables is of this machine", told)
    best.sort(key=lambda table: machine.farness(table.machine))
    return _taken(best, machine, told)


def _nearest(
    files: Sequence[Version], machine: Fingerprint, problems: list[str]
) -> list[TunedTable]:
    """Return the table that is the least far from a machine, if any is of it; tell of problems."""
    fits = list[TunedTable]()
    for file in files:
        found = _load(file, machine)
        if isinstance(found, TunedError):
            problems.append(f"{found}; it is not used")
        elif found is not None and not machine.is_other(found.machine):
            fits.append(found)
    return [min(fits, key=lambda table: machine.farness(table.machine))] if fits else []


def _taken(tables: Sequence[TunedTable], machine: Fingerprint, told: str = "") -> Search:
    """Return a search that found tables, the first of which decides first."""
    first, *others = tables
    then = [f"then {table.source} ({table.about(machine)})" for table in others]
    return Search(
        stacked([table.seen_from(machine) for table in tables]),
        "; ".join([first.about(machine), *then]),
        "; ".join(filter(None, (told, *(table.note for table in tables)))),
    )


def _named(path: Path, here: Callable[[], Fingerprint]) -> Search:
    found = _load(version_of(path))
    assert found is not None
    if isinstance(found, TunedError):
        return Search().without_table(f"{found}{UNUSED}")
    machine = here()
    if machine.is_other(found.machine):
        return Search().without_table(
            f"{path}: measured on another machine: {machine.distance(found.machine)}{UNUSED}"
        )
    return _taken([found], machine)


def _files(folder: Path) -> Iterator[Version]:
    try:
        found = sorted(e.path for e in os.scandir(folder) if e.name.endswith(".json"))
    except OSError:
        return
    for path in map(Path, found):
        if path.name[0] != "." and path != BUILT_IN:
            yield version_of(path)


def version_of(path: Path) -> Version:
    """Return what tells whether a file has changed."""
    try:
        about = path.stat()
    except OSError:
        return path, 0, 0  # reading it says why
    return path, about.st_mtime_ns, about.st_size


@lru_cache(REMEMBERED)
def _load(file: Version, here: Fingerprint | None = None) -> TunedTable | TunedError | None:
    """Return a table, or why it cannot be read; read once for as long as the file stays the same.

    None: it says that it is of another machine than `here`, so it is not read any further.
    """
    try:
        content = content_of(file[0])
        if here is not None and is_of_another(content, here):
            return None
        return table_of(content, str(file[0]))
    except TunedError as error:
        return error
