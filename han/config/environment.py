"""The environment variables of han, and warnings about unknown ones."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping

from han.common.suggest import unknown
from han.config.rc import SETTINGS, VARIABLES, rc
from han.config.settings import TRUTHS, as_truth

PREFIX, OF_TESTS, OF_BUILD = "HAN_", "HAN_TEST_", "HAN_CFLAGS"
ENVIRONMENT = {
    **{VARIABLES[name]: about.partition(" (HAN_")[0] for name, about in SETTINGS.items()},
    "HAN_ABORT": "1: an error that a rank does not catch ends all ranks, as python -m mpi4py does",
    "HAN_CALIBRATE": "first: the first communicator calibrates the machine; off: no calibration",
    "HAN_ARENA": "most memory of a process's shared arrays, as 8GiB; default: half of the memory",
    "HAN_PRELOAD_PYTHON": "of a C or Fortran program: the Python that has han (han preload)",
    "HAN_PRELOAD_LIBPYTHON": "of a C or Fortran program: the shared library of this Python",
    "HAN_SHM_DIR": "a folder in a memory file system, for shared memory; default: /dev/shm",
}


CALIBRATE_FIRST, CALIBRATE_OFF = "first", "off"


def calibrate_setting(environ: Mapping[str, str]) -> str:
    """Return what ``HAN_CALIBRATE`` says; "" for nothing, or for a wrong value."""
    said = environ.get("HAN_CALIBRATE", "")
    return said if said in (CALIBRATE_FIRST, CALIBRATE_OFF) else ""


def aborts(environ: Mapping[str, str]) -> bool:
    """Return whether ``HAN_ABORT`` asks for the end of all ranks after an uncaught error."""
    return as_truth(environ.get("HAN_ABORT", "0")) is True


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """Return a text for each unknown variable that begins with ``HAN_``, or a wrong value."""
    return [*_wrong_values(environ)] + [
        unknown(f"environment variable {name}", name, ENVIRONMENT)
        for name in sorted(environ)
        if name.startswith(PREFIX)
        and not name.startswith(OF_TESTS)
        and name not in (*ENVIRONMENT, OF_BUILD)
    ]


def _wrong_values(environ: Mapping[str, str]) -> Iterator[str]:
    abort, calibrate = (environ.get(name, "") for name in ("HAN_ABORT", "HAN_CALIBRATE"))
    if abort and not isinstance(as_truth(abort), bool):
        yield f"environment variable HAN_ABORT: {abort!r} is not one of {TRUTHS}; taken as 0"
    if calibrate and not calibrate_setting(environ):
        known = f"{CALIBRATE_FIRST!r} nor {CALIBRATE_OFF!r}"
        yield f"environment variable HAN_CALIBRATE: {calibrate!r} is neither {known}; not used"


def warn_of_unknown(environ: Mapping[str, str]) -> None:
    """Warn about each unknown variable; Python shows a warning once a process."""
    for text in unknown_variables(environ):
        warnings.warn(text, UserWarning, stacklevel=5)  # the caller of han.Comm


VARIABLE = "HAN_STATS"
PRINTED = "printed"


def statistics_output(environ: Mapping[str, str] = os.environ) -> tuple[str, str | None]:
    """Return where statistics go, and what is wrong with the setting or None.

    ``han.rc.stats`` says it, else HAN_STATS. The place is PRINTED, the path of a JSON file, or ""
    for no statistics.
    """
    source, said = VARIABLE, environ.get(VARIABLE, "")
    if rc.stats is not None:
        source, said = "han.rc.stats", rc.stats
    text = str(said)
    truth = as_truth(text)
    if isinstance(truth, bool) or not text:
        return (PRINTED if truth else ""), None
    if text.endswith(".json"):
        return os.path.abspath(text), None  # the program may change its directory later
    return "", f"{source} = {text!r}: expected {TRUTHS}, or the path of a .json file"
