"""Conjugate gradients whose dot products are NumPy scalars, as programs write them."""

from __future__ import annotations

import numpy as np
from mpi4py import MPI

from han.measure.bench_calls import Array
from han.measure.program_rows import ProgramRow, Work

POINTS = 1000  # of each rank
ITERATIONS = 50
SHIFT = 1.0  # of the matrix, so that the iterations converge slowly and stay finite


class Chain:
    """The equations of a chain of points that the ranks share: (2 + SHIFT) x - left - right = b."""

    def __init__(self, comm: MPI.Intracomm) -> None:
        rank, size = comm.Get_rank(), comm.Get_size()
        self.comm = comm
        self.left = rank - 1 if rank else MPI.PROC_NULL
        self.right = rank + 1 if rank + 1 < size else MPI.PROC_NULL
        self.wanted = np.sin(np.arange(POINTS) + POINTS * rank)
        self.found = np.zeros(POINTS)

    def apply(self, x: Array) -> Array:
        """Return the matrix times `x`; exchanges the outermost points with the neighbours."""
        before, after = np.zeros(1), np.zeros(1)
        self.comm.Sendrecv(x[-1:], self.right, 0, before, self.left, 0)
        self.comm.Sendrecv(x[:1], self.left, 0, after, self.right, 0)
        y: Array = (2 + SHIFT) * x
        y[1:] -= x[:-1]
        y[:-1] -= x[1:]
        y[0] -= before[0]
        y[-1] -= after[0]
        return y

    def dot(self, x: Array, y: Array) -> float:
        """Return the dot product over all ranks."""
        total = np.zeros(())
        self.comm.Allreduce(np.dot(x, y), total)
        return float(total)

    def solve(self) -> None:
        """Make the iterations of conjugate gradients, from zero on."""
        x, rest = np.zeros(POINTS), self.wanted.copy()
        way, square = rest.copy(), self.dot(rest, rest)
        for _ in range(ITERATIONS):
            image = self.apply(way)
            step = square / self.dot(way, image)
            x += step * way
            rest -= step * image
            before, square = square, self.dot(rest, rest)
            way = rest + (square / before) * way
        self.found[:] = x


def _make(comm: MPI.Intracomm) -> Work:
    chain = Chain(comm)
    return Work(chain.solve, [chain.found], ITERATIONS)


SOLVER = "solver"
ROWS = (ProgramRow(SOLVER, "conjugate gradients, an iteration", _make),)
