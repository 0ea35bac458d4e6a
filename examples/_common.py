"""Functions of all examples: communicators, times, agreement of ranks, reports, comparisons."""

from __future__ import annotations

import json
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, NamedTuple, NoReturn, TypeVar

import numpy as np
import typer
from mpi4py import MPI
from threadpoolctl import threadpool_limits

T = TypeVar("T")


class CommKind(str, Enum):
    """Whose collectives an example uses."""

    HAN = "han"
    MPI = "mpi"


CommOption = Annotated[CommKind, typer.Option("--comm", help="Whose collectives to use.")]
ConfigOption = Annotated[
    Path | None,
    typer.Option(help="han's YAML configuration; only with --comm han."),
]
CompareOption = Annotated[
    int,
    typer.Option(
        "--compare",
        min=0,
        metavar="TURNS",
        help="Run on MPI's communicator and on han's in so many turns, and report both and the "
        "gain: MPI's time over han's.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object, not a table.")]


def open_comm(kind: CommKind, config: Path | None = None) -> MPI.Intracomm:
    """Return a communicator of all ranks: MPI's own, or han's on top of it."""
    if kind is CommKind.MPI:
        if config is not None:
            raise typer.BadParameter("--config needs --comm han")
        return MPI.COMM_WORLD
    import han

    return han.Comm(MPI.COMM_WORLD, config=config)


def starts_of(n: int, ranks: int) -> np.ndarray:
    """Return where each rank's part of `n` starts, then `n`; sizes differ by at most one."""
    return np.arange(ranks + 1) * n // ranks


def part_of(comm: MPI.Intracomm, n: int) -> slice:
    """Return this rank's part of `n`."""
    starts = starts_of(n, comm.size)
    return slice(int(starts[comm.rank]), int(starts[comm.rank + 1]))


class Stopwatch:
    """Sum up the seconds of named parts: ``with watch("compute"): ...``."""

    def __init__(self, *parts: str):
        self.seconds = dict.fromkeys(parts, 0.0)

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        """Count the time spent inside the ``with`` block as `part`."""
        start = time.perf_counter()
        yield
        self.seconds[part] += time.perf_counter() - start

    def slowest(self, comm: MPI.Intracomm) -> dict[str, float]:
        """Return for every part the largest time of all ranks; collective."""
        return {part: comm.allreduce(seconds, op=MPI.MAX) for part, seconds in self.seconds.items()}


def from_rank_0(comm: MPI.Intracomm, make: Callable[[], T]) -> T:
    """Return the result of `make` on rank 0 to all ranks; collective.

    A ValueError or OSError of `make` is raised on all ranks.
    """
    made: T | Exception | None = None
    if comm.rank == 0:
        try:
            made = make()
        except (ValueError, OSError) as error:
            made = error
    made = comm.bcast(made)
    if isinstance(made, Exception):
        raise made
    return made


def all_agree(comm: MPI.Intracomm, ok: bool) -> bool:
    """Tell whether `ok` holds on every rank; collective, the same answer on all."""
    return comm.allreduce(bool(ok), op=MPI.LAND)


def report(comm: MPI.Intracomm, record: Mapping[str, Any], as_json: bool) -> None:
    """Print `record` on rank 0, as JSON or as an aligned table."""
    if comm.rank == 0:
        print(json.dumps(record, indent=2) if as_json else table(record), flush=True)


def table(record: Mapping[str, Any]) -> str:
    """Return one line per entry, names and values aligned."""
    width = max(len(name) for name in record)
    lines = (f"{name.replace('_', ' '):<{width}}  {_spell(v)}" for name, v in record.items())
    return "\n".join(lines)


def _spell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def time_record(seconds: Mapping[str, float]) -> dict[str, float]:
    """Return report entries for parts ``total``, ``compute`` and ``communicate``."""
    total = seconds["total"]
    return {
        "total_s": total,
        "compute_s": seconds["compute"],
        "communicate_s": seconds["communicate"],
        "communicate_share": seconds["communicate"] / total if total else 0.0,
    }


class Done(NamedTuple):
    """One run of an application: what it found, its times, and whether its check passed.

    `right` is None if there was no check.
    """

    facts: Mapping[str, Any]
    watch: Stopwatch
    right: bool | None


class Check(NamedTuple):
    """A check of the result: its name in the report, and what to say if it fails."""

    name: str
    wrong: str


class How(NamedTuple):
    """The options of all applications. `turns`: 0, or how often to run on each communicator."""

    kind: CommKind
    config: Path | None
    turns: int
    as_json: bool


Work = Callable[[MPI.Intracomm], Done]


def conclude(work: Work, check: Check, how: How) -> None:
    """Run an application and report, or compare its runs; exit with 1 if a check failed.

    Collective. Each rank uses one thread, because the ranks share the processors.
    """
    with threadpool_limits(1):
        record, right = compared(work, how) if how.turns else once(work, how)
    record = {"ranks": MPI.COMM_WORLD.size, **record, check.name: right}
    report(MPI.COMM_WORLD, record, how.as_json)
    if right is False:
        fail(MPI.COMM_WORLD, check.wrong)


def once(work: Work, how: How) -> tuple[dict[str, Any], bool | None]:
    """Run an application on one communicator; return a record, and whether it is right."""
    done = work(open_comm(how.kind, how.config))
    times = time_record(done.watch.slowest(MPI.COMM_WORLD))
    return {"comm": how.kind.value, **done.facts, **times}, done.right


def compared(work: Work, how: How) -> tuple[dict[str, Any], bool | None]:
    """Run an application on both communicators in turns; return the medians and the gain."""
    comms = {
        "mpi": open_comm(CommKind.MPI),
        "han": open_comm(CommKind.HAN, how.config),
    }
    times: dict[str, list[dict[str, float]]] = {name: [] for name in comms}
    answers = set()
    for turn in range(how.turns):
        for name in [*comms][:: -1 if turn % 2 else 1]:
            done = work(comms[name])
            times[name].append(time_record(done.watch.slowest(MPI.COMM_WORLD)))
            answers.add(done.right)
    record = {**done.facts, "turns": how.turns}
    for name, turns in times.items():
        record |= {f"{name}_{part}": median_of(turns, part) for part in turns[0]}
    return record | gains(times), None if None in answers else all(answers)


def median_of(turns: Sequence[Mapping[str, float]], part: str) -> float:
    """Return the median of one entry of the turns' records."""
    return statistics.median(turn[part] for turn in turns)


def gains(times: Mapping[str, Sequence[Mapping[str, float]]]) -> dict[str, float]:
    """Return MPI's time over han's: median, least and greatest of the turns; in communication."""
    pairs = [*zip(times["mpi"], times["han"], strict=True)]
    ratios = [mpi["total_s"] / han["total_s"] for mpi, han in pairs]
    parts = [mpi["communicate_s"] / han["communicate_s"] for mpi, han in pairs]
    return {
        "gain": statistics.median(ratios),
        "gain_least": min(ratios),
        "gain_greatest": max(ratios),
        "gain_in_communication": statistics.median(parts),
    }


def fail(comm: MPI.Intracomm, reason: str) -> NoReturn:
    """Exit with status 1; every rank must call it."""
    if comm.rank == 0:
        print(f"failed: {reason}", file=sys.stderr, flush=True)
    raise typer.Exit(1)


def run(main: Callable[..., None]) -> None:
    """Run `main` as a command; an exception on one rank ends all ranks."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(main)
    try:
        app()
    except Exception:
        traceback.print_exc()
        MPI.COMM_WORLD.Abort(1)
