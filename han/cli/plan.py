"""The commands about plans: ``han explain``, ``plan`` and ``verify``."""

from __future__ import annotations

import json
from dataclasses import asdict
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from han.cli import imagined
from han.cli import plan_texts as _plan_texts
from han.cli.common import (
    ConfigOption,
    DtypeOption,
    JsonFlag,
    MeshFlag,
    OpOption,
    OversubscribedFlag,
    PlotOption,
    PpnOption,
    RanksOption,
    RootOption,
    call_of,
    check_files,
    phases,
    say,
    size_of,
    write_file,
)
from han.cli.world import rank, world
from han.common.errors import ArgumentError
from han.model.collectives import CALLS
from han.tuning.heuristics import Machine

if TYPE_CHECKING:
    from han.tuning.explanation import Explanation


def explain(
    collective: Annotated[str, typer.Argument(help=", ".join(CALLS))],
    size: Annotated[str, typer.Argument(help="Bytes: 4MiB, 64KiB, 8.")] = "0",
    op: OpOption = "sum",
    dtype: DtypeOption = "f8",
    root: RootOption = 0,
    config: ConfigOption = None,
    ranks: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Plan for this many ranks on an imagined machine rather than for those that run "
            "here: a core for each rank and no mesh, unless said.",
        ),
    ] = None,
    ppn: Annotated[
        int | None, typer.Option(min=1, help="With --ranks: ranks per node; all on one if unsaid.")
    ] = None,
    oversubscribed: OversubscribedFlag = False,
    mesh: MeshFlag = False,
    plot: PlotOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Show what a call would run, stage by stage, and the rule that chose it.

    \b
    Examples:
      mpiexec -n 4 han explain allreduce 4MiB --config virtual-2x2
      han explain bcast 1MiB --ranks 64 --ppn 8
      han explain allreduce 1MiB --ranks 8 --ppn 2 --plot taskgraph.png
    """
    check_files(plot=plot)
    call = call_of(collective, size_of(size), op, dtype, root)
    found = _explain(call, config, ranks, ppn, Machine(oversubscribed, mesh))
    _plot(found, plot)
    say(imagined.explanation_json(found) if as_json else str(found))


def verify(
    files: Annotated[list[Path], typer.Argument(help="What 'han plan --save FILE' wrote.")],
    as_json: JsonFlag = False,
) -> None:
    """Prove stored plans right, three times back to back.

    \b
    Example:
      han plan bcast 1MiB --ranks 64 --ppn 8 --save bcast.json && han verify bcast.json
    """
    proofs = []
    for path in files:
        with phases() as progress:
            proof = _plan_texts.prove_file(path, progress)
        proofs.append({"file": str(path), **proof.as_dict()})
        if not as_json:
            say(f"{path}: {proof}")
    if as_json:
        say(json.dumps(proofs, indent=2))


class Form(str, Enum):
    """How a plan is written."""

    STAGES = "stages"
    DOT = "dot"
    MERMAID = "mermaid"


def plan(
    collective: Annotated[str, typer.Argument(help=", ".join(CALLS))],
    size: Annotated[str, typer.Argument(help="Bytes: 4MiB, 64KiB, 8.")] = "0",
    ranks: RanksOption = 8,
    ppn: PpnOption = None,
    oversubscribed: OversubscribedFlag = False,
    mesh: MeshFlag = False,
    op: OpOption = "sum",
    dtype: DtypeOption = "f8",
    root: RootOption = 0,
    config: ConfigOption = None,
    form: Annotated[Form, typer.Option("--as", help="How to write the task graph.")] = Form.STAGES,
    disassemble: Annotated[
        int | None, typer.Option(min=0, metavar="RANK", help="List the operations of a rank.")
    ] = None,
    verify: Annotated[
        bool,
        typer.Option("--verify", help="Prove all ranks' programs, or say what is wrong."),
    ] = False,
    plot: PlotOption = None,
    save: Annotated[
        Path | None, typer.Option(help="Write graph and programs to a file, for 'han verify'.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show what ranks would do for a call, down to their operations, and prove it right.

    \b
    Examples:
      han plan allreduce 1MiB --ranks 8 --ppn 2
      han plan bcast 64KiB --ranks 8 --ppn 2 --disassemble 3
      han plan allreduce 4MiB --ranks 64 --ppn 8 --verify
      han plan bcast 1MiB --ranks 8 --ppn 2 --as dot | dot -Tsvg -o bcast.svg
      han plan allreduce 8MiB --ranks 16 --config four-levels-virtual --plot tasks.png
    """
    check_files(save, plot=plot)
    call = call_of(collective, size_of(size), op, dtype, root)
    found = _explain(call, config, ranks, ppn, Machine(oversubscribed, mesh))
    _plot(found, plot)
    if save is not None and not rank():
        write_file(save, _plan_texts.stored(found))
    if verify:
        with phases() as progress:
            proof = _plan_texts.prove(found, progress)
        say(json.dumps(proof.as_dict(), indent=2) if as_json else str(proof))
    elif disassemble is not None:
        say(_plan_texts.listing(found, disassemble, as_json))
    elif as_json:
        say(imagined.explanation_json(found))
    else:
        say(_plan_texts.picture(found, form.value))


def _explain(
    call: imagined.Call, config: str | None,
    ranks: int | None, ppn: int | None, conditions: Machine,
) -> Explanation:  # fmt: skip
    if ranks is not None:
        return imagined.imagine(ranks, ppn or ranks, config, call, conditions)
    given = {"ppn": ppn, **asdict(conditions)}
    for name in (name for name, value in given.items() if value):
        raise ArgumentError(f"--{name} goes with --ranks")
    return _explain_here(call, config)


def _explain_here(call: imagined.Call, config: str | None) -> Explanation:
    """Explain a call on the ranks that run the command."""
    comm = world().Dup()
    from mpi4py import MPI

    from han.comm import Comm

    collective, nbytes, op, dtype, root = call
    return Comm(comm, config).explain(collective, nbytes, getattr(MPI, op.upper()), dtype, root)


def _plot(found: Explanation, path: Path | None) -> None:
    """Draw the task graph, if that is wanted; rank 0 does."""
    if path is not None and not rank():
        from han.plots.tasks import plan_picture

        plan_picture(found.plan, path)
