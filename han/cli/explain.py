"""The command ``han explain``."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from han.cli import imagined, options
from han.cli.common import call_of, check_files, drawn, say, size_of, world
from han.common.errors import ArgumentError
from han.config.machine import load_machine
from han.model.collectives import expect_size
from han.plots.tasks import plan_picture
from han.tuning.built_in.choosing import NodeTraits
from han.tuning.explanation import Explanation
from han.tuning.prediction import Where


def explain(
    collective: options.Collective,
    size: options.Size = "",
    op: options.Op = "sum",
    dtype: options.Dtype = "f8",
    root: options.Root = 0,
    config: options.Config = None,
    ranks: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Plan for this number of ranks on an imagined machine, not for the ranks that run "
            "the command. The imagined machine has a core for each rank and no mesh, unless "
            "options say otherwise, and its ranks do not read each other's memory.",
        ),
    ] = None,
    ppn: Annotated[
        int | None,
        typer.Option(min=1, help="Ranks per node, with --ranks. By default one node has all."),
    ] = None,
    oversubscribed: options.Oversubscribed = False,
    mesh: options.Mesh = False,
    cores: options.Cores = 0,
    rdma: options.Rdma = False,
    sockets: options.Sockets = 1,
    machine: Annotated[
        str | None,
        typer.Option(
            help="With --ranks: a machine file, or a ready machine, whose cores, adapters and "
            "profile the imagined machine has."
        ),
    ] = None,
    plot: options.Plot = None,
    as_json: options.JsonFlag = False,
) -> None:
    """Show what a call would run, and the rule that chose it.

    \b
    Examples:
      mpiexec -n 4 han explain allreduce 4MiB --config virtual-2x2
      han explain bcast 1MiB --ranks 64 --ppn 8 --sockets 2
      han explain allreduce 4KiB --ranks 256 --ppn 32 --machine thor
      han explain allreduce 1MiB --ranks 8 --ppn 2 --plot taskgraph.png
    """
    check_files(plot=plot)
    expect_size(collective, size)
    call = call_of(collective, size_of(size or "0"), op, dtype, root)
    traits = NodeTraits(oversubscribed, mesh, cores, rdma)
    if machine is not None:
        traits, sockets = _node_of(machine, ranks, ppn, any(traits) or sockets > 1)
    found = explained(call, config, ranks, ppn, traits, leaves=True, sockets=sockets)
    drawn(plot, partial(plan_picture, found.plan))
    say(imagined.explanation_json(found) if as_json else str(found))


def _node_of(
    machine: str, ranks: int | None, ppn: int | None, described: bool
) -> tuple[NodeTraits, int]:
    """Return the traits and the sockets of a machine's nodes.

    Raises ArgumentError if options describe nodes too.
    """
    if ranks is None or described:
        raise ArgumentError("--machine needs --ranks, and no other option that describes nodes")
    node = Where(load_machine(machine), 1, ppn or ranks).imagined()
    return node.traits, len({*node.sockets})


def explained(
    call: imagined.Call, config: str | None,
    ranks: int | None, ppn: int | None, traits: NodeTraits, leaves: bool = False, sockets: int = 1,
) -> Explanation:  # fmt: skip
    """Explain a call on these ranks, or on an imagined machine if `ranks` is given.

    `leaves` is that of :func:`imagined.imagine`.
    """
    if ranks is not None:
        return imagined.imagine(ranks, ppn or ranks, config, call, traits, leaves, sockets)
    given = {"ppn": ppn, "sockets": sockets > 1, **traits._asdict()}
    for name in (name for name, value in given.items() if value):
        raise ArgumentError(f"--{name} needs --ranks")
    return _explained_here(call, config)


def _explained_here(call: imagined.Call, config: str | None) -> Explanation:
    """Explain a call on the ranks that run the command."""
    comm = world().Dup()
    from mpi4py import MPI

    from han.comm import Comm

    collective, nbytes, op, dtype, root = call
    return Comm(comm, config).explain(collective, nbytes, getattr(MPI, op.upper()), dtype, root)
