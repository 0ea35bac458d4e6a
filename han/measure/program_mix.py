"""Parts of programs: mixed collectives as statistics recorded them, and a solver."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
from mpi4py import MPI

from han.config.source import READY
from han.measure.bench_calls import Array, Buffers, Case, prepare
from han.measure.modes import Mode
from han.measure.program_rows import ProgramRow, Work
from han.model.recorded import MAKING, Mix, Recorded, read_mix

MIXED = "mixed"
STEPS = 100  # calls in a sequence
DEFAULT = READY / "mixes" / "pylops-mpi.json"


def _of_kind(comm: MPI.Intracomm, kind: Recorded) -> Work:
    """Return the calls of one kind, which have buffers and requests of their own."""
    buffers = Buffers(Case(kind.collective, kind.nbytes), comm.Get_rank(), comm.Get_size())
    buffers.reset()
    results = [] if buffers.recv is None else [buffers.recv]
    if kind.how == MAKING:
        make = partial(prepare, comm, buffers, Mode.PERSISTENT)
        return Work(lambda: make().free(), results)
    made = prepare(comm, buffers, Mode(kind.how))
    return Work(made.call, results, free=made.free, kept=[buffers])


def _make(mix: Mix, comm: MPI.Intracomm) -> Work:
    """Make the calls of a mix."""
    sequence = mix.sequence(STEPS)
    works = {kind: _of_kind(comm, kind) for kind in dict.fromkeys(sequence)}
    calls = [works[kind].call for kind in sequence]

    def run() -> None:
        for call in calls:
            call()

    def free() -> None:
        for work in works.values():
            work.free()

    results = [result for work in works.values() for result in work.results]
    return Work(run, results, STEPS, free, [*works.values()])


def mixed(path: Path | None = None) -> ProgramRow:
    """Return the row of a recorded mix, by default han's own; raises ArgumentError."""
    mix = read_mix(DEFAULT if path is None else path)
    return ProgramRow(MIXED, f"{mix.name}, a call", partial(_make, mix))


# ---- a solver -----------------------------------------------------------------------------------


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


def _solver(comm: MPI.Intracomm) -> Work:
    chain = Chain(comm)
    return Work(chain.solve, [chain.found], ITERATIONS)


SOLVER = "solver"
ROWS = (ProgramRow(SOLVER, "conjugate gradients, an iteration", _solver),)
