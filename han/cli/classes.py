"""The command ``han classes``: what classes of machines run between nodes, and its regret."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import typer

from han.cli import options
from han.cli.common import answer, check_files, drawn, numbers, say, write_file
from han.cli.progress import progress
from han.cli.words import action_of, calls_of, file_of
from han.common.errors import ArgumentError
from han.common.tables import shown_table
from han.common.units import parse_sizes, plural
from han.config.machine import load_machine
from han.config.rules import MOST, Ends, When
from han.model.collectives import carried
from han.plots.winners import winners
from han.tuning.built_in.machine_classes import MachineClass, document, parse, shipped
from han.tuning.prediction import Where
from han.tuning.profile import profile_of
from han.tuning.search.class_files import Processes, call_of, called, spelled, text_of
from han.tuning.search.portfolio import Grid
from han.tuning.search.regret import summary

ACTIONS = "list", "compute", "regret"
CALLS, SIZES = ("allreduce", "bcast", "reduce"), "8,512,4KiB,32KiB,256KiB,2MiB"


def classes(
    words: Annotated[
        list[str] | None,
        options.words(
            "[ACTION] [COLLECTIVES] [SIZES]",
            f"{', '.join(ACTIONS)}; compute is followed by the file to write, or of which to "
            f"compute calls anew. Collectives: allreduce,bcast; bytes: {options.SIZES}.",
            ACTIONS,
        ),
    ] = None,
    nodes: options.ManyNodes = "2,4,16,64",
    ppn: options.ManyPpn = "1,2,4,8,16,32",
    machine: options.Machines = "stampede2",
    about: Annotated[str, typer.Option(help="Of compute: what the class is.")] = "",
    cores: options.Cores = 0,
    rdma: options.Rdma = False,
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
    sample: Annotated[
        int,
        typer.Option(
            min=0,
            help="Of regret: so many cases drawn between the least and the largest nodes, ppn and "
            "bytes, not all combinations.",
        ),
    ] = 0,
    jobs: Annotated[int, typer.Option(min=0, help="Processes; 0: one for each processor.")] = 0,
    plot: options.Plot = None,
    json_file: options.JsonFile = None,
) -> None:
    """Compute what machines of a class run, or how far choices are from the best.

    A machine that nobody has measured runs what its class says: nodes of so many cores, with remote
    DMA or without. The simulator finds it on machine models, in minutes to hours.

    \b
    Examples:
      han classes
      han classes compute fabric.json bcast --machine stampede2,alps-epyc --cores 8 --rdma
      han classes regret allreduce 8,64KiB --machine thor --nodes 16 --ppn 32 --plot winners.png
    """
    action, rest = action_of(words, ACTIONS)
    if action == "list":
        if rest:
            raise ArgumentError(f"action {rest[0]!r}: known are {', '.join(ACTIONS)}")
        check_files(json_file)
        answer(json_file, listed, listed_records)
        return
    file = Path(file_of(rest, "compute needs the file to write")) if action == "compute" else None
    asked = calls_of(rest, CALLS, SIZES)
    grid = Grid(
        tuple(carried(name) for name in asked.names),
        numbers("--nodes", nodes),
        numbers("--ppn", ppn),
        tuple(parse_sizes(asked.sizes)),
        ranks,
    )
    if not any(grid.shapes()):
        raise ArgumentError(f"--ranks {ranks}: no shape has so few; give fewer nodes or ppn")
    names, workers = machine.split(","), jobs or len(os.sched_getaffinity(0))
    for shape, name in product(grid.shapes(), names):  # what is wrong is told before work begins
        Where(load_machine(name), *shape)
    processes = Processes(names, workers, progress)
    check_files(file, json_file, plot=plot)
    if file is not None:
        _compute(file, processes, grid, error, _described(names, about, cores, rdma))
        return
    if sample and plot:
        raise ArgumentError("a picture of drawn cases has no axes: give --sample or --plot")
    told = processes.regret(grid.drawn(sample) if sample else grid.cases(), search)
    answer(json_file, lambda: summary(told), lambda: [one.record() for one in told])
    drawn(plot, partial(winners, told))


def _described(names: Sequence[str], about: str, cores: int, rdma: bool) -> MachineClass:
    """Return a class of some machine models, without rows."""
    profiles = tuple((name, profile_of(load_machine(name))) for name in names)
    long = any(profile.has_long_links for _, profile in profiles)  # whatever the adapters do
    seen: dict[str, Ends | bool] = {} if long else {"rdma": rdma}
    if cores:
        seen["cores"] = cores, MOST
    return MachineClass("", about, When.of((), seen), profiles, ())


def _compute(
    file: Path, processes: Processes, grid: Grid, error: float, made: MachineClass
) -> None:
    """Compute the rows of a grid, and write them beside those that a file has for other calls."""
    if 1 in grid.nodes and len(grid.nodes) > 1:
        raise ArgumentError("rows for one node have a grid of their own: leave 1 out of --nodes")
    names = [name for name, _ in made.machines]
    calls = [called(name, grid.nodes == (1,)) for name in grid.collectives]
    record = document(made, dict.fromkeys(calls, spelled(grid, error, names)), ())
    kept = _kept(file, record) if file.exists() else ({}, [])
    rows = [*processes.rows(grid, error)]
    record |= {"grids": kept[0] | record["grids"], "rows": kept[1] + rows}
    cases = plural(sum(1 for _ in grid.cases()), "case")
    say(f"{plural(len(rows), 'row')}; elsewhere among {cases} the built-in choice stays")
    write_file(file, text_of(record))


def _kept(file: Path, record: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
    """Return the grids and rows of other calls, which a class that is computed anew keeps."""
    parse(file.read_bytes(), file.stem, str(file))
    before = json.loads(file.read_bytes())
    other = [key for key in ("when", "machines") if before[key] != record[key]]
    if other:
        raise ArgumentError(
            f"{file} is a class of other machines: {other[0]} {json.dumps(before[other[0]])}, not "
            f"{json.dumps(record[other[0]])}; name another file"
        )
    record["about"] = record["about"] or before["about"]
    grids = {name: grid for name, grid in before["grids"].items() if name not in record["grids"]}
    known = [*before["grids"]]
    for row in before["rows"]:
        if call_of(row) not in known:
            raise ArgumentError(f"{file}: row {row.get('name', '')!r} is of no call in 'grids'")
    return grids, [row for row in before["rows"] if call_of(row) in grids]


def listed_records() -> list[dict[str, Any]]:
    """Return the classes that come with han as plain data."""
    return [
        {"class": one.name, "about": one.about, "rows": len(one.rows),
         "machines": [name for name, _ in one.machines]}
        for one in shipped()
    ]  # fmt: skip


def listed() -> str:
    """Return the table of the classes that come with han."""
    rows = [
        (one.name, one.about, str(len(one.rows)), ", ".join(name for name, _ in one.machines))
        for one in shipped()
    ]
    return shown_table("", ["class", "about", "rows", "computed on"], rows, left=["about"])
