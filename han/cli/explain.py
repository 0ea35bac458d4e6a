"""The command ``han explain``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from han.cli import imagined, options
from han.cli.common import answer, check_files, drawn, world
from han.cli.words import Call, call_of
from han.common.errors import ArgumentError
from han.plots.tasks import plan_picture
from han.tuning.built_in.choosing import NodeTraits
from han.tuning.explanation import Explanation


def explain(
    words: options.Call,
    nodes: options.Nodes = None,
    ppn: options.Ppn = None,
    ranks: options.Ranks = None,
    machine: options.OtherMachine = None,
    oversubscribed: options.Oversubscribed = False,
    mesh: options.Mesh = False,
    cores: options.Cores = 0,
    rdma: options.Rdma = False,
    sockets: options.Sockets = 1,
    op: options.Op = "sum",
    dtype: options.Dtype = "f8",
    root: options.Root = 0,
    config: options.Config = None,
    plot: options.Plot = None,
    json_file: options.JsonFile = None,
) -> None:
    """Show what a call would run, and the rule that chose it.

    Without --nodes, --ppn and --machine it is a call of the ranks that run the command.

    \b
    Examples:
      mpiexec -n 4 han explain allreduce 4MiB --config virtual-2x2
      han explain bcast 1MiB --nodes 8 --ppn 8 --sockets 2
      han explain allreduce 4KiB --nodes 8 --ppn 32 --machine thor
      han explain allreduce 1MiB --nodes 4 --ppn 2 --plot taskgraph.png
    """
    check_files(json_file, plot=plot)
    call = call_of(words, op, dtype, root)
    traits = NodeTraits(oversubscribed, mesh, cores, rdma)
    shape = imagined.described(nodes, ppn, ranks, machine, traits, sockets)
    if shape is None:
        _check_given({"ranks": ranks, "sockets": sockets > 1, **traits._asdict()})
        found = _explained_here(call, config)
    else:
        found = imagined.imagine_on(shape, config, call, leaves=True)
    drawn(plot, partial(plan_picture, found.plan))
    answer(json_file, lambda: str(found), lambda: imagined.explanation_record(found))


def _check_given(given: Mapping[str, object]) -> None:
    """Raise ArgumentError for an option that needs an imagined machine."""
    for name in (name for name, value in given.items() if value):
        raise ArgumentError(f"--{name} needs --nodes or --ppn")


def _explained_here(call: Call, config: str | None) -> Explanation:
    """Explain a call on the ranks that run the command."""
    comm = world().Dup()
    from mpi4py import MPI

    from han.comm import Comm

    collective, nbytes, op, dtype, root = call
    return Comm(comm, config).explain(collective, nbytes, getattr(MPI, op.upper()), dtype, root)
