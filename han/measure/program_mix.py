"""Mixed collectives in random order, as statistics of a program recorded them."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from mpi4py import MPI

from han.config.source import READY
from han.measure.bench_calls import Buffers, Case, Mode, prepare
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
