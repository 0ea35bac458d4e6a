"""Find the Pythons of this machine."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROBE = """
import importlib.util, json, os, sys, sysconfig
print(json.dumps({
    "name": "python{}.{}".format(*sys.version_info) + sys.abiflags,
    "suffix": sysconfig.get_config_var("EXT_SUFFIX"),
    "headers": os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")),
    "pip": importlib.util.find_spec("ensurepip") is not None,
}))
"""


@dataclass(frozen=True)
class Python:
    """An interpreter that can build: its name, its file, and how names of its modules end."""

    name: str
    path: Path
    suffix: str


def find(name: str) -> Python | str:
    """Return an interpreter of this name, or why there is none that can build."""
    reason = "not on this machine"
    for path in _places(name):
        told = _ask(path)
        if told is None or told["name"] != name:
            continue
        if told["headers"] and told["pip"]:
            return Python(name, path, told["suffix"])
        reason = f"{path} has no {'pip' if told['headers'] else 'Python.h'}"
    return reason


def _places(name: str) -> Iterator[Path]:
    """Yield files of this name: on PATH, then of pyenv."""
    folders = [Path(folder) for folder in os.get_exec_path()]
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    folders += sorted((root / "versions").glob("*/bin"), reverse=True)
    yield from (folder / name for folder in folders if (folder / name).is_file())


def _ask(path: Path) -> dict[str, str] | None:
    """Return what an interpreter says of itself; None if it does not run, as pyenv's may not."""
    done = subprocess.run([path, "-c", PROBE], capture_output=True, text=True, check=False)
    return json.loads(done.stdout) if done.returncode == 0 else None
