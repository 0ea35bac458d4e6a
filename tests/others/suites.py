"""The suites that run: where their tests come from, and on what they run."""

import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import sources

# The modules of mpi4py's tests that use no communicator, request, operation or buffer of han, or
# start processes of their own. Tests of `rma` and `rma_nb` require that a barrier moves MPI's
# one-sided messages, which han's does not: they hang, or wait for half a minute.
LEFT_OUT = (
    "address|cffi|ctypes|datatype|doc|environ|errorcode|exceptions|file|info|io|mpiabi|mpiapi|mpimem|"
    "package|session|spawn|dynproc|toplevel|ulfm|util_dtlib|util_pool|threads|rma|rma_nb"
)


@dataclass(frozen=True)
class Suite:
    """Tests of another project."""

    name: str
    kind: str  # "unittest" or "pytest"
    folder: Callable[[Path], Path]  # the tests' folder, from the one that has the environments
    environment: str  # a virtual environment; {mpi} stands for the library
    libraries: tuple[str, ...]
    ranks: dict[int, int]  # numbers of ranks, and how many parts of the tests each one runs
    left_out: str = ""

    def parts(self, library: str, ranks: int) -> list[int]:
        """Return the parts of the tests that a job runs: more on few ranks, as calls are fast."""
        sizes = [size for size, parts in self.ranks.items() for _ in range(parts)]
        turns = [(name, size) for name in self.libraries for size in sizes]
        return [k for k, turn in enumerate(turns) if turn == (library, ranks)]

    def modules(self, folder: Path, pattern: str) -> tuple[str, ...]:
        """Return the modules that a pattern names, or all but those left out."""
        names = sorted(path.stem for path in folder.glob("test_*.py"))
        if pattern:
            return tuple(n for n in names if re.fullmatch(pattern, n.removeprefix("test_")))
        return tuple(n for n in names if not re.fullmatch(self.left_out, n[len("test_") :]))


def _mpi4py(environments: Path) -> Path:
    return sources.unpacked("mpi4py", version("mpi4py")) / "test"


def _pylops(environments: Path) -> Path:
    python = environments / ".venv-pylops" / "bin" / "python"
    release = "from importlib.metadata import version; print(version('pylops-mpi'))"
    done = subprocess.run([python, "-c", release], capture_output=True, text=True, check=True)
    return sources.unpacked("pylops-mpi", done.stdout.strip()) / "tests"


ALL = {
    suite.name: suite
    for suite in (
        Suite("mpi4py", "unittest", _mpi4py, ".venv-{mpi}", ("mpich", "openmpi", "impi"),
              {1: 1, 2: 4, 3: 2, 5: 1}, LEFT_OUT),
        Suite("pylops-mpi", "pytest", _pylops, ".venv-pylops", ("mpich",), {3: 2}),
    )
}  # fmt: skip
