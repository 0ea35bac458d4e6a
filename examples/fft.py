"""Transform a square grid by a 2-D FFT whose rows are distributed: one transposition, an alltoallv.

    mpiexec -n 4 python examples/fft.py --n 1024 --comm han

Each rank transforms its rows, sends to every rank the columns that this one will have as rows, and
transforms those. The result lies transposed, as most programs leave it.
"""

from __future__ import annotations

import itertools
from typing import Annotated

import numpy as np
import typer
from _common import (
    Check,
    CommKind,
    CommOption,
    CompareOption,
    ConfigOption,
    Done,
    How,
    JsonOption,
    Stopwatch,
    all_agree,
    conclude,
    part_of,
    run,
    starts_of,
)
from mpi4py import MPI

CHECK_UP_TO = 2048
"""Rows up to which the result is compared with NumPy's by default."""


def waves(n: int, seed: int) -> np.ndarray:
    """Return a grid of some plane waves and noise, the same on all ranks."""
    random = np.random.default_rng(seed)
    y, x = np.mgrid[:n, :n] / n
    grid = 0.1 * random.standard_normal((n, n))
    for ky, kx in random.integers(0, n // 2 + 1, (5, 2)):
        grid += np.cos(2 * np.pi * (ky * y + kx * x))
    return grid


class Transposition:
    """Makes rows of columns: each rank gets some columns of all rows."""

    def __init__(self, comm: MPI.Intracomm, n: int) -> None:
        self.comm, starts = comm, starts_of(n, comm.size)
        self.columns = [slice(a, b) for a, b in itertools.pairwise(starts)]
        lengths = np.diff(starts)
        self.rows = int(lengths[comm.rank])
        self.lengths = [int(k) for k in lengths]
        self.counts = [self.rows * k for k in self.lengths]  # as many go there as come from there
        self.sent = np.empty(self.rows * n, complex)
        self.taken = np.empty(self.rows * n, complex)

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """Return the rows of the transposed grid that this rank gets; collective."""
        np.concatenate([rows[:, columns].ravel() for columns in self.columns], out=self.sent)
        self.comm.Alltoallv([self.sent, self.counts], [self.taken, self.counts])
        ends = np.cumsum(self.counts)[:-1]
        blocks = np.split(self.taken, ends)
        parts = [
            b.reshape(length, self.rows).T for b, length in zip(blocks, self.lengths, strict=True)
        ]
        return np.concatenate(parts, axis=1)


def transform(
    comm: MPI.Intracomm, rows: np.ndarray, n: int, watch: Stopwatch, turns: int = 1
) -> np.ndarray:
    """Return this rank's rows of the transposed 2-D transform; collective."""
    turn, result = Transposition(comm, n), rows
    comm.Barrier()
    with watch("total"):
        for _ in range(turns):
            with watch("compute"):
                along = np.fft.fft(rows, axis=1)
            with watch("communicate"):
                columns = turn(along)
            with watch("compute"):
                result = np.fft.fft(columns, axis=1)
    return result


def is_right(comm: MPI.Intracomm, grid: np.ndarray, rows: np.ndarray) -> bool:
    """Tell whether all ranks' rows are those of NumPy's transform; collective."""
    expected = np.fft.fft2(grid).T[part_of(comm, len(grid))]
    return all_agree(comm, np.allclose(rows, expected, rtol=0, atol=1e-9 * grid.size))


def main(
    kind: CommOption = CommKind.HAN,
    config: ConfigOption = None,
    compare: CompareOption = 0,
    n: Annotated[int, typer.Option("--n", min=1, help="Rows and columns of the grid.")] = 512,
    turns: Annotated[int, typer.Option(min=1, help="Transforms, one after the other.")] = 5,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the grid.")] = 0,
    check: Annotated[
        bool | None,
        typer.Option(
            "--check/--no-check",
            help=f"Compare with numpy.fft.fft2; by default up to {CHECK_UP_TO} rows.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Transform a grid whose rows are distributed over the MPI ranks.

    Times are the slowest rank's, without the check. Exits with 1 if the check fails.
    """
    grid = waves(n, seed)
    wanted = n <= CHECK_UP_TO if check is None else check

    def work(comm: MPI.Intracomm) -> Done:
        mine = grid[part_of(comm, n)].astype(complex)
        watch = Stopwatch("total", "compute", "communicate")
        rows = transform(comm, mine, n, watch, turns)
        right = is_right(comm, grid, rows) if wanted else None
        return Done({"rows": n, "transforms": turns}, watch, right)

    check_name = Check("agrees_with_numpy", "the transform differs from NumPy's")
    conclude(work, check_name, How(kind, config, compare, as_json))


if __name__ == "__main__":
    run(main)
