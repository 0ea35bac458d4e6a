"""The command ``han simulate``: how long calls take on a machine that is not here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from mpi4py import MPI

from han._cli_common import (
    ConfigOption,
    DtypeOption,
    JsonFlag,
    OpOption,
    PlotOption,
    RootOption,
    check_files,
    progress,
    say,
)
from han._suggest import unknown
from han.errors import ArgumentError
from han.tasks.signature import COLLECTIVES

if TYPE_CHECKING:
    from han.config import Config
    from han.tasks.signature import Signature
    from han.tuning.prediction import Predicted, Where

Answers = list[tuple["Signature", dict[str, "Predicted"]]]


def simulate(
    machine: Annotated[
        str, typer.Option(help="YAML file, or the name of a ready machine.", show_default=False)
    ],
    collective: Annotated[str, typer.Option(help=", ".join(COLLECTIVES))] = "bcast",
    nbytes: Annotated[
        str, typer.Option("--bytes", help="4MiB, 8:4MiB (doubling), 8:4MiB:8, or 8,1KiB,1MiB.")
    ] = "4MiB",
    nodes: Annotated[int | None, typer.Option(min=1, help="The machine's, if unsaid.")] = None,
    ppn: Annotated[int | None, typer.Option(min=1, help="Ranks per node; likewise.")] = None,
    algorithm: Annotated[
        list[str] | None,
        typer.Option(help="LEVEL=SUBMODULE[.ALGORITHM][:PARAMETER=VALUE,...]; more than once."),
    ] = None,
    segment: Annotated[
        str, typer.Option(help="Segment sizes to compare: 32KiB,128KiB,whole.")
    ] = "",
    op: OpOption = "sum",
    dtype: DtypeOption = "f8",
    root: RootOption = 0,
    config: ConfigOption = None,
    calls: Annotated[int, typer.Option(min=1, help="Calls back to back.")] = 1,
    plot: PlotOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Predict how long a call takes on a machine described in YAML, and what it does there.

    The Programs that would run there are run in virtual time: every rank's operations, messages
    with latency, bandwidth and the limits of adapters, copies that share a node's memory.

    \b
    Examples:
      han simulate --machine emulated-1gbit --collective bcast --bytes 8:4MiB:8
      han simulate --machine stampede2 --nodes 64 --ppn 12 --segment 16KiB,64KiB,256KiB,1MiB
      han simulate --machine stampede2 --nodes 64 --algorithm network=adapt.binary:segment=64KiB
      han simulate --machine emulated-1gbit --bytes 8:4MiB --segment 32KiB,whole --plot sizes.png
    """
    from han.bench import parse_sizes
    from han.config import load_config
    from han.explain import make_signature
    from han.tuning.machine import load_machine
    from han.tuning.prediction import Where, sized, with_choice

    check_files(plot)
    if collective not in COLLECTIVES:
        raise ArgumentError(unknown("collective", collective, COLLECTIVES))
    model = load_machine(machine)
    where = Where(model, nodes or model.nodes, ppn or model.ppn)
    if not 0 <= root < where.size:
        raise ArgumentError(f"root {root} is not in 0..{where.size - 1}")
    base = load_config(config)
    choices = {
        one or "chosen": with_choice(base, algorithm or (), one or None)
        for one in segment.split(",")
    }
    first = make_signature(collective, 0, _op(op), dtype, root)
    sizes = parse_sizes(nbytes) if collective != "barrier" else [0]
    signatures = [sized(first, n) for n in sizes]
    if MPI.COMM_WORLD.rank:
        return
    answers = _predict(where, choices, signatures, calls)
    _answer(answers, where, machine, calls, plot, as_json)


def _op(name: str) -> MPI.Op:
    from han.dtypes import OPS

    if name not in OPS:
        raise ArgumentError(unknown("operation", name, OPS))
    op: MPI.Op = getattr(MPI, name.upper())
    return op


def _predict(
    where: Where, choices: dict[str, Config], signatures: list[Signature], calls: int
) -> Answers:
    from han.tuning.prediction import predict

    answers: Answers = []
    with progress(len(signatures) * len(choices) * where.size * calls, "simulating") as advance:
        for signature in signatures:
            found = {
                name: predict(where, one, signature, runs=calls, tell=advance)
                for name, one in choices.items()
            }
            answers.append((signature, found))
    return answers


def _answer(
    answers: Answers, where: Where, machine: str, calls: int, plot: Path | None, as_json: bool
) -> None:
    from han import _simulate_texts as texts

    if as_json:
        say(json.dumps(texts.record(answers, where, machine, calls), indent=1))
    else:
        say(texts.text(answers, where, machine, calls))
    if plot is not None:
        _plot(answers, where, machine, plot)


def _plot(answers: Answers, where: Where, machine: str, plot: Path) -> None:
    from han import plots_lines

    series: dict[str, dict[int, Any]] = {}
    for signature, found in answers:
        for name, one in found.items():
            series.setdefault(name, {})[signature.nbytes] = one.seconds * 1e6
    title = f"{answers[0][0].collective} on {machine}: {where.nodes} nodes of {where.ppn}"
    plots_lines.lines([plots_lines.Panel("", "bytes", series)], plot, title)
