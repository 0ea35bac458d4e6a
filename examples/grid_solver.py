"""Solve a system on a 3-D grid by conjugate gradients, rows distributed: allgatherv and allreduce.

    mpiexec -n 4 python examples/grid_solver.py --side 32 --comm han

The matrix is the discrete Laplacian that SciPy makes. Each rank has some rows of the matrix and of
the vectors. A product needs the whole vector, which the ranks gather.
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
from scipy.sparse import csr_matrix, diags, identity, kron
from scipy.sparse.linalg import spsolve

TOLERANCE = 1e-8
CHECK_UP_TO = 20
"""Side of the grid up to which the solution is compared with SciPy's by default."""


class Solution(NamedTuple):
    """This rank's part of the solution, and how it was found."""

    part: np.ndarray
    steps: int
    residual: float


def laplacian(side: int) -> csr_matrix:
    """Return the matrix of a grid of side x side x side points, whose border is zero."""
    line = diags([-1.0, 2.0, -1.0], [-1, 0, 1], shape=(side, side))
    one = identity(side)
    return csr_matrix(
        kron(kron(line, one), one) + kron(kron(one, line), one) + kron(kron(one, one), line)
    )


def right_side(points: int) -> np.ndarray:
    """Return the right side, the same on all ranks."""
    return np.sin(np.arange(points) * 0.7) + 1


class Product:
    """Products of this rank's rows with vectors whose parts the ranks have."""

    def __init__(self, comm: MPI.Intracomm, matrix: csr_matrix, watch: Stopwatch) -> None:
        self.comm, self.watch = comm, watch
        self.mine = part_of(comm, matrix.shape[0])
        self.counts = np.diff(starts_of(matrix.shape[0], comm.size))
        self.rows = matrix[self.mine]
        self.whole = np.empty(matrix.shape[0])

    def __call__(self, part: np.ndarray) -> np.ndarray:
        """Return this rank's part of the product; collective."""
        with self.watch("communicate"):
            self.comm.Allgatherv(part, [self.whole, self.counts])
        with self.watch("compute"):
            return self.rows @ self.whole

    def dot(self, a: np.ndarray, b: np.ndarray) -> float:
        """Return the scalar product of two vectors; collective."""
        both = np.array([a @ b])
        with self.watch("communicate"):
            self.comm.Allreduce(MPI.IN_PLACE, both)
        return float(both[0])


def solve(comm: MPI.Intracomm, side: int, most: int, watch: Stopwatch) -> Solution:
    """Find the solution in at most so many steps; collective."""
    matrix = laplacian(side)
    times, b = Product(comm, matrix, watch), right_side(side**3)
    comm.Barrier()
    with watch("total"):
        x, r = np.zeros_like(b[times.mine]), b[times.mine].copy()
        p, rho, steps = r.copy(), times.dot(r, r), 0
        wanted = TOLERANCE**2 * rho
        while rho > wanted and steps < most:
            q = times(p)
            alpha = rho / times.dot(p, q)
            x += alpha * p
            r -= alpha * q
            before, rho = rho, times.dot(r, r)
            p = r + rho / before * p
            steps += 1
    return Solution(x, steps, float(np.sqrt(rho / (wanted / TOLERANCE**2))))


def is_right(comm: MPI.Intracomm, side: int, found: Solution) -> bool:
    """Tell whether all ranks' parts are those of SciPy's solution; collective."""
    expected = spsolve(laplacian(side).tocsc(), right_side(side**3))
    mine = expected[part_of(comm, side**3)]
    scale = np.abs(expected).max()
    return all_agree(comm, np.allclose(found.part, mine, rtol=0, atol=1e-5 * scale))


def main(
    kind: CommOption = CommKind.HAN,
    config: ConfigOption = None,
    compare: CompareOption = 0,
    side: Annotated[int, typer.Option(min=1, help="Points of a side of the grid.")] = 20,
    most: Annotated[int, typer.Option("--steps", min=1, help="Steps at most.")] = 500,
    check: Annotated[
        bool | None,
        typer.Option(
            "--check/--no-check",
            help=f"Compare with SciPy's solution; by default up to a side of {CHECK_UP_TO}.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Solve a sparse system whose rows are distributed over the MPI ranks.

    Times are the slowest rank's, without the check. Exits with 1 if the check fails.
    """
    wanted = side <= CHECK_UP_TO if check is None else check

    def work(comm: MPI.Intracomm) -> Done:
        watch = Stopwatch("total", "compute", "communicate")
        found = solve(comm, side, most, watch)
        right = is_right(comm, side, found) if wanted else None
        facts = {"points": side**3, "steps": found.steps, "residual": found.residual}
        return Done(facts, watch, right)

    check_name = Check("agrees_with_scipy", "the solution differs from SciPy's")
    conclude(work, check_name, How(kind, config, compare, as_json))


if __name__ == "__main__":
    run(main)
