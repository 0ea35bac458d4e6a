"""Run Python in processes of its own."""

import os
import subprocess
import sys
from pathlib import Path


def python(
    *words: object, folder: Path | None = None, given: str | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run Python with some variables of the environment; return the finished process."""
    return subprocess.run(
        [sys.executable, *map(str, words)], capture_output=True, text=True, check=False,
        cwd=folder, env={**os.environ, **variables}, input=given,
    )  # fmt: skip


def printed(code: str) -> str:
    """Return what a program prints, which must succeed."""
    done = python("-c", code)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
