"""Options and arguments that several commands have."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from han.model.collectives import calls

Config = Annotated[
    str | None,
    typer.Option("--config", help="A YAML file, or the name of a ready configuration."),
]
SIZES = "4MiB, 8:8MiB (doubling), 8:8MiB:4 (times 4) or 8,1KiB,1MiB"


ONE = f"One of {', '.join(calls())}; bytes"


def words(metavar: str, about: str, first: Iterable[str] = ()) -> Any:
    """Return an argument of words, which the shell completes with `first` and names of calls."""

    def complete(incomplete: str) -> list[str]:
        return [one for one in (*first, *calls()) if one.startswith(incomplete)]

    return typer.Argument(metavar=metavar, help=about, autocompletion=complete)


Call = Annotated[list[str], words("COLLECTIVE [SIZE]", f"{ONE}: 4MiB, 64KiB, 8.")]
OptionalCall = Annotated[list[str] | None, words("[COLLECTIVE] [SIZE]", f"{ONE}: 4MiB, 64KiB, 8.")]
CallOfSizes = Annotated[list[str] | None, words("[COLLECTIVE] [SIZES]", f"{ONE}: {SIZES}.")]
Calls = Annotated[
    list[str] | None,
    words("[COLLECTIVES] [SIZES]", f"Collectives, as allreduce,bcast; bytes: {SIZES}."),
]
Iterations = Annotated[
    int | None, typer.Option(min=1, help="Calls in a batch. By default chosen by time.")
]
Time = Annotated[
    float,
    typer.Option(
        min=0,
        help="Seconds of timed calls for a size, of all sides and rounds; a batch takes 2 ms or "
        "more.",
    ),
]
JsonFile = Annotated[
    Path | None,
    typer.Option("--json", help="Write JSON to a file; without one, or for -, print it."),
]
Plot = Annotated[Path | None, typer.Option("--plot", help="Write a picture (.png, .pdf, .svg).")]
Dtype = Annotated[str, typer.Option(help="The element type, by NumPy's name.")]
Op = Annotated[str, typer.Option(help="The operation: sum, prod, max, min, land, band ...")]
Root = Annotated[int, typer.Option(min=0, help="The root of calls that have one.")]
Machine = Annotated[
    str, typer.Option(help="A YAML file, or the name of a ready machine.", show_default=False)
]
OtherMachine = Annotated[
    str | None,
    typer.Option(
        "--machine",
        help="A YAML file, or the name of a ready machine, whose shape, cores, adapters and "
        "profile count. Without it the machine has a core for each rank and no mesh, unless "
        "options say otherwise, and its ranks do not read each other's memory.",
    ),
]
Machines = Annotated[
    str, typer.Option("--machine", help="Machines, with commas: YAML files or ready ones.")
]
Nodes = Annotated[
    int | None, typer.Option(min=1, help="Nodes. By default those of the machine, or 1.")
]
Ppn = Annotated[
    int | None, typer.Option(min=1, help="Ranks a node. By default those of the machine, or 8.")
]
ManyNodes = Annotated[str, typer.Option("--nodes", help="Numbers of nodes, with commas.")]
ManyPpn = Annotated[str, typer.Option("--ppn", help="Numbers of ranks a node, with commas.")]
Ranks = Annotated[
    int | None,
    typer.Option(min=1, help="All ranks, if the last node has fewer than the others."),
]
Oversubscribed = Annotated[
    bool, typer.Option("--oversubscribed", help="Plan for nodes with more ranks than cores.")
]
Mesh = Annotated[
    bool,
    typer.Option(
        "--mesh",
        help="Plan for processors whose cores exchange cache lines slowly, as on a mesh. "
        "'han info' shows whether this processor is one.",
    ),
]
Cores = Annotated[
    int, typer.Option(min=0, help="Plan for nodes of so many cores. By default it is not known.")
]
Rdma = Annotated[
    bool, typer.Option("--rdma", help="Plan for adapters that do remote DMA, as InfiniBand does.")
]
Sockets = Annotated[
    int,
    typer.Option(min=1, help="Plan for nodes of so many sockets, which share the ranks evenly."),
]
