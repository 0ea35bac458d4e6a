"""Files that are there as a whole or not at all, whoever else writes or fails meanwhile."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

LIMIT = 10.0  # seconds to wait for a lock
PAUSE = 0.01  # seconds between two tries


def write_whole(path: Path, content: str | bytes, mode: int = 0o644) -> None:
    """Replace a file in one step; raises OSError and leaves the old file if it cannot."""
    data = content if isinstance(content, bytes) else content.encode()
    handle, draft = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(draft, mode)
        os.replace(draft, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(draft)
        raise


def write_output(path: Path, content: str | bytes) -> None:
    """Write a file that the user named, as `write_whole` does if it can be replaced.

    A file keeps its mode, a link its place. Pipes, devices and files in a folder that takes no new
    files are written where they are. Raises OSError.
    """
    fixed = path.exists() and not (path.is_file() and os.access(path.resolve().parent, os.W_OK))
    if fixed:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return
    path = Path(os.path.realpath(path))
    mode = path.stat().st_mode if path.exists() else 0o666 & ~_umask()
    write_whole(path, content, stat.S_IMODE(mode))


def _umask() -> int:
    """Return the mask of new files, which can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder; raises TimeoutError if others hold it for LIMIT seconds."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        until = time.monotonic() + LIMIT
        while not _locked(handle):
            if time.monotonic() > until:
                raise TimeoutError(f"another process holds the lock of {folder} for {LIMIT:g} s")
            time.sleep(PAUSE)
        yield
    finally:
        os.close(handle)


def _locked(handle: int) -> bool:
    """Try to take a lock; a file system without locks has none that others hold."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True
