"""Options and arguments that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from han.model.collectives import calls

Config = Annotated[
    str | None,
    typer.Option("--config", help="A YAML file, or the name of a ready configuration."),
]
Collective = Annotated[str, typer.Argument(help=", ".join(calls()))]
Size = Annotated[str, typer.Argument(help="Bytes: 4MiB, 64KiB, 8.")]
Sizes = Annotated[str, typer.Option(help="As for han bench.")]
Iterations = Annotated[
    int | None, typer.Option(min=1, help="Calls in a batch. By default chosen by time.")
]
Time = Annotated[float, typer.Option(min=0, help="Approximate seconds for a size.")]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON.")]
JsonFile = Annotated[
    Path | None, typer.Option("--json", help="Write JSON to a file; - is standard output.")
]
Plot = Annotated[Path | None, typer.Option("--plot", help="Write a picture (.png, .pdf, .svg).")]
Dtype = Annotated[str, typer.Option(help="The element type, by NumPy's name.")]
Op = Annotated[str, typer.Option(help="The operation: sum, prod, max, min, land, band ...")]
Root = Annotated[int, typer.Option(min=0, help="The root of calls that have one.")]
Machine = Annotated[
    str, typer.Option(help="A YAML file, or the name of a ready machine.", show_default=False)
]
Ranks = Annotated[
    int,
    typer.Option(
        min=1,
        help="Ranks of the imagined machine. It has a core for each rank and no mesh, unless "
        "options say otherwise, and its ranks do not read each other's memory. Nothing is taken "
        "from this machine.",
    ),
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
Ppn = Annotated[
    int | None, typer.Option(min=1, help="Ranks per node. By default one node has all ranks.")
]
Sockets = Annotated[
    int,
    typer.Option(min=1, help="Plan for nodes of so many sockets, which share the ranks evenly."),
]
