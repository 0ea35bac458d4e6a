"""Programs that are not Python's: what lets their MPI calls reach han."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from han.common.errors import ArgumentError, MissingLibraryError
from han.config.rc import VARIABLES, rc

ELF, SCRIPT = b"\x7fELF", b"#!"
MAPPED = ("config", "stats")  # settings of `han run`, which the program gets as variables


def found(word: str) -> str | None:
    """Return the path of an executable that is no Python program, or None.

    As for a shell, a word without a slash may also name a program in a folder of PATH. Raises
    ArgumentError if a file is a program that may not be executed.
    """
    path = word if os.path.isfile(word) else shutil.which(word)
    if path is None or not os.access(path, os.R_OK):
        return None
    with open(path, "rb") as file:
        first = file.readline(256)
    if first.startswith(ELF) and not os.access(path, os.X_OK):
        raise ArgumentError(f"{path} is a program that may not be executed: chmod +x {path}")
    if not os.access(path, os.X_OK):
        return None
    native = first.startswith(ELF) or (first.startswith(SCRIPT) and b"python" not in first)
    return os.path.abspath(path) if native else None


def settings() -> dict[str, str]:
    """Return the variables with which an MPI program uses han.

    Raises MissingLibraryError if the door was not built, or Python has no shared library.
    """
    folder = Path(__file__).parents[1]
    built = (folder / f"_door{suffix}" for suffix in EXTENSION_SUFFIXES)
    door = next((path for path in built if path.exists()), None)
    if door is None:
        raise MissingLibraryError(f"{folder} has no _door library: install han again")
    return {
        "LD_PRELOAD": str(door),
        "HAN_PRELOAD_PYTHON": sys.executable,
        "HAN_PRELOAD_LIBPYTHON": str(_libpython()),
    }


def _libpython() -> Path:
    """Return Python's shared library."""
    named = sysconfig.get_config_vars("LIBDIR", "MULTIARCH", "INSTSONAME", "LDLIBRARY")
    folder, architecture, *names = (str(one or "") for one in named)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    for name in (*names, f"libpython{version}.so.1.0"):
        for place in (Path(folder), Path(folder, architecture), Path(sys.base_prefix, "lib")):
            if ".so" in name and (place / name).is_file():
                return place / name
    raise MissingLibraryError(
        f"C and Fortran programs need Python's shared library, and {folder} has no "
        f"libpython{version}.so: install it (Debian, Ubuntu: apt install libpython{version}; "
        "pyenv: PYTHON_CONFIGURE_OPTS=--enable-shared pyenv install)"
    )


def joined(environ: Mapping[str, str]) -> dict[str, str]:
    """Return an environment with the settings; other libraries stay preloaded, behind han's."""
    added = settings()
    before = environ.get("LD_PRELOAD", "")
    if before:
        added["LD_PRELOAD"] += f":{before}"
    given = {VARIABLES[name]: getattr(rc, name) for name in MAPPED}
    said = {name: "1" if value is True else str(value) for name, value in given.items() if value}
    return {**environ, **added, **said}


@dataclass(frozen=True)
class Executable:
    """A program to run in the place of this process: its path, and its words."""

    path: str
    words: tuple[str, ...]

    def run(self) -> None:
        """Replace this process by the program; its collectives reach han."""
        os.execve(self.path, self.words, joined(os.environ))
