"""Uncaught errors that all ranks raise: only one rank prints them."""

from __future__ import annotations

import sys
from pathlib import Path
from types import TracebackType

from han.common.errors import ConfigError

PACKAGE = str(Path(__file__).parents[1])


def print_once(error: ConfigError, rank: int) -> None:
    """Let only rank 0 print `error` if the program does not catch it.

    `rank` is this rank in the communicator whose ranks all raise the error. A program can catch
    the error as usual. If it has an excepthook of its own, that one stays.
    """
    error.rank = rank
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _hook


def _hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print an error of all ranks on rank 0 only, any other error as Python does."""
    if not isinstance(error, ConfigError) or error.rank is None:
        sys.__excepthook__(kind, error, trace)
    elif error.rank == 0:
        print(_text(error, trace), file=sys.stderr, flush=True)


def _text(error: ConfigError, trace: TracebackType | None) -> str:
    """Return the traceback without han's own frames, and the error."""
    import traceback

    frames = [f for f in traceback.extract_tb(trace) if not f.filename.startswith(PACKAGE)]
    lines = ["Traceback (most recent call last):\n", *traceback.format_list(frames)]
    return f"{''.join(lines)}han.{type(error).__name__}: {error}"
