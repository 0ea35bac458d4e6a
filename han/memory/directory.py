"""The folder of shared memory."""

from __future__ import annotations

import os


def directory() -> str:
    """Return the folder in which files of shared memory are made."""
    return os.environ.get("HAN_SHM_DIR", "/dev/shm")
