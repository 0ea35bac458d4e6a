"""A line at exit, where HAN_TRACE is set and this process has traced nothing."""

from __future__ import annotations

import atexit
import os
import sys
import time
from pathlib import Path

from han.common.launcher import is_first

PARTS = "trace-*.json"  # the files in a folder of traces
COARSE = 1.0  # seconds by which times of files may be wrong


def watch() -> None:
    """At exit, after traces were written, tell that none was; on rank 0."""
    folder = os.environ.get("HAN_TRACE", "")
    if folder and is_first():
        atexit.register(_tell, Path(folder), os.getpid(), time.time() - COARSE)


def forget() -> None:
    """Tell nothing at exit: of commands, which need not trace anything."""
    atexit.unregister(_tell)


def _tell(folder: Path, process: int, since: float) -> None:
    failed = hasattr(sys, "last_value")  # the traceback says enough
    if process != os.getpid() or failed or _written(folder, since):
        return
    print(
        f"han: HAN_TRACE={folder}: no trace was written: this program ran no call of a han.Comm. "
        "To trace a program unchanged, start it with 'han run'",
        file=sys.stderr, flush=True,
    )  # fmt: skip


def _written(folder: Path, since: float) -> bool:
    try:
        return any(path.stat().st_mtime >= since for path in folder.glob(PARTS))
    except OSError:
        return True  # nothing is known
