"""The network adapters that the environment of a rank tells its MPI library to use."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

SYSTEM = Path("/sys/class")
# Variables that name adapters, and who reads them. Other values of some are networks (10.0.0.0/16).
VARIABLES: Mapping[str, str] = {
    "UCX_NET_DEVICES": "UCX: MPICH, Open MPI with pml ucx",
    "OMPI_MCA_btl_tcp_if_include": "Open MPI over TCP",
    "FI_TCP_IFACE": "libfabric over TCP: Intel MPI, MPICH with netmod ofi",
    "FI_VERBS_IFACE": "libfabric over verbs",
    "FI_PSM3_NIC": "libfabric over PSM3",
}
NAME = re.compile(r"(?!all$|any$)[A-Za-z][\w.-]*")  # of one adapter; other text is a pattern


class Bound(NamedTuple):
    """What binds one rank: a variable and its value; `missing` are adapters that do not exist."""

    host: str
    variable: str = ""
    value: str = ""
    missing: tuple[str, ...] = ()


def bound(host: str, environ: Mapping[str, str], system: Path = SYSTEM) -> list[Bound]:
    """Return the variables of this rank that name adapters."""
    set_here = [(name, environ[name]) for name in VARIABLES if environ.get(name)]
    return [Bound(host, name, text, _missing(text, system)) for name, text in set_here]


def bound_names(environ: Mapping[str, str]) -> frozenset[str]:
    """Return the adapters that the environment of this rank names."""
    texts = [environ[name] for name in VARIABLES if environ.get(name)]
    return frozenset(name for text in texts for name in _names(text))


def _names(text: str) -> list[str]:
    """Return the adapters in a value, without patterns and networks."""
    parts = [part.strip().partition(":")[0] for part in text.split(",")]
    return [part for part in parts if NAME.fullmatch(part)]


def _missing(text: str, system: Path) -> tuple[str, ...]:
    """Return the adapters in `text` that this node lacks."""
    kinds = ("net", "infiniband")
    return tuple(
        name for name in _names(text) if not any((system / kind / name).exists() for kind in kinds)
    )


def contradictions(rails: Sequence[int], found: Sequence[Sequence[Bound]]) -> list[str]:
    """Return where adapters and rails differ; both are by rank.

    On one node, ranks of one rail have one adapter, and ranks of two rails have two.
    """
    said = []
    adapters: dict[tuple[str, str, int], tuple[int, str]] = {}
    owners: dict[tuple[str, str, str], tuple[int, int]] = {}
    for rank, (rail, variables) in enumerate(zip(rails, found, strict=True)):
        for host, variable, value, _ in variables:
            first, other = adapters.setdefault((host, variable, rail), (rank, value))
            if other != value:
                said.append(
                    f"ranks {first} and {rank} of {host} have rail {rail}, but {variable} is"
                    f" {other} and {value}"
                )
            first, taken = owners.setdefault((host, variable, value), (rank, rail))
            if taken != rail:
                said.append(
                    f"ranks {first} and {rank} of {host} have rails {taken} and {rail}, but"
                    f" {variable} is {value} for both"
                )
    return said
