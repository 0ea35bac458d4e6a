"""Files of calibrations: the profile of a machine as ``han calibrate`` measured it.

There is one file for each machine and MPI library, beside the user's tuned tables.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from han.common.atomic import alone_in, write_whole
from han.common.errors import HanError
from han.common.json_files import Format
from han.tuning.built_in.table import machines_of
from han.tuning.profile import UNKNOWN, Profile, profile_from, written
from han.tuning.row_reading import known_keys
from han.tuning.tuned.find import Version, default_file, version_of
from han.tuning.tuned.fingerprint import WEIGHTS, Fingerprint

FOLDER = "calibrated"  # in the user's data folder
KEYS = ("format", "version", "machine", "made", "profile")
UNUSED = "; what the system tells says to which class of machines this one belongs"
MISSING = "none; make one with mpiexec -n RANKS han calibrate"
# What was measured holds no more where one of these differs.
CONDITIONS = tuple(name for name, weight in WEIGHTS.items() if weight > 1)


class CalibrationError(HanError, ValueError):
    """A calibration cannot be read or kept. The text names the file and the cause."""


FORMAT = Format("han-calibration", 1, "calibration", "calibrate", CalibrationError)


@dataclass(frozen=True)
class Calibration:
    """A machine, its profile, and the day on which it was measured."""

    machine: Fingerprint
    profile: Profile
    made: str
    source: str = ""

    def unlike(self, here: Fingerprint) -> str:
        """Return why the calibration says nothing about the machine `here`, or ""."""
        if here.is_other(self.machine):
            return f"measured on another machine: {here.distance(self.machine)}"
        told = [
            f"{name}: {a} here, {b} there"
            for name, (a, b) in here.differences(self.machine).items()
            if name in CONDITIONS
        ]
        return f"measured in other conditions: {'; '.join(told)}" if told else ""

    def document(self) -> dict[str, Any]:
        """Return it as files have it."""
        return {
            "format": FORMAT.name,
            "version": FORMAT.version,
            "machine": asdict(self.machine),
            "made": self.made,
            "profile": written(self.profile),
        }


@dataclass(frozen=True)
class Kept:
    """The calibration that a rank found, or why it has none.

    `problem` is what the user should know: a file is there, and cannot be used.
    """

    found: Calibration | None = None
    about: str = MISSING
    problem: str = ""

    @property
    def profile(self) -> Profile:
        """What was measured."""
        return UNKNOWN if self.found is None else self.found.profile


def parse(text: str, place: str) -> Calibration:
    """Return the calibration of a text; `place` names it. Raises CalibrationError."""
    record = FORMAT.record(text, place)
    try:
        known_keys(record, KEYS, "", ("machine", "profile"))
        (machine,) = machines_of([record["machine"]])
        profile = profile_from(record["profile"], "profile")
    except (TypeError, ValueError) as error:
        raise CalibrationError(f"{place}: {error}") from None
    return Calibration(machine, profile, str(record.get("made", "")), place)


def read(path: Path) -> Calibration:
    """Return the calibration of a file; raises CalibrationError."""
    return parse(FORMAT.read(path), str(path))


def file_of(here: Fingerprint) -> Path:
    """Return the file of a machine and its MPI library."""
    return default_file(here, FOLDER)


def find(here: Fingerprint) -> Kept:
    """Return the calibration that is kept for a machine; it never raises."""
    file = version_of(file_of(here))
    return Kept() if not file[1] else _kept(file, here)


@lru_cache(4)
def _kept(file: Version, here: Fingerprint) -> Kept:
    """Return what a file holds; read once for as long as it stays the same."""
    try:
        found = read(file[0])
    except CalibrationError as error:
        return _useless(str(error))
    reason = found.unlike(here)
    if reason:
        return _useless(f"{file[0]}: {reason}; calibrate again")
    return Kept(found, f"{file[0]}, {found.made}")


def _useless(reason: str) -> Kept:
    return Kept(None, reason, f"{reason}{UNUSED}")


def write(path: Path, new: Calibration) -> Calibration:
    """Keep a calibration, with what an older one of this machine knows besides; return both.

    If two jobs write at once, the file has the values of both in the end. Raises CalibrationError.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with alone_in(path.parent):
            whole = replace(new, profile=new.profile.over(_older(path, new)), source=str(path))
            write_whole(path, json.dumps(whole.document(), indent=1) + "\n")
    except OSError as error:
        raise CalibrationError(f"{path}: cannot be written: {error.strerror or error}") from None
    return whole


def _older(path: Path, new: Calibration) -> Profile:
    """Return what the file knows, if it is of the same machine; a useless file is replaced."""
    try:
        old = read(path)
    except CalibrationError:
        return UNKNOWN
    return UNKNOWN if old.unlike(new.machine) else old.profile
