"""Run a user's program as Python does, with MPI's communicators replaced by han's."""

from __future__ import annotations

import builtins
import importlib.util
import os
import runpy
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from io import open_code
from pkgutil import get_importer, read_code
from types import CodeType, ModuleType, TracebackType
from typing import Any

from han.common.library import require_mpi

MODULE, CODE, STDIN = "-m", "-c", "-"
RUNNERS = (__file__, runpy.__file__, "<frozen runpy>")  # whose functions run the program
_commands: list[ModuleType] = []  # the __main__ of the command, whose names must stay


@dataclass(frozen=True)
class UserProgram:
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
    require_mpi()  # mpi4py may be too old
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
    """Run the user's code in this process as ``__main__``. No other function runs any of it.

    As under ``python``, the module stays ``__main__`` for threads and functions at exit.
    """
    kind, *rest = words
    main = _new_main()
    if kind == MODULE:
        sys.argv[:] = rest
        _put_first(os.getcwd())
        runpy._run_module_as_main(rest[0])  # type: ignore[attr-defined]
    elif kind in (CODE, STDIN):
        text = rest.pop(0) if kind == CODE else sys.stdin.read()
        sys.argv[:] = [kind, *rest]
        _put_first("")
        name = "<string>" if kind == CODE else "<stdin>"
        exec(compile(text, name, "exec", 0, True), main.__dict__)
    elif get_importer(kind) is not None:  # a folder or an archive with __main__.py
        sys.argv[:] = words
        _put_first(os.path.abspath(kind))
        runpy._run_module_as_main("__main__", alter_argv=False)  # type: ignore[attr-defined]
    else:
        sys.argv[:] = words
        _put_first(os.path.dirname(os.path.realpath(kind)))
        path = main.__file__ = os.path.abspath(kind)
        main.__dict__["__cached__"] = None
        main.__loader__ = SourceFileLoader("__main__", path)
        exec(_code_of(path), main.__dict__)


def _new_main() -> ModuleType:
    """Put an empty module in the place of the command's ``__main__``."""
    main = ModuleType("__main__")
    main.__dict__.update(__builtins__=builtins, __annotations__={})
    _commands.append(sys.modules["__main__"])
    sys.modules["__main__"] = main
    return main


def _code_of(path: str) -> CodeType:
    """Return the code of a file of source text or of compiled code."""
    with open_code(path) as file:
        code: CodeType | None = read_code(file)
    if code is not None:
        return code
    with open_code(path) as file:
        return compile(file.read(), path, "exec", 0, True)


def _put_first(folder: str) -> None:
    """Replace the first folder of ``sys.path``, that of the command, by that of the program."""
    if not sys.flags.isolated and not getattr(sys.flags, "safe_path", False):
        sys.path[0] = folder


# ---- after an import ---------------------------------------------------------------------------


def after_import(name: str, act: Callable[[], None]) -> None:
    """Call `act` once, now if the module `name` is there, else when it is first imported."""
    if name in sys.modules:
        act()
        return
    package = name.rpartition(".")[0]
    if package and importlib.util.find_spec(package) is not None:
        importlib.import_module(package)  # it may add finders, behind which ours must not stand
    sys.meta_path.insert(0, _Finder(name, act))


class _Finder(MetaPathFinder):
    """Finds one module as the other finders do, and acts once it is loaded."""

    def __init__(self, name: str, act: Callable[[], None]) -> None:
        self._name, self._act = name, act

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            self._act_after(spec.loader)
        return spec

    def _act_after(self, loader: Any) -> None:
        """Let a loader, which loads this module only, act after it has run the module's code."""
        run = loader.exec_module

        def run_and_act(module: ModuleType) -> None:
            run(module)
            self._act()

        loader.exec_module = run_and_act
