"""Whole jobs under mpiexec, for programs whose processes end in some particular way."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

import pytest
from _support import SECONDS

LONGEST = 100  # seconds of a job: some launchers take long on a busy machine


def job(folder, source, ranks, *before):
    """Run a program under mpiexec in a session of its own; return its status, output, seconds.

    `before` are words of the command before the interpreter. Kills a job that takes too long, and
    asserts that the job leaves no process and no shared memory.
    """
    script = folder / "job.py"
    script.write_text(source)
    token = f"HAN_TEST_JOB={uuid.uuid4()}"
    shared = Path(tempfile.mkdtemp(dir="/dev/shm"))  # for this job only
    environment = {
        **os.environ,
        "HAN_TEST_JOB": token.partition("=")[2],
        "HAN_TEST_FOLDER": str(folder),
        "HAN_SHM_DIR": str(shared),
    }
    command = [shutil.which("mpiexec"), "-n", str(ranks), *before, sys.executable, str(script)]
    begun = time.monotonic()
    with open(folder / "output", "w+") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, env=environment, start_new_session=True
        )
        try:
            process.wait(LONGEST)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            pytest.fail("the job did not end: " + (folder / "output").read_text()[-2000:])
    seconds = time.monotonic() - begun
    deadline = time.monotonic() + SECONDS
    while strays(token) and time.monotonic() < deadline:
        time.sleep(0.1)
    left = strays(token)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    remains = [path.name for path in shared.iterdir()]
    shutil.rmtree(shared)
    assert not left
    assert not remains
    return process.returncode, (folder / "output").read_text(), seconds


def launch(folder, ranks, *arguments, **variables):
    """Run Python on all ranks in a folder; return the finished mpiexec."""
    command = [shutil.which("mpiexec"), "-n", str(ranks), sys.executable, *map(str, arguments)]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=LONGEST,
        env={**os.environ, **variables}, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def strays(token):
    """Return the processes that have `token` in their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if token.encode() in (path / "environ").read_bytes():
                found.append(int(path.name))
    return found


PRELUDE = """
import os, signal, sys, time
from pathlib import Path
import numpy as np
from mpi4py import MPI
import han

folder = Path(os.environ["HAN_TEST_FOLDER"])
rank = MPI.COMM_WORLD.rank

def note(text):
    with open(folder / f"rank{rank}", "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
"""
