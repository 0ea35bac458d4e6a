"""The network adapters that a rank's environment tells its MPI library to use; their rates."""

from __future__ import annotations

import re
import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from han.common.system import text_of

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


MBIT = 1e6 / 8  # bytes
# From linux/rtnetlink.h, linux/netlink.h and linux/pkt_sched.h.
GETQDISC, REQUEST, DUMP, DONE, ERROR = 38, 0x1, 0x300, 3, 2
KIND, OPTIONS, PARAMETERS, RATE64 = 1, 2, 1, 4
HEADER, QUEUE, ATTRIBUTE = struct.Struct("=IHHII"), struct.Struct("=BBHiIII"), struct.Struct("=HH")
RATE_AT = 8  # of the rate in bytes a second, within the parameters of a token bucket


def link_rate(environ: Mapping[str, str], system: Path = SYSTEM) -> float:
    """Return the Mbit/s of this rank's adapter; 0 if the system does not tell.

    It is an adapter that the environment names, or else the fastest one. A token bucket on it
    limits its rate.
    """
    named = bound_names(environ)
    limits = shaped()
    rates = [
        _limited(_speed(one), limits.get(_number(one / "ifindex")))
        for one in _folders(system / "net")
        if one.name in named or not named
    ]
    rates += [
        _gigabits(port / "rate")
        for one in _folders(system / "infiniband")
        if one.name in named or not named
        for port in _folders(one / "ports")
    ]
    return max(rates, default=0.0)


def _folders(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _number(file: Path) -> int:
    text = text_of(file)
    return int(text) if text.lstrip("-").isdigit() else 0


def _speed(adapter: Path) -> float:
    """Return the Mbit/s of an adapter; 0: unknown. That of a TUN device stands for nothing."""
    if (adapter / "tun_flags").exists():
        return 0.0
    return float(max(0, _number(adapter / "speed")))


def _gigabits(file: Path) -> float:
    """Return the Mbit/s of ``100 Gb/sec (4X EDR)``."""
    try:
        return float(text_of(file).split()[0]) * 1000
    except (IndexError, ValueError):
        return 0.0


def _limited(speed: float, limit: float | None) -> float:
    if limit is None:
        return speed
    return min(speed, limit) if speed else limit


# ---- token buckets, from the kernel ---------------------------------------------------------


def shaped() -> dict[int, float]:
    """Return the Mbit/s of the token bucket of each adapter that has one, by its index."""
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW) as kernel:
            kernel.settimeout(1.0)
            kernel.bind((0, 0))
            size = HEADER.size + QUEUE.size
            head = HEADER.pack(size, GETQDISC, REQUEST | DUMP, 1, 0)
            kernel.send(head + QUEUE.pack(socket.AF_UNSPEC, 0, 0, 0, 0, 0, 0))
            return dict(_buckets(kernel))
    except (OSError, struct.error):  # a system that does not let programs ask
        return {}


def _buckets(kernel: socket.socket) -> Iterator[tuple[int, float]]:
    while True:
        data = kernel.recv(1 << 16)
        while data:
            size, kind, *_ = HEADER.unpack_from(data)
            if kind in (DONE, ERROR) or size < HEADER.size:
                return
            found = _bucket(data[HEADER.size : size])
            if found is not None:
                yield found
            data = data[size + -size % 4 :]


def _bucket(message: bytes) -> tuple[int, float] | None:
    """Return the adapter and the Mbit/s of a queue that is a token bucket and tells its rate."""
    index = QUEUE.unpack_from(message)[3]
    told = dict(_attributes(message[QUEUE.size :]))
    if told.get(KIND, b"").rstrip(b"\0") != b"tbf":
        return None
    options = dict(_attributes(told.get(OPTIONS, b"")))
    if RATE64 in options:
        (rate,) = struct.unpack_from("=Q", options[RATE64])
    elif len(options.get(PARAMETERS, b"")) >= RATE_AT + 4:
        (rate,) = struct.unpack_from("=I", options[PARAMETERS], RATE_AT)
    else:
        return None
    return index, rate / MBIT


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    while len(data) >= ATTRIBUTE.size:
        size, kind = ATTRIBUTE.unpack_from(data)
        if size < ATTRIBUTE.size:
            return
        yield kind & 0x3FFF, data[ATTRIBUTE.size : size]
        data = data[size + -size % 4 :]
