"""The command ``han plan``."""

from __future__ import annotations

import json
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from han.cli import imagined, options, plan_texts
from han.cli.common import call_of, check_files, drawn, rank, say, size_of, write_file
from han.cli.explain import explained
from han.cli.progress import phases
from han.plots.tasks import plan_picture
from han.tuning.built_in.traits import NodeTraits


class Form(str, Enum):
    """How a plan is written."""

    STAGES = "stages"
    DOT = "dot"
    MERMAID = "mermaid"


def plan(
    collective: options.Collective,
    size: options.Size = "0",
    ranks: options.Ranks = 8,
    ppn: options.Ppn = None,
    oversubscribed: options.Oversubscribed = False,
    mesh: options.Mesh = False,
    op: options.Op = "sum",
    dtype: options.Dtype = "f8",
    root: options.Root = 0,
    config: options.Config = None,
    form: Annotated[Form, typer.Option("--as", help="The format of the task graph.")] = Form.STAGES,
    disassemble: Annotated[
        int | None, typer.Option(min=0, metavar="RANK", help="List the operations of a rank.")
    ] = None,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify",
            help="Prove the programs of all ranks, of this size and of all of "
            "its class, or show a counterexample.",
        ),
    ] = False,
    plot: options.Plot = None,
    save: Annotated[
        Path | None, typer.Option(help="Write graph and programs to a file for 'han verify'.")
    ] = None,
    as_json: options.JsonFlag = False,
) -> None:
    """Show what each rank would do for a call, and prove it right.

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
    found = explained(call, config, ranks, ppn, NodeTraits(oversubscribed, mesh))
    drawn(plot, partial(plan_picture, found.plan))
    if save is not None and not rank():
        write_file(save, plan_texts.stored(found))
    if verify:
        with phases() as progress:
            of_class = imagined.class_of_call(found, config)
            proof = plan_texts.prove(found, of_class, progress)
        say(json.dumps(proof.as_dict(), indent=2) if as_json else str(proof))
    elif disassemble is not None:
        say(plan_texts.listing(found, disassemble, as_json))
    elif as_json:
        say(imagined.explanation_json(found))
    else:
        say(plan_texts.picture(found, form.value))
