"""Errors that the program does not catch."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

from han.common.errors import ConfigError, HanError

PACKAGE = str(Path(__file__).parents[1]) + os.sep


_ended_by: list[BaseException] = []


def ended_by(error: BaseException) -> None:
    """Note which error ends the program, for one that runs the program's code itself."""
    _ended_by[:] = [error]


def uncaught() -> BaseException | None:
    """Return the error that ends the program, or None; used when the program ends.

    Python has printed it and passed it to nobody. An error that only a callback printed, or an
    error at a prompt, does not end the program. `sys.exit` counts after `watch_exit` only.
    """
    if _ended_by or hasattr(sys, "ps1"):
        return _ended_by[0] if _ended_by else None
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    trace = error.__traceback__ if error is not None else None
    caught = trace is not None and trace.tb_frame.f_back is not None
    return None if caught else error


class _Exit(SystemExit):
    """Raised by `sys.exit`: tells whether the program caught it.

    Python frees an error that nobody caught while no frame runs, and then ends the program.
    """

    def __del__(self) -> None:
        main = threading.current_thread() is threading.main_thread()
        if main and sys._getframe().f_back is None and self.code not in (None, 0):
            ended_by(SystemExit(self.code))


def watch_exit() -> None:
    """Let `sys.exit` count as an error that ends the program, unless its status is 0."""

    def leave(status: Any = None, /) -> NoReturn:
        raise _Exit(status)

    leave.__doc__ = sys.exit.__doc__
    sys.exit = leave


def print_briefly() -> None:
    """Print errors of han that the program does not catch without the frames inside han.

    If the program has an excepthook of its own, that one stays.
    """
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _hook


def print_once(error: ConfigError, rank: int) -> None:
    """Let only rank 0 print `error` if the program does not catch it.

    `rank` is this rank in the communicator whose ranks all raise the error. A program can catch
    the error as usual.
    """
    error.rank = rank
    print_briefly()


def _hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print an error of all ranks on rank 0 only, and errors that are not han's as Python does."""
    if not isinstance(error, HanError):
        sys.__excepthook__(kind, error, trace)
    elif not isinstance(error, ConfigError) or not error.rank:
        print(_text(error, trace), end="", file=sys.stderr, flush=True)


def _text(error: HanError, trace: TracebackType | None) -> str:
    """Return the traceback without han's own frames, and the error."""
    import traceback

    shown = traceback.TracebackException(type(error), error, trace)
    shown.stack[:] = [frame for frame in shown.stack if not frame.filename.startswith(PACKAGE)]
    return "".join(shown.format())
