"""``han bench --osu``: tables as the OSU micro-benchmarks print them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mpi4py import MPI

from han.cli.common import say
from han.cli.measuring import cases_of, tell_alone, tell_others
from han.cli.progress import progress
from han.cli.words import calls_of
from han.common.errors import ArgumentError
from han.measure import osu
from han.measure.bench import Bench, Settings
from han.measure.bench_calls import Case
from han.measure.bench_machine import look
from han.measure.modes import Mode

USUAL = (
    "allgather", "allreduce", "alltoall", "alltoallv", "barrier", "bcast", "gather", "gatherv",
    "reduce_scatter", "reduce", "scatter", "scatterv",
)  # fmt: skip
SIZES = "4:1MiB"


def tables(
    words: Sequence[str] | None, settings: Settings, config: str | None, typed: bool
) -> None:  # fmt: skip
    """Measure one side as OSU does, and print a table for each collective; collective.

    `typed`: all calls have the element type of `settings`; else it is the call's usual one.
    """
    if settings.mode is Mode.NONBLOCKING:
        raise ArgumentError(
            "--mode nonblocking is not for --osu: OSU measures overlap there; "
            "write --mode blocking or persistent"
        )
    settings = replace(settings, only=settings.only or "han")

    def case(collective: str, nbytes: int) -> Case:
        made = settings.case(collective, nbytes)
        return made if typed else replace(made, dtype=osu.dtype_of(collective))

    cases = cases_of(calls_of(words, USUAL, SIZES), case)
    tell_alone("han bench --osu")
    with Bench(MPI.COMM_WORLD, config, settings) as running:
        _print(running, cases)


def _print(running: Bench, cases: Sequence[Case]) -> None:
    """Measure all cases, and print each row as soon as it is measured; collective."""
    settings, machine = running.settings, look(MPI.COMM_WORLD, running.han)
    say(osu.heading_of(machine, settings))
    before = ""
    with progress(len(cases)) as advance:
        for case in cases:
            if case.collective != before:
                say(osu.head(case, machine, settings))
            say(osu.line(osu.measure(running, case)))
            before = case.collective
            advance()
    tell_others(running, say)
