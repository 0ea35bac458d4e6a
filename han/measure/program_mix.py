"""Mixed collectives in random order, as statistics of a program recorded them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from mpi4py import MPI

from han.config.source import READY
from han.measure.bench_calls import Buffers, Call, Case, Mode, Prepared, prepare
from han.measure.program_rows import ProgramRow, Work
from han.model.recorded import MAKING, Mix, Recorded, read_mix

MIXED = "mixed"
STEPS = 100  # calls in a sequence
DEFAULT = READY / "mixes" / "pylops-mpi.json"


class MixedCalls:
    """The calls of a mix on one communicator; each kind has its own buffers and requests."""

    def __init__(self, comm: MPI.Intracomm, mix: Mix) -> None:
        self.comm = comm
        self.made: list[Prepared] = []
        self.buffers: dict[Recorded, Buffers] = {}
        calls: dict[Recorded, Call] = {}
        sequence = mix.sequence(STEPS)
        for kind in dict.fromkeys(sequence):
            calls[kind] = self._call(kind)
        self.calls = [calls[kind] for kind in sequence]

    def _call(self, kind: Recorded) -> Call:
        comm = self.comm
        buffers = Buffers(Case(kind.collective, kind.nbytes), comm.Get_rank(), comm.Get_size())
        buffers.reset()
        self.buffers[kind] = buffers
        if kind.how == MAKING:
            return partial(_make_and_free, partial(prepare, comm, buffers, Mode.PERSISTENT))
        self.made.append(prepare(comm, buffers, Mode(kind.how)))
        return self.made[-1].call

    def run(self) -> None:
        """Make all calls."""
        for call in self.calls:
            call()

    def free(self) -> None:
        """Free the persistent requests."""
        for one in self.made:
            one.free()


def _make_and_free(make: Callable[[], Prepared]) -> None:
    make().free()


def _make(mix: Mix, comm: MPI.Intracomm) -> Work:
    mixed_calls = MixedCalls(comm, mix)
    results = [one.recv for one in mixed_calls.buffers.values() if one.recv is not None]
    return Work(mixed_calls.run, results, STEPS, mixed_calls.free)


def mixed(path: Path | None = None) -> ProgramRow:
    """Return the row of a recorded mix, by default han's own; raises ArgumentError."""
    mix = read_mix(DEFAULT if path is None else path)
    return ProgramRow(MIXED, f"{mix.name}, a call", partial(_make, mix))
