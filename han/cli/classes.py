"""The command ``han classes``: what classes of machines run between nodes, and its regret."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from han.cli import options
from han.cli.common import check_files, say, write_file
from han.cli.progress import progress
from han.common.errors import ArgumentError
from han.common.grouped import grouped
from han.common.tables import shown_table
from han.common.units import format_size, parse_sizes, plural
from han.config.machine import load_machine
from han.config.rules import MOST, When
from han.model.collectives import carried
from han.tuning.built_in.machine_classes import MachineClass, document, shipped
from han.tuning.prediction import Where
from han.tuning.search.class_rows import computed, records
from han.tuning.search.limits import Limits
from han.tuning.search.portfolio import (
    Case,
    Grid,
    Laboratory,
    chosen,
    portfolio,
    predicted,
    winners,
)
from han.tuning.search.regret import Regret, regret_of, summary

ACTIONS = "list", "compute", "regret"
OWN = ("sm", "solo", "adapt", "exchange", "nap", "ring", "bundle", "scan")  # no library's calls
LIMITS = Limits(submodules=OWN, parameters={"factors": ()})  # which would fit few numbers of ranks
USES = 24  # of a collective, at most
T = TypeVar("T")
R = TypeVar("R")
_labs: list[Laboratory] = []  # of this process


def classes(
    action: Annotated[str, typer.Argument(help=f"{', '.join(ACTIONS)}.")] = "list",
    file: Annotated[Path | None, typer.Argument(help="Of compute: the file to write.")] = None,
    machine: Annotated[
        str, typer.Option(help="Machine models, with commas: YAML files or ready ones.")
    ] = "stampede2",
    about: Annotated[str, typer.Option(help="Of compute: what the class is.")] = "",
    cores: options.Cores = 0,
    rdma: options.Rdma = False,
    collectives: Annotated[
        str, typer.Option(help="Calls, with commas.")
    ] = "allreduce,bcast,reduce",
    nodes: Annotated[str, typer.Option(help="Numbers of nodes.")] = "2,4,16,64",
    ppn: Annotated[str, typer.Option(help="Ranks a node.")] = "1,2,4,8,16,32",
    nbytes: Annotated[
        str, typer.Option("--bytes", help="Sizes, as for han bench.")
    ] = "8,512,4KiB,32KiB,256KiB,2MiB",
    ranks: Annotated[int, typer.Option(min=2, help="No shape has more ranks.")] = 512,
    error: Annotated[
        float, typer.Option(min=1.0, help="Choices that differ by less count as alike.")
    ] = 1.08,
    search: Annotated[
        bool,
        typer.Option(
            "--search",
            help="Of regret: improve each composition, as compute does; minutes a case of many "
            "ranks.",
        ),
    ] = False,
    jobs: Annotated[int, typer.Option(min=0, help="Processes; 0: one for each processor.")] = 0,
    as_json: options.JsonFlag = False,
) -> None:
    """Compute what machines of a class run between nodes, or how far choices are from the best.

    A machine that nobody has measured runs what its class says: nodes of so many cores, with remote
    DMA or without. The simulator finds it on machine models, in minutes to hours.

    \b
    Examples:
      han classes
      han classes compute fabric.json --machine stampede2,alps-epyc --cores 8 --rdma
      han classes regret --machine thor --nodes 16 --ppn 32
    """
    if action not in ACTIONS:
        raise ArgumentError(f"action {action!r}: known are {', '.join(ACTIONS)}")
    if action == "list":
        say(listed())
        return
    grid = Grid(
        tuple(carried(name) for name in collectives.split(",")),
        _numbers("--nodes", nodes),
        _numbers("--ppn", ppn),
        tuple(parse_sizes(nbytes)),
        ranks,
    )
    names, workers = machine.split(","), jobs or len(os.sched_getaffinity(0))
    for shape, name in product(grid.shapes(), names):  # what is wrong is told before work begins
        Where(load_machine(name), *shape)
    if action == "regret":
        asked = [(case, LIMITS if search else None) for case in grid.cases()]
        found = [*_spread(_regret, asked, names, workers, "predicting")]
        told = [one for ones in found for one in ones]
        say(json.dumps([one.record() for one in told], indent=1) if as_json else summary(told))
        return
    check_files(file)
    if file is None:
        raise ArgumentError("compute needs the file to write")
    when = When.of((), {"cores": (cores, MOST), "rdma": rdma})
    record = _computed(grid, names, workers, error, MachineClass("", about, when, (*names,), ()))
    cases = plural(sum(1 for _ in grid.cases()), "case")
    say(f"{plural(len(record['rows']), 'row')}; elsewhere among {cases} the built-in choice stays")
    write_file(file, _text(record))


def _numbers(option: str, text: str) -> tuple[int, ...]:
    parts = text.split(",")
    if not all(part.isdecimal() and int(part) for part in parts):
        raise ArgumentError(f"{option} {text!r}: expected numbers such as 2,4,16")
    return tuple(sorted({int(part) for part in parts}))


def listed() -> str:
    """Return the table of the classes that come with han."""
    rows = [(one.name, one.about, str(len(one.rows)), ", ".join(one.machines)) for one in shipped()]
    return shown_table("", ["class", "about", "rows", "computed on"], rows, left=["about"])


# ---- computing ----------------------------------------------------------------------------------


def _computed(
    grid: Grid, names: Sequence[str], workers: int, error: float, of: MachineClass
) -> Any:
    anchors = [case for case in grid.cases() if _is_anchor(case, grid)]
    won = [*_spread(_winners, anchors, names, workers, "searching")]
    by_name = grouped((case.collective, uses) for case, uses in zip(anchors, won, strict=True))
    uses = {name: portfolio(by_name.get(name, ()), USES) for name in grid.collectives}
    cases = [*grid.cases()]
    asked = [(case, uses[case.collective]) for case in cases]
    times = dict(zip(cases, _spread(_predicted, asked, names, workers, "predicting"), strict=True))
    made = computed(chosen(times, grid, error), times, uses, grid)
    spelled = {
        "nodes": [*grid.nodes], "ppn": [*grid.ppn], "bytes": [format_size(n) for n in grid.nbytes],
        "ranks": grid.ranks, "error": error,
    }  # fmt: skip
    return document(of, spelled, records(made, grid))


def _is_anchor(case: Case, grid: Grid) -> bool:
    """Return whether a case is on every second shape of the grid, and not among the largest."""
    places = grid.nodes.index(case.nodes) + grid.ppn.index(case.ppn)
    return places % 2 == 1 and case.nodes * case.ppn <= max(64, grid.ranks // 4) and case.ppn > 1


def _text(record: Any) -> str:
    """Return a class as JSON, a row on a line."""
    rows = ",\n".join(f"  {json.dumps(row)}" for row in record["rows"])
    head = json.dumps({key: value for key, value in record.items() if key != "rows"}, indent=1)
    return f'{head[:-2]},\n "rows": [\n{rows}\n ]\n}}\n'


def _spread(
    work: Callable[[T], R], over: Sequence[T], machines: Sequence[str], workers: int, what: str
) -> Iterator[R]:
    """Yield the results of some work for all items, which processes take in turn."""
    with (
        progress(len(over), what) as advance,
        ProcessPoolExecutor(workers, get_context("spawn"), _open, (machines,)) as pool,
    ):
        for result in pool.map(work, over):
            advance()
            yield result


def _open(machines: Iterable[str]) -> None:
    _labs[:] = [Laboratory(load_machine(name)) for name in machines]


def _winners(case: Case) -> Any:
    return winners(_labs, case, LIMITS)


def _predicted(asked: tuple[Case, Any]) -> dict[int, float]:
    return predicted(_labs, *asked)


def _regret(asked: tuple[Case, Limits | None]) -> list[Regret]:
    return [regret_of(lab, *asked) for lab in _labs]
