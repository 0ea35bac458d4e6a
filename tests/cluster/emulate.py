"""Emulate a cluster on one Linux machine (as root), with real network stacks between nodes.

network.py creates nodes and links, launch.py runs MPI programs on them. This is the command line:

    python emulate.py run --nodes 4 --ppn 2 --rate 1gbit -- python prog.py
    python emulate.py run --nodes 4 --ppn 2 --rate 1gbit --latency 20us -- python prog.py
    python emulate.py run --nodes 16 --ppn 4 --latency 50ms -- python prog.py
    python emulate.py run --nodes 4 --ppn 2 --rails 2 --rate 500mbit -- python prog.py

docs/cluster.md explains the options.
"""

import contextlib
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Annotated

import typer
from binding import LOCAL_RANK
from host import EmulationError
from launch import LIBRARIES, Cluster
from network import check, remove, stale
from wiring import Links

from han.config.machine import parse_time

app = typer.Typer(help=__doc__, add_completion=False, no_args_is_help=True)
Nodes = Annotated[int, typer.Option(help="Number of nodes.")]
Rate = Annotated[
    str | None,
    typer.Option(
        help="Rate of each link in each direction, as tc writes it; 1gbit by default, none with"
        " --latency."
    ),
]
Latency = Annotated[
    str | None,
    typer.Option(
        help="Time of a packet from node to node, as 50ms. With --rate, a message after a pause"
        " passes at that rate too."
    ),
]
Rails = Annotated[int, typer.Option(help="Network adapters of each node, each with its link.")]


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


def _parse_links(rate: str | None, latency: str | None, rails: int) -> Links:
    if latency is None:
        return Links(rate, rails=rails)
    try:
        seconds = parse_time(latency)
    except ValueError as error:
        raise EmulationError(f"--latency {error}") from None
    if not seconds:
        raise EmulationError(f"--latency {latency}: must be above 0; leave it out for none")
    return Links(rate, seconds, rails)


@app.command()
def up(nodes: Nodes = 4, rate: Rate = None, latency: Latency = None, rails: Rails = 1) -> None:
    """Create a cluster that stays until `down`; print the namespaces of its nodes."""
    with _failures_as_exits(), contextlib.ExitStack() as undo:
        links = _parse_links(rate, latency, rails)
        cluster = undo.enter_context(Cluster(nodes, links))
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
def check_machine(rate: Rate = None, latency: Latency = None, rails: Rails = 1) -> None:
    """Print whether this machine can emulate a cluster; if not, print why and exit with 1."""
    with _failures_as_exits():
        reason = check(_parse_links(rate, latency, rails))
    print(reason or "this machine can emulate a cluster")
    raise SystemExit(1 if reason else 0)


@app.command()
def run(
    command: Annotated[list[str], typer.Argument(help="The program, after --.")],
    nodes: Nodes = 4,
    rate: Rate = None,
    latency: Latency = None,
    rails: Rails = 1,
    bind: Annotated[
        str,
        typer.Option(
            help="Rails of the ranks: local_rank (in turn), none (the MPI library chooses), or "
            "a rail for each local rank, as 0,0,1."
        ),
    ] = LOCAL_RANK,
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
        with Cluster(nodes, _parse_links(rate, latency, rails)) as cluster:
            done = cluster.run(
                command,
                ppn=counts if len(counts) > 1 else counts[0],
                mpi=mpi,
                python=python,
                timeout=timeout,
                env=settings,
                bind=bind,
                capture=False,
            )
    raise SystemExit(done.returncode)


if __name__ == "__main__":
    app()
