"""Progress bars of long commands, drawn by rank 0 on the user's terminal."""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING

from han.cli.common import rank
from han.common.system import text_of

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

# Programs between a rank and the terminal, which pass on a rank's output through pipes.
LAUNCHERS = {
    "mpiexec", "mpiexec.hydra", "mpirun", "mpirun.hydra", "hydra_pmi_proxy", "hydra_bstrap_pro",
    "prterun", "prted", "prte", "orterun", "orted", "srun", "slurmstepd",
}  # fmt: skip

Advance = Callable[[], None]


@contextlib.contextmanager
def progress(total: int, what: str = "measuring") -> Iterator[Advance]:
    """Yield a function to call after each of `total` steps. Rank 0 shows a bar on a terminal.

    The bar is drawn only in these calls, so that it does not disturb measurements between them.
    """
    with phases() as tell:
        tell(what, 0, total)
        done = itertools.count(1)
        yield lambda: tell(what, next(done), total)


class Bars:
    """A bar for each phase. They are drawn only in calls, and can be hidden between them.

    None stands for bars that nobody sees.
    """

    def __init__(self, bars: Progress | None) -> None:
        self._bars = bars
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, phase: str, done: int, total: int) -> None:
        """Draw the bars with the steps done and all steps of a phase."""
        if self._bars is None:
            return
        if phase not in self._tasks:
            self._tasks[phase] = self._bars.add_task(phase)
        self._bars.update(self._tasks[phase], completed=done, total=total)
        self._bars.start()
        self._bars.refresh()

    def hide(self) -> None:
        """Clear the bars, so that a line can be printed, until the next call."""
        if self._bars is not None:
            self._bars.stop()


@contextlib.contextmanager
def phases() -> Iterator[Bars]:
    """Yield a function of the phase, the steps done and all steps, which draws on a terminal."""
    with contextlib.ExitStack() as stack:
        file = None if rank() else stack.enter_context(terminal())
        if file is None:
            yield Bars(None)
            return
        from rich.console import Console
        from rich.progress import Progress

        console = Console(file=file, force_terminal=True)
        bars = Progress(console=console, transient=True, auto_refresh=False)
        yield Bars(stack.enter_context(bars))


@contextlib.contextmanager
def terminal() -> Iterator[IO[str] | None]:
    """Yield standard error if it is a terminal, else the terminal of the launcher, or None."""
    if sys.stderr.isatty():
        yield sys.stderr
        return
    path = launchers_terminal()
    if path is None:
        yield None
        return
    with path.open("w") as file:
        yield file


def launchers_terminal(pid: int | None = None, proc: Path = Path("/proc")) -> Path | None:
    """Return the terminal that the launcher of a process prints errors to, if it is on this node.

    Follows the parents of `pid`, by default of this process, as long as they are launchers.
    """
    pid, found = _parent(os.getpid() if pid is None else pid, proc), None
    while pid and text_of(proc / str(pid) / "comm") in LAUNCHERS:
        with contextlib.suppress(OSError):
            found = (proc / str(pid) / "fd" / "2").readlink()
        pid = _parent(pid, proc)
    if found is None or not str(found).startswith(("/dev/pts/", "/dev/tty")):
        return None
    return found if os.access(found, os.W_OK) else None


def _parent(pid: int, proc: Path) -> int:
    fields = text_of(proc / str(pid) / "stat").rpartition(")")[2].split()
    return int(fields[1]) if fields else 0
