"""Run a user's program as Python does, with MPI's communicators replaced by han's."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType

from han.cli.after_import import after_import
from han.common.library import require_mpi

MODULE, CODE, STDIN = "-m", "-c", "-"
RUNNERS = (__file__, runpy.__file__, "<frozen runpy>")  # whose functions run the program


@dataclass(frozen=True)
class Program:
    """A program to run: ``words`` are a file, ``-m module``, ``-c code`` or ``-``, and arguments.

    The words are those that Python takes.
    """

    words: tuple[str, ...]

    def run(self) -> None:
        """Run the program; its exceptions and its SystemExit pass through.

        MPI's communicators are replaced when the program first imports mpi4py's MPI, so the
        program may change ``mpi4py.rc`` before.
        """
        sys.stdout = sys.__stdout__  # a command prints on rank 0 only, a program on all ranks
        after_import("mpi4py.MPI", _install)
        try:
            _run(self.words)
        except BaseException as error:
            _hide_frames(error)
            raise


def _install() -> None:
    from han.installed import install_at_import

    install_at_import()


def _run(words: Sequence[str]) -> None:
    try:
        run_code(words)
    except (ImportError, RuntimeError) as error:
        if "mpi4py" in (getattr(error, "name", None) or "") or "MPI library" in str(error):
            require_mpi()  # raises the error that says how to install the library
        raise


def _hide_frames(error: BaseException) -> None:
    """Let Python print an error that ends the program without the frames that run the program.

    Python adds a frame for each function that the error leaves, so they are cut off when it is
    printed. The program may have set ``sys.excepthook``, which then gets the shorter traceback.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename in RUNNERS:
        trace = trace.tb_next
    hook = sys.excepthook

    def cut(kind: type[BaseException], ended: BaseException, full: TracebackType | None) -> None:
        if ended is not error:
            hook(kind, ended, full)
            return
        try:
            hook(kind, ended.with_traceback(trace), trace)
        finally:
            ended.__traceback__ = full  # it tells that nobody has caught the error

    sys.excepthook = cut


def run_code(words: Sequence[str]) -> None:
    """Run the user's code in this process as ``__main__``. No other function runs any of it."""
    kind, *rest = words
    if kind == MODULE:
        sys.argv[:] = rest
        _put_first(os.getcwd())
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif kind in (CODE, STDIN):
        text = rest.pop(0) if kind == CODE else sys.stdin.read()
        sys.argv[:] = [kind, *rest]
        _put_first("")
        _run_text(text, "<string>" if kind == CODE else "<stdin>")
    else:
        sys.argv[:] = words
        _put_first(os.path.dirname(os.path.realpath(kind)))
        runpy.run_path(kind, run_name="__main__")


def _run_text(text: str, filename: str) -> None:
    code = compile(text, filename, "exec", 0, True)
    runpy._run_module_code(code, mod_name="__main__", script_name=sys.argv[0])  # type: ignore[attr-defined]


def _put_first(folder: str) -> None:
    """Replace the first folder of ``sys.path``, that of the command, by that of the program."""
    if not sys.flags.isolated and not getattr(sys.flags, "safe_path", False):
        sys.path[0] = folder
