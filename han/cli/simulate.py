"""The command ``han simulate``: predicted times of calls on a described machine."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from han.cli import options
from han.cli.common import answer, check_files, drawn, known_op, rank, write_file
from han.cli.progress import progress
from han.cli.words import Words, calls_of, collective_of
from han.common.errors import ArgumentError, HanError
from han.common.units import format_size, parse_sizes, plural
from han.config.config import Config, load_config
from han.config.machine import load_machine
from han.model.collectives import DATALESS
from han.model.program import Program
from han.model.series import Panel, short
from han.plots import plots
from han.plots import timeline as plots_timeline
from han.submodules.registry import submodule
from han.tasks.call import call_signature
from han.tasks.files.store import load
from han.tasks.plan import Plan
from han.tasks.signature import Signature
from han.trace import timeline_files
from han.tuning.prediction import (
    Predicted,
    Where,
    plan_of,
    predict,
    sized,
    timeline_of,
    with_choice,
)

Case = tuple[Plan, Sequence[Program] | None]
USUAL = "bcast"


def simulate(
    words: options.CallOfSizes = None,
    *,
    machine: options.Machine,
    nodes: options.Nodes = None,
    ppn: options.Ppn = None,
    algorithm: Annotated[
        list[str] | None,
        typer.Option(
            help="LEVEL=SUBMODULE[.ALGORITHM][:PARAMETER=VALUE,...]; behind it for one kind of "
            "tasks, reduce or bcast: LEVEL.KIND=ALGORITHM[:...]. May be repeated."
        ),
    ] = None,
    segment: Annotated[
        str, typer.Option(help="Segment sizes to compare: 32KiB,128KiB,whole.")
    ] = "",
    composition: Annotated[
        str, typer.Option(help="Compositions to compare: tree,flat,nap,lanes,ring.")
    ] = "",
    op: options.Op = "sum",
    dtype: options.Dtype = "f8",
    root: options.Root = 0,
    config: options.Config = None,
    plan: Annotated[
        Path | None,
        typer.Option(help="Simulate a plan that 'han plan --save FILE' wrote, in place of a call."),
    ] = None,
    calls: Annotated[int, typer.Option(min=1, help="Calls in a row.")] = 1,
    plot: options.Plot = None,
    timeline: Annotated[
        Path | None,
        typer.Option(help="Write the timeline to a file for 'han trace --predicted'."),
    ] = None,
    json_file: options.JsonFile = None,
) -> None:
    """Predict the time of a call on a described machine.

    The simulator runs the programs of all ranks in virtual time. Messages take latency and
    bandwidth, and share adapters; copies share the memory of a node. The picture of one call is its
    timeline, that of several sizes has their times.

    \b
    Examples:
      han simulate bcast 8:4MiB:8 --machine emulated-1gbit
      han simulate bcast 4MiB --nodes 64 --ppn 12 --machine stampede2 --segment 16KiB,64KiB,1MiB
      han simulate --nodes 64 --machine stampede2 --algorithm network=adapt.binary:segment=64KiB
      han simulate bcast 8:4MiB --machine emulated-1gbit --segment 32KiB,whole --plot sizes.png
      han simulate allreduce 8 --machine blue-waters --composition tree,nap
      han simulate bcast 1MiB --machine emulated-1gbit --plot gantt.png --timeline predicted.json
    """
    check_files(timeline, json_file, plot=plot)
    model = load_machine(machine)
    where = Where(model, nodes or model.nodes, ppn or model.ppn)
    if plan is not None:
        cases = _stored(plan, where)
    else:
        signatures = _signatures(where, calls_of(words, [USUAL], "4MiB"), op, dtype, root)
        choices = _choices(config, algorithm or (), segment, composition)
        cases = _cases(where, choices, signatures)
    if timeline is not None and len(cases) > 1:
        raise ArgumentError(
            f"--timeline takes one size and one choice; this command has {len(cases)} cases"
        )
    if not rank():
        pictured = plot is not None or timeline is not None
        answers = _predict(where, cases, calls, spans=pictured and len(cases) == 1)
        about = answers, where, machine, calls
        answer(json_file, partial(text, *about), partial(record, *about))
        _write(answers, where, machine, plot, timeline)


def _choices(
    config: str | None, algorithms: Sequence[str], segments: str, compositions: str
) -> dict[str, Config]:
    """Return a configuration for each segment size and composition, or for what the rules say."""
    base, sizes, names = load_config(config), segments.split(","), compositions.split(",")
    if segments and not all(sizes):
        raise ArgumentError(f"--segment {segments!r}: a size is missing; write 32KiB,128KiB,whole")
    if compositions and not all(names):
        raise ArgumentError(f"--composition {compositions!r}: a name is missing; write tree,nap")
    return {
        " ".join(filter(None, (name, one))) or "chosen": with_choice(
            base, algorithms, one or None, name or None
        )
        for name in names
        for one in sizes
    }


def _signatures(where: Where, words: Words, op: str, dtype: str, root: int) -> list[Signature]:
    collective = collective_of(words)
    if not 0 <= root < where.size:
        raise ArgumentError(f"root {root} is not in 0..{where.size - 1}")
    first = call_signature(collective, 0, known_op(op), dtype, root)
    sizes = parse_sizes(words.sizes) if collective not in DATALESS else [0]
    return [sized(first, n) for n in sizes]


def _cases(
    where: Where, choices: dict[str, Config], signatures: list[Signature]
) -> dict[tuple[int, str], Case]:
    """Plan every size with every choice, which finds mistakes before the simulation."""
    return {
        (signature.nbytes, name): (plan_of(where, config, signature), None)
        for signature in signatures
        for name, config in choices.items()
    }


def _stored(path: Path, where: Where) -> dict[tuple[int, str], Case]:
    plan, programs = load(path, submodule)
    if plan.topology.size != where.size:
        raise ArgumentError(
            f"{path}: the plan is for {plan.topology.size} ranks, the machine has "
            f"{plural(where.nodes, 'node')} of {where.ppn}: give --nodes and --ppn"
        )
    return {(plan.signature.nbytes, path.name): (plan, programs)}


def _predict(where: Where, cases: dict[tuple[int, str], Case], calls: int, spans: bool) -> Answers:
    answers: Answers = {}
    name = ""
    try:
        with progress(len(cases) * where.size * calls, "simulating") as advance:
            for (nbytes, name), (plan, programs) in cases.items():
                answers[nbytes, name] = predict(
                    where, plan, programs=programs, runs=calls, spans=spans, tell=advance
                )
    except RuntimeError as error:  # of programs that do not end, such as those of an edited file
        raise HanError(f"{name}: {error}; 'han verify' shows where") from None
    return answers


def _write(
    answers: Answers, where: Where, machine: str, plot: Path | None, timeline: Path | None
) -> None:
    if len(answers) > 1:
        drawn(plot, partial(_plot, answers, where, machine))
        return
    line = timeline_of(where, machine, *answers.values())
    drawn(plot, partial(plots_timeline.gantt, [line]))
    if timeline is not None:
        write_file(timeline, timeline_files.to_json(line))


def _plot(answers: Answers, where: Where, machine: str, plot: Path) -> None:
    collective = next(iter(answers.values())).plan.signature.collective
    title = f"{collective} on {machine}: {plural(where.nodes, 'node')} of {where.ppn}, predicted"
    plots.lines([_panel(answers)], plot, title)


def _panel(answers: Answers) -> Panel:
    series: dict[str, dict[int, float]] = {}
    for (nbytes, name), one in answers.items():
        series.setdefault(name, {})[nbytes] = one.seconds * 1e6
    return Panel("", "bytes", series)


# ---- texts --------------------------------------------------------------------------------------


Answers = dict[tuple[int, str], Predicted]  # by bytes and choice


def text(answers: Answers, where: Where, machine: str, calls: int) -> str:
    """Return a table of times, or the details of a single case."""
    first = next(iter(answers.values())).plan.signature
    lines = [
        f"# {first.collective} on {machine}: {where.machine.about}",
        f"# {plural(where.size, 'rank')} on {plural(where.nodes, 'node')} of {where.ppn}; "
        "predicted microseconds "
        + ("of a call" if calls == 1 else f"of a call, {calls} calls in a row"),
    ]
    if calls == 1:
        lines.append("# a single call; calls in a loop overlap, see --calls")
    if len(answers) == 1:
        return "\n".join([*lines, *_details(*answers.values())])
    lines += ["# *: the fastest"] if len(answers) > len({n for n, _ in answers}) else []
    return "\n".join([*lines, _panel(answers).table("size")])


def _details(one: Predicted) -> list[str]:
    plan, found = one.plan, one.simulation
    choice = plan.choice
    segment = "whole" if choice.segment is None else format_size(choice.segment)
    levels = [
        f"  {name:<9} {choice.levels[k].describe()}" for k, name in enumerate(plan.topology.names)
    ]
    total = max(found.finish[-1])
    slowest = max(range(len(found.copying)), key=lambda r: found.finish[-1][r])
    return [
        f"call      {plan.signature.describe()}",
        f"time      {short(one.seconds * 1e6)} us",
        f"segment   {segment}, {choice.schedule}",
        *levels,
        f"rank {slowest} ends last: "
        f"copying {found.copying[slowest] / total:.0%}, "
        f"reducing {found.reducing[slowest] / total:.0%}, "
        f"messages {found.messaging[slowest] / total:.0%}, else waiting",
        *(
            f"messages  {count} on {name}, {format_size(nbytes)}"
            for name, count, nbytes in zip(one.levels, found.messages, found.nbytes, strict=True)
        ),
    ]


def record(answers: Answers, where: Where, machine: str, calls: int) -> dict[str, Any]:
    """Return the answers as plain data; times in seconds."""
    return {
        "machine": machine,
        "nodes": where.nodes,
        "ppn": where.ppn,
        "calls": calls,
        "collective": next(iter(answers.values())).plan.signature.collective,
        "predictions": [
            {
                "nbytes": nbytes,
                "choice": name,
                "seconds": one.seconds,
                "operations": one.simulation.operations,
                "messages": dict(zip(one.levels, one.simulation.messages, strict=True)),
                "bytes": dict(zip(one.levels, one.simulation.nbytes, strict=True)),
            }
            for (nbytes, name), one in answers.items()
        ],
    }
