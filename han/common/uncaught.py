"""An error that all ranks raise alike: one rank prints it, if the program does not catch it."""

from __future__ import annotations

import sys
from pathlib import Path
from types import TracebackType

from han.common.errors import ConfigError

PACKAGE = str(Path(__file__).parents[1])


def print_once(error: ConfigError, rank: int) -> None:
    """Let only rank 0 print `error` where no rank catches it.

    `rank` is this rank in the communicator whose ranks have all raised the error. The error can be
    caught as usual on every rank. A program that has an excepthook of its own keeps it.
    """
    error.rank = rank
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _hook


def _hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print an error that all ranks have raised on rank 0, any other as Python does."""
    if not isinstance(error, ConfigError) or error.rank is None:
        sys.__excepthook__(kind, error, trace)
    elif error.rank == 0:
        print(_text(error, trace), file=sys.stderr, flush=True)


def _text(error: ConfigError, trace: TracebackType | None) -> str:
    """Return the traceback without the frames inside han, and the error."""
    import traceback

    frames = [f for f in traceback.extract_tb(trace) if not f.filename.startswith(PACKAGE)]
    lines = ["Traceback (most recent call last):\n", *traceback.format_list(frames)]
    return f"{''.join(lines)}han.{type(error).__name__}: {error}"
