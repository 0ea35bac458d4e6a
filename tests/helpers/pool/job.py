"""One mpiexec whose ranks answer requests over a socket."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from pool import ADDRESS, Request

START_LIMIT = 120.0  # seconds until all ranks are connected
STOP_LIMIT = 20.0  # seconds for MPI to finalize
GRACE = 10.0  # seconds for the other ranks once one has failed or ended
SHOWN = 4000  # characters of a job's output


class JobError(Exception):
    """Not all ranks of a job have started."""


@dataclass
class Answers:
    """The answers by rank, in the order of arrival, and the reason why others are missing."""

    by_rank: dict[int, Any] = field(default_factory=dict)
    missing: str = ""


def nothing_failed(answer: Any) -> bool:
    """Return False: no answer is a failure."""
    return False


class Job:
    """The ranks of one mpiexec, which sleep while they wait for requests."""

    def __init__(self, ranks: int, command: Sequence[str], show: bool = False) -> None:
        self.ranks, self.show = ranks, show
        self._folder = tempfile.TemporaryDirectory(prefix="han-pool-", dir="/tmp")
        self._output = Path(self._folder.name) / "output"
        self._address = str(Path(self._folder.name) / "socket")
        self._connections: dict[Connection, int] = {}
        self._pids: dict[int, int] = {}
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(self._address)
            listener.listen(ranks)
            listener.settimeout(0.2)
            self._process = self._start(command)
            try:
                self._accept(listener)
            except BaseException:
                self.kill()
                raise

    def _start(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        launcher = shutil.which("mpiexec") or "mpiexec"
        with self._output.open("wb") as output:
            return subprocess.Popen(
                [launcher, "-n", str(self.ranks), *command],
                env={**os.environ, ADDRESS: self._address, "PYTHONPATH": _python_path()},
                stdin=subprocess.DEVNULL,
                stdout=None if self.show else output,
                stderr=None if self.show else output,
                start_new_session=True,
            )

    def _accept(self, listener: socket.socket) -> None:
        """Wait until each rank has connected and sent its rank and process number."""
        deadline = time.monotonic() + START_LIMIT
        while len(self._connections) < self.ranks:
            with contextlib.suppress(TimeoutError):
                connection = Connection(listener.accept()[0].detach())
                rank, pid = connection.recv()
                self._connections[connection], self._pids[rank] = rank, pid
            if self._process.poll() is not None or time.monotonic() > deadline:
                came = sorted(self._pids)
                raise JobError(f"of {self.ranks} ranks only {came} connected\n{self.output()}")

    def output(self) -> str:
        """Return the end of the job's output that pytest has not captured."""
        text = "" if self.show else self._output.read_text(errors="replace").strip()
        return text if len(text) <= SHOWN else "..." + text[-SHOWN:]

    def ask(
        self, request: Request, limit: float, failed: Callable[[Any], bool] = nothing_failed
    ) -> Answers:
        """Send a request to all ranks and collect their answers.

        The ranks have `limit` seconds to answer. After one of them has `failed` or ended, the
        others have at most GRACE seconds.
        """
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.send(request)
        answers, waiting, ended = Answers(), dict(self._connections), []
        deadline = time.monotonic() + limit
        while waiting:
            ready = wait(list(waiting), max(0.0, deadline - time.monotonic()))
            if not ready:
                break
            for connection in [each for each in waiting if each in ready]:
                rank, bad = waiting.pop(connection), True
                try:
                    answers.by_rank[rank] = connection.recv()
                    bad = failed(answers.by_rank[rank])
                except (EOFError, OSError):
                    ended.append(rank)
                if bad:
                    deadline = min(deadline, time.monotonic() + GRACE)
        if ended:  # let the launcher end, which says why a rank has ended
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(GRACE)
        answers.missing = _why(ended, sorted(waiting.values()), limit, bool(answers.by_rank))
        return answers

    def stop(self) -> int | None:
        """Let MPI finalize; return the exit status of mpiexec, or None if it did not end."""
        self.ask(Request("stop"), STOP_LIMIT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_LIMIT)
        status = self._process.poll()
        self.kill()
        return status

    def kill(self) -> None:
        """End all processes of the job, and close what belongs to it."""
        if self._process.poll() is None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(5)
        for pid in self._pids.values():
            if self._is_ours(pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for connection in self._connections:
            connection.close()
        self._folder.cleanup()

    def _is_ours(self, pid: int) -> bool:
        """Return whether a process is a rank of this job, and not a later process of its number."""
        with contextlib.suppress(OSError):
            return self._address.encode() in Path(f"/proc/{pid}/environ").read_bytes()
        return False


def _python_path() -> str:
    """Return a PYTHONPATH that contains this package."""
    here = str(Path(__file__).resolve().parents[1])
    return os.pathsep.join([here, *filter(None, [os.environ.get("PYTHONPATH")])])


def _why(ended: Sequence[int], silent: Sequence[int], limit: float, some: bool) -> str:
    """Return the reason why answers are missing, or "" if none is."""
    parts = []
    if ended:
        parts.append(f"rank(s) {_listed(ended)} ended")
    if silent and (ended or some):
        parts.append(f"rank(s) {_listed(silent)} did not finish")
    elif silent:
        parts.append("no rank finished")
    return f"{', '.join(parts)} (time limit: {limit:g} s)" if parts else ""


def _listed(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks))
