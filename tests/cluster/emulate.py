"""Emulate a cluster on one Linux machine (as root), with real network stacks between nodes.

network.py creates nodes and links, launch.py runs MPI programs on them. This is the command line:

    python emulate.py run --nodes 4 --ppn 2 --rate 1gbit -- python prog.py
"""

import contextlib
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Annotated

import typer
from host import EmulationError
from launch import LIBRARIES, Cluster
from network import check, remove, stale

app = typer.Typer(help=__doc__, add_completion=False, no_args_is_help=True)
Nodes = Annotated[int, typer.Option(help="Number of nodes.")]
Rate = Annotated[str, typer.Option(help="Rate of each link in each direction, as tc writes it.")]


@contextlib.contextmanager
def _failures_as_exits() -> Iterator[None]:
    """Turn the first signal into an exit that cleans up, and known errors into one line."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def leave(number: int, _frame: object) -> None:
        for each in numbers:
            signal.signal(each, signal.SIG_IGN)
        raise SystemExit(128 + number)

    for number in numbers:
        signal.signal(number, leave)
    try:
        yield
    except EmulationError as error:
        print(f"emulate: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except subprocess.TimeoutExpired as error:
        print(f"emulate: killed after {error.timeout:g} s", file=sys.stderr)
        raise SystemExit(124) from None


def _parse_counts(text: str) -> list[int]:
    if not re.fullmatch(r"\d+(,\d+)*", text):
        raise EmulationError(f"--ppn {text!r}: a number, or one per node as in 3,1,2, expected")
    return [int(count) for count in text.split(",")]


def _parse_settings(pairs: Sequence[str]) -> dict[str, str]:
    if wrong := [pair for pair in pairs if "=" not in pair]:
        raise EmulationError(f"--env {wrong[0]!r}: K=V expected")
    return dict(pair.split("=", 1) for pair in pairs)


@app.command()
def up(nodes: Nodes = 4, rate: Rate = "1gbit") -> None:
    """Create a cluster that stays until `down`; print the namespaces of its nodes."""
    with _failures_as_exits(), contextlib.ExitStack() as undo:
        cluster = undo.enter_context(Cluster(nodes, rate))
        print(f"emulate: to run a command on a node: {cluster.agent} NODE COMMAND", file=sys.stderr)
        print("\n".join(cluster.namespace(node) for node in cluster.nodes))
        undo.pop_all()


@app.command()
def down() -> None:
    """Remove clusters without a running owner: those of `up` and of killed runs."""
    with _failures_as_exits():
        for tag in stale():
            remove(tag)
            print(tag)


@app.command("check")
def check_machine() -> None:
    """Print whether this machine can emulate a cluster; if not, print why and exit with 1."""
    with _failures_as_exits():
        reason = check()
    print(reason or "this machine can emulate a cluster")
    raise SystemExit(1 if reason else 0)


@app.command()
def run(
    command: Annotated[list[str], typer.Argument(help="The program, after --.")],
    nodes: Nodes = 4,
    rate: Rate = "1gbit",
    ppn: Annotated[
        str, typer.Option(help="Ranks per node: 2 for all nodes, or 3,1,2 for three nodes.")
    ] = "1",
    mpi: Annotated[str | None, typer.Option(help=f"{', '.join(LIBRARIES)}.")] = None,
    python: Annotated[str | None, typer.Option(help="Interpreter beside the mpiexec.")] = None,
    timeout: Annotated[
        float, typer.Option(help="Seconds until the program is killed (status 124).")
    ] = 300,
    env: Annotated[
        list[str] | None, typer.Option(help="K=V, set for the launcher and the ranks.")
    ] = None,
) -> None:
    """Create a cluster, run an MPI program on it, remove it; exit with the program's status."""
    with _failures_as_exits():
        counts, settings = _parse_counts(ppn), _parse_settings(env or ())
        with Cluster(nodes, rate) as cluster:
            done = cluster.run(
                command,
                ppn=counts if len(counts) > 1 else counts[0],
                mpi=mpi,
                python=python,
                timeout=timeout,
                env=settings,
                capture=False,
            )
    raise SystemExit(done.returncode)


if __name__ == "__main__":
    app()
