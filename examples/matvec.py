"""Find the largest eigenvalue of a dense matrix by the power method: an allgatherv a product.

    mpiexec -n 4 python examples/matvec.py --n 1024 --compare 9

Each rank has a block of rows. It multiplies them by the vector, and the ranks gather the parts of
the product, which is the next vector up to its length.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

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

CHECK_UP_TO = 1024
"""Rows up to which the eigenvalue is compared with NumPy's by default."""


class Dominant(NamedTuple):
    """The largest eigenvalue, and its eigenvector of length one."""

    value: float
    vector: np.ndarray


def symmetric(n: int, seed: int) -> np.ndarray:
    """Return a symmetric matrix of positive numbers, the same on all ranks."""
    half = np.random.default_rng(seed).random((n, n))
    return half + half.T


def power(
    comm: MPI.Intracomm, rows: np.ndarray, steps: int, watch: Stopwatch
) -> Dominant:  # fmt: skip
    """Return what so many products lead to, from a vector of equal numbers; collective."""
    n = rows.shape[1]
    counts = np.diff(starts_of(n, comm.size)).tolist()
    mine, vector, length = np.empty(len(rows)), np.full(n, n**-0.5), 1.0
    comm.Barrier()
    with watch("total"):
        for _ in range(steps):
            with watch("compute"):
                np.matmul(rows, vector, out=mine)
            with watch("communicate"):
                comm.Allgatherv(mine, [vector, counts])
            with watch("compute"):
                length = float(np.linalg.norm(vector))
                vector /= length
    return Dominant(length, vector)


def is_right(comm: MPI.Intracomm, matrix: np.ndarray, found: Dominant) -> bool:
    """Tell whether all ranks have NumPy's eigenvalue, and a vector that fits it; collective."""
    expected = np.linalg.eigvalsh(matrix)[-1]
    error = np.abs(matrix @ found.vector - found.value * found.vector).max()
    close = np.isclose(found.value, expected, rtol=1e-9) and error <= 1e-9 * expected
    return all_agree(comm, close)


def main(
    kind: CommOption = CommKind.HAN,
    config: ConfigOption = None,
    compare: CompareOption = 0,
    n: Annotated[int, typer.Option("--n", min=1, help="Rows and columns of the matrix.")] = 512,
    steps: Annotated[int, typer.Option(min=1, help="Products.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the matrix.")] = 0,
    check: Annotated[
        bool | None,
        typer.Option(
            "--check/--no-check",
            help=f"Compare with numpy.linalg.eigvalsh; by default up to {CHECK_UP_TO} rows.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Multiply a vector by a matrix whose rows are distributed over the MPI ranks, many times.

    Times are the slowest rank's, without the check. Exits with 1 if the check fails.
    """
    matrix = symmetric(n, seed)
    wanted = n <= CHECK_UP_TO if check is None else check

    def work(comm: MPI.Intracomm) -> Done:
        watch = Stopwatch("total", "compute", "communicate")
        found = power(comm, matrix[part_of(comm, n)], steps, watch)
        right = is_right(comm, matrix, found) if wanted else None
        return Done({"rows": n, "products": steps, "eigenvalue": found.value}, watch, right)

    check_name = Check("agrees_with_numpy", "the eigenvalue differs from NumPy's")
    conclude(work, check_name, How(kind, config, compare, as_json))


if __name__ == "__main__":
    run(main)
