"""The machine that emulates a cluster: its namespaces, their processes, and short commands."""

import contextlib
import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

TAG = re.compile(r"han-emulate-(?P<pid>\d+)-(?P<start>\d+)-\d+")
COMMAND_S = 20.0  # limit of one `ip`, `tc` or `mpiexec --version`
STOP_S = 10.0  # seconds until all processes of a cluster have ended


class EmulationError(RuntimeError):
    """This machine cannot emulate what is requested; the message says why."""


def run(arguments: Sequence[str]) -> str:
    """Run a short command, which Ctrl-C does not reach; return its output.

    Raises EmulationError if it fails or takes more than COMMAND_S seconds.
    """
    try:
        done = subprocess.run(
            arguments,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    except subprocess.TimeoutExpired as error:
        raise EmulationError(str(error)) from error
    if done.returncode:
        said = done.stderr.strip() or done.stdout.strip()
        raise EmulationError(f"{shlex.join(arguments)}: status {done.returncode}: {said}")
    return done.stdout


def ip(line: str) -> str:
    """Run `ip` with these arguments."""
    return run(["ip", *line.split()])


def namespaces(tag: str = "") -> list[str]:
    """Return the network namespaces of one emulated cluster, or of all."""
    names = [line.split()[0] for line in ip("netns list").splitlines() if line]
    return [n for n in names if (match := TAG.match(n)) and tag in ("", match[0])]


def start_time(pid: int) -> int | None:
    """Return when a process started, in clock ticks, or None if there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return int(stat.rpartition(")")[2].split()[19])


def stop(spaces: Sequence[str]) -> None:
    """End every process in these namespaces: SIGTERM first, then SIGKILL.

    Raises EmulationError if a process has not ended after STOP_S seconds.
    """
    began = time.monotonic()
    while pids := [int(p) for name in spaces for p in ip(f"netns pids {name}").split()]:
        elapsed = time.monotonic() - began
        if elapsed > STOP_S:
            raise EmulationError(f"processes {pids} have not ended after {STOP_S:g} s and SIGKILL")
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM if elapsed < 1 else signal.SIGKILL)
        time.sleep(0.1)
