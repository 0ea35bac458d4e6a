"""Install a wheel where there is no compiler, and run programs with it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FIRST = re.compile(r"^```python [^\n]*file=first\.py$(.*?)^```$", re.M | re.S)  # in the README
RANKS = 4
UNCHANGED = f"""
from mpi4py import MPI

comm = MPI.COMM_WORLD
assert comm.allreduce(comm.rank) == {RANKS * (RANKS - 1) // 2}
assert type(comm).__module__.startswith("han."), type(comm)
"""
COMPILERS = ("cc", "gcc", "clang", "c++")
# What the tests below need besides han, as han-collectives[test] names it
FOR_TESTS = ("pytest>=7.4", "pytest-isolate-mpi>=0.4", "hypothesis>=6.80", "setuptools>=77")
TESTS = (
    ("tests/message",),
    ("-m", "mpi", "tests/mpi/test_forms.py", "tests/mpi/test_objects.py"),
)


@dataclass(frozen=True)
class Times:
    """Seconds that parts of a trial took."""

    install: float
    first: float
    run: float

    def __str__(self) -> str:
        return (
            f"installed in {self.install:.1f} s; on {RANKS} ranks first.py {self.first:.1f} s, "
            f"han run {self.run:.1f} s"
        )


class Trial:
    """A new environment whose commands are all that PATH holds: without a compiler."""

    def __init__(self, python: Path, folder: Path) -> None:
        self._bin = folder / "env" / "bin"
        self._folder = folder
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([python, "-m", "venv", folder / "env"], check=True)
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "HAN_"))}
        self._environment = {**kept, "PATH": str(self._bin)}
        found = [name for name in COMPILERS if shutil.which(name, path=str(self._bin))]
        assert not found, f"compilers in the environment: {found}"

    def run(self, wheel: Path) -> Times:
        """Install the wheel with MPICH, and run the README's first program and ``han run``."""
        first = FIRST.search((ROOT / "README.md").read_text())
        assert first, "README.md has no first.py"
        (self._folder / "first.py").write_text(first[1])
        (self._folder / "unchanged.py").write_text(UNCHANGED)
        start = ("mpiexec", "-n", str(RANKS))
        return Times(
            self._timed("pip", "install", "-q", f"{wheel.absolute()}[mpich]"),
            self._timed(*start, "python", "first.py"),
            self._timed(*start, "han", "run", "unchanged.py"),
        )

    def test(self) -> float:
        """Run some of han's tests with the installed wheel, on two ranks; return the seconds."""
        shutil.copytree(ROOT / "tests", self._folder / "tests")  # away from the checkout's han
        shutil.copy(ROOT / "pyproject.toml", self._folder)
        seconds = self._timed("pip", "install", "-q", *FOR_TESTS)
        for words in TESTS:
            seconds += self._timed("pytest", "-q", *words, HAN_TEST_RANKS="2")
        return seconds

    def _timed(self, name: str, *words: str, **variables: str) -> float:
        """Run a command of the environment, which must succeed; return the seconds it took."""
        begun = time.monotonic()
        done = subprocess.run(
            [self._bin / name, *words], check=False, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            cwd=self._folder, env={**self._environment, **variables},
        )  # fmt: skip
        if done.returncode:
            raise SystemExit(f"{done.stdout[-4000:]}\nfailed: {name} {' '.join(words)}")
        return time.monotonic() - begun
