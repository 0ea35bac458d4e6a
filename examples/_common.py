"""Functions of all examples: communicators, times, agreement of ranks, reports."""

from __future__ import annotations

import json
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

import typer
from mpi4py import MPI

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
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object, not a table.")]


def open_comm(kind: CommKind, config: Path | None = None) -> MPI.Intracomm:
    """Return a communicator of all ranks: MPI's own, or han's on top of it."""
    if kind is CommKind.MPI:
        if config is not None:
            raise typer.BadParameter("--config needs --comm han")
        return MPI.COMM_WORLD
    import han

    return han.Comm(MPI.COMM_WORLD, config=config)


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


def conclude(
    comm: MPI.Intracomm, kind: CommKind, facts: Mapping[str, Any], watch: Stopwatch,
    check: tuple[str, bool | None], wrong: str, as_json: bool,
) -> None:  # fmt: skip
    """Report facts, times and the name and the answer of a check; exit with 1 if it failed."""
    name, right = check
    times = time_record(watch.slowest(comm))
    record = {"comm": kind.value, "ranks": comm.size, **facts, **times, name: right}
    report(comm, record, as_json)
    if right is False:
        fail(comm, wrong)


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
