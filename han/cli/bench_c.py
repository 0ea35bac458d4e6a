"""The command ``han bench-c``: han beside the MPI library, called from C."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from han.cli import options
from han.cli.common import check_files
from han.cli.executable import Executable
from han.cli.words import calls_of
from han.common.errors import ArgumentError, MissingLibraryError
from han.common.suggest import expect_known
from han.common.units import parse_sizes
from han.measure.modes import Mode

SOURCE = Path(__file__).parents[1] / "measure" / "bench.c"
COLLECTIVES = (
    "barrier", "bcast", "reduce", "allreduce", "gather", "scatter", "allgather", "alltoall",
    "reduce_scatter", "scan", "exscan", "gatherv", "scatterv", "allgatherv", "alltoallv",
    "neighbor_allgather", "neighbor_alltoall", "neighbor_alltoallv",
)  # fmt: skip

COMPILER, MOST_BYTES = "mpicc", 1 << 27
ELEMENT = 8  # bytes of the data of a number in a column, or of a structure


class Elements(str, Enum):
    """What moves: elements without gaps, one number of four, or structures with padding."""

    BYTES = "bytes"
    COLUMNS = "columns"
    STRUCTURES = "structures"


def bench_c(
    words: options.Calls = None,
    mode: Annotated[Mode, typer.Option(help="How the collectives are called.")] = Mode.BLOCKING,
    elements: Annotated[
        Elements, typer.Option(help="What moves in calls that combine nothing.")
    ] = Elements.BYTES,
    rounds: Annotated[int, typer.Option(min=1, max=101, help="Batches of each, in turns.")] = 9,
    time: options.Time = 0.3,
    config: options.Config = None,
    json_file: options.JsonFile = None,
) -> Executable:
    """Measure han beside the MPI library as C programs call them, in turns, in the same run.

    A program is compiled with mpicc, which must be that of the MPI library, and run on all ranks.
    Without names all collectives are measured that the program knows. A nonblocking or persistent
    call is timed from its start to the end of its wait; persistent ones need a library of MPI 4.
    Neighbours are those of a ring, as a distributed graph. A ratio is the library's time over
    han's, the median of the batches, with the least and the greatest one.

    \b
    Examples:
      mpiexec -n 4 han bench-c
      mpiexec -n 2 han bench-c allreduce,bcast 8:64KiB:8 --rounds 15 --json c.json
      mpiexec -n 2 han bench-c allreduce --mode persistent
      mpiexec -n 2 han bench-c gather,alltoall 8:32KiB:16 --elements columns
    """
    from han.config.rc import rc

    given = calls_of(words, COLLECTIVES, "8:64KiB:8")
    for name in given.names:
        expect_known("collective", name, COLLECTIVES)
    rc.config = config
    sizes = parse_sizes(given.sizes)
    if max(sizes) > MOST_BYTES:
        raise ArgumentError(f"{max(sizes)} bytes: a message or a block has at most 128 MiB")
    if elements is not Elements.BYTES and any(size % ELEMENT for size in sizes):
        raise ArgumentError(f"--elements {elements.value}: sizes are multiples of {ELEMENT} bytes")
    check_files(json_file)
    output = "" if json_file is None else str(json_file)
    how = (output, mode.value, elements.value, str(rounds), str(time))
    return Executable(_compiled(), ("bench", *how, *given.names, "--", *map(str, sizes)))


def _compiled() -> str:
    """Compile the program; return the path of a file of this process, which ends with it."""
    compiler = shutil.which(COMPILER)
    if compiler is None:
        raise MissingLibraryError(
            f"han bench-c needs {COMPILER}, the MPI library's compiler, on PATH: load the "
            "library's module, or install its package for developers"
        )
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "bench")
        done = subprocess.run(
            [compiler, "-O2", str(SOURCE), "-o", str(program), "-lm"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise MissingLibraryError(f"{COMPILER} cannot compile {SOURCE}: {done.stderr.strip()}")
        _expect_library(program, compiler)
        file = os.memfd_create("bench", 0)
        os.write(file, program.read_bytes())
    return f"/proc/self/fd/{file}"


def _expect_library(program: Path, compiler: str) -> None:
    """Raise MissingLibraryError if the program has another MPI library than mpi4py."""
    import mpi4py

    mpi4py.rc.initialize = False  # the program does it
    from mpi4py.MPI import Get_library_version

    done = subprocess.run([program, "library"], capture_output=True, text=True, check=False)
    names = [text.partition("\n")[0].strip(" \0") for text in (done.stdout, Get_library_version())]
    if names[0] != names[1]:
        raise MissingLibraryError(
            f"{compiler} compiles for {names[0] or done.stderr.strip()}, mpi4py has {names[1]}: "
            f"put the {COMPILER} of that library first on PATH"
        )
