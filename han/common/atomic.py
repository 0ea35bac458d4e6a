"""Files that are there as a whole or not at all, whoever else writes or fails meanwhile."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

LIMIT = 10.0  # seconds to wait for a lock
PAUSE = 0.01  # seconds between two tries


def write_whole(path: Path, text: str) -> None:
    """Replace a file by a text in one step; raises OSError and leaves the old file if it cannot."""
    handle, draft = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(draft, 0o644)
        os.replace(draft, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(draft)
        raise


@contextlib.contextmanager
def alone_in(folder: Path, limit: float = LIMIT) -> Iterator[None]:
    """Hold the lock of a folder; raises TimeoutError if others hold it for `limit` seconds."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _lock(handle, folder, limit)
        yield
    finally:
        os.close(handle)


def _lock(handle: int, folder: Path, limit: float) -> None:
    until = time.monotonic() + limit
    while not _locked(handle):
        if time.monotonic() > until:
            raise TimeoutError(f"another process holds the lock of {folder} for {limit:g} s")
        time.sleep(PAUSE)


def _locked(handle: int) -> bool:
    """Try to take a lock; a file system without locks has none that others hold."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True
