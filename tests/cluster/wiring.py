"""What joins the nodes of an emulated cluster: links of a rate, or a switch with a latency.

A node has an adapter for each rail: eth0, eth1 ... Rail r of node i has the address 10.77.r.(i+2).
All adapters are in one network, so that every rail reaches every other one. What is sent from an
adapter's address leaves through that adapter (a routing table for each), and only this adapter
answers for the address.
"""

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Interface, IPv4Network
from pathlib import Path

from host import COMMAND_S, STOP_S, EmulationError, ip, run

BRIDGE = "br0"  # the hub's adapter
NETWORK = IPv4Network("10.77.0.0/16")  # of the namespaces only
FIRST_RAIL = IPv4Network("10.77.0.0/24")  # and the hub
USUAL = "1gbit"
SHAPE = "latency 200ms"
BURST_S = 1.05e-3  # of a link after a pause, as a token bucket lets through: 128 KB at 1 Gbit/s
SLOW = 200e6  # bits a second up to which a machine can shape two packets at a time
PACKET = 1514  # bytes
TRAINS = 4  # of packets that the kernel sends as one: the fewest that fill a bucket
RATE = re.compile(r"(?P<number>\d+(\.\d+)?)(?P<prefix>[kmgt]?)(?P<binary>i?)(?P<unit>bit|bps|)$")
TUN = Path("/dev/net/tun")
MTU = 9000  # of the switch's links: fewer packets for its one process
QUEUE = 10000  # packets that a switch may be late to take
RAILS = 8  # most of a node
LATENCY_S = 10.0  # the highest
TABLE = 100  # routing table of rail 0; the next rails have the next ones
ARP = "cd /proc/sys/net/ipv4/conf/all && echo 1 >arp_ignore && echo 2 >arp_announce"


@dataclass(frozen=True)
class Links:
    """The links of a cluster: `rails` of each node, of a rate (as `tc` writes it) and a latency.

    `latency`: seconds each way between two nodes. Without a rate, links with a latency have none,
    and others have USUAL.
    """

    rate: str | None = None
    latency: float = 0.0
    rails: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.rails <= RAILS:
            raise EmulationError(f"--rails {self.rails}: a node has 1 to {RAILS} rails")
        if not 0 <= self.latency <= LATENCY_S:
            raise EmulationError(f"--latency {self.latency:g}s: above 0, at most {LATENCY_S:g}s")
        if self.limit is not None:
            speed(self.limit)

    def __str__(self) -> str:
        latency = f"{self.latency * 1e3:g} ms each way" if self.latency else None
        rails = f"{self.rails} rails a node" if self.rails > 1 else None
        return ", ".join(text for text in (self.limit, latency, rails) if text)

    @property
    def limit(self) -> str | None:
        """The rate of each link, or None if links have no rate."""
        return self.rate or (None if self.latency else USUAL)

    @property
    def byte(self) -> float:
        """The seconds that a byte takes on a link, 0 if links have no rate."""
        return 1 / speed(self.limit) if self.limit else 0.0

    @property
    def adapters(self) -> tuple[str, ...]:
        """The names of a node's adapters, by rail."""
        return tuple(f"eth{rail}" for rail in range(self.rails))

    def problem(self) -> str | None:
        """Return why this machine cannot have such links, or None."""
        if not self.latency:
            return None
        try:
            os.close(os.open(TUN, os.O_RDWR))
        except OSError as error:
            return (
                f"--latency needs {TUN}, which a process may not open: {error.strerror};"
                f" load the module (modprobe tun) or give the container this device, or leave out"
                f" --latency"
            )
        return None


def speed(rate: str) -> float:
    """Return the bytes a second of a rate; raises EmulationError if it is none above 0."""
    found = RATE.match(rate.lower())
    if found is None or not float(found["number"]):
        raise EmulationError(f"--rate {rate}: no rate of tc, such as 1gbit, 100mbit or 12.5mbps")
    base = 1024 if found["binary"] else 1000
    bits = float(found["number"]) * base ** " kmgt".index(found["prefix"] or " ")
    return bits if found["unit"] == "bps" else bits / 8


def burst(rate: str) -> int:
    """Return the bytes that a token bucket of `rate` sends at once after a pause.

    The fewer the better, as real links have no such bytes; but a fast link would take a timer's
    interrupt for each packet. The switch has none.
    """
    nbytes = speed(rate)
    return 2 * PACKET if 8 * nbytes <= SLOW else round(nbytes * BURST_S)


def train(rate: str) -> int:
    """Return the most bytes of packets that an adapter hands to its link as one.

    A train that is as long as a bucket waits until the bucket is full, and a bucket that is full
    while nothing is sent loses rate: at 500 Mbit/s up to a half.
    """
    return max(burst(rate) // TRAINS, PACKET)


def address(rail: int, index: int) -> IPv4Interface:
    """Return the address of a rail of a node; the hub has index -1."""
    return IPv4Interface(
        (int(NETWORK.network_address) + (rail << 8) + index + 2, NETWORK.prefixlen)
    )


def build_bridge(hub: str) -> None:
    """Create the bridge of shaped links, in the hub."""
    ip(f"-n {hub} link add {BRIDGE} type bridge forward_delay 0")
    _raise(hub, BRIDGE, address(0, -1))


def attach_shaped(hub: str, name: str, index: int, port: str, links: Links) -> None:
    """Create a node's links; the bridge's port of rail 0 has the name `port`, rail 1 `port`-1."""
    assert links.limit is not None
    tokens = f"rate {links.limit} burst {burst(links.limit)} {SHAPE}"
    for rail, adapter in enumerate(links.adapters):
        end = f"{port}-{rail}" if rail else port
        ip(f"-n {name} link add {adapter} type veth peer name {end} netns {hub}")
        ip(f"-n {hub} link set {end} master {BRIDGE}")
        for space, link in ((name, adapter), (hub, end)):
            ip(f"-n {space} link set {link} gso_max_size {train(links.limit)}")
            shape = f"qdisc replace dev {link} root tbf {tokens}"
            run(["tc", "-n", space, *shape.split()])
        ip(f"-n {hub} link set {end} up")
        _raise(name, adapter, address(rail, index))


def attach_delayed(switch: str, hub: str, names: Sequence[str], links: Links) -> None:
    """Move the switch's devices into their nodes."""
    for device, index, rail in _devices(len(names), links):
        name = names[index] if index >= 0 else hub
        adapter = links.adapters[rail] if index >= 0 else BRIDGE
        ip(f"-n {switch} link set {device} netns {name} name {adapter}")
        ip(f"-n {name} link set {adapter} mtu {MTU} txqueuelen {QUEUE}")
        _raise(name, adapter, address(rail, index))


def separate_rails(name: str, index: int, links: Links) -> None:
    """Let what has an adapter's address as its source leave through that adapter.

    UCX connects two adapters only if it finds a route from one to the other, also within a node.
    """
    run(["ip", "netns", "exec", name, "sh", "-ec", ARP])
    own = [address(rail, index).ip for rail in range(links.rails)]
    for rail, adapter in enumerate(links.adapters):
        ip(f"-n {name} rule add from {own[rail]} table {TABLE + rail}")
        ip(f"-n {name} route add {NETWORK} dev {adapter} src {own[rail]} table {TABLE + rail}")
        for other in {*own} - {own[rail]}:
            ip(f"-n {name} route append {other} dev {adapter} scope link metric {rail + 1}")


def start_switch(space: str, nodes: int, links: Links, log: Path) -> "subprocess.Popen[str]":
    """Start the switch in its namespace; raises EmulationError if it cannot create its devices."""
    devices = [
        f"{'hub/' if index < 0 else ''}{device}={address(rail, index).ip}"
        for device, index, rail in _devices(nodes, links)
    ]
    delays = ["--latency", repr(links.latency), "--byte", repr(links.byte)]
    program = [sys.executable, "-S", str(Path(__file__).with_name("switch.py"))]
    with log.open("w") as errors:
        switch = subprocess.Popen(
            ["ip", "netns", "exec", space, *program, *delays, *devices],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )
    assert switch.stdout is not None
    with switch.stdout as out:
        if out.readline() != "ready\n":
            stop_switch(switch)
            raise EmulationError(f"the switch has not started: {why(log)}")
    return switch


def stop_switch(switch: "subprocess.Popen[str]") -> None:
    """End the switch, even before it is in its namespace; its devices go with it."""
    switch.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        switch.wait(timeout=STOP_S)
    switch.kill()
    switch.wait(timeout=COMMAND_S)


def why(log: Path) -> str:
    """Return the last line that the switch wrote."""
    return (log.read_text().strip().splitlines() or ["no message"])[-1]


def _devices(nodes: int, links: Links) -> Iterator[tuple[str, int, int]]:
    """Yield the name, the node (-1: the hub) and the rail of each of the switch's devices."""
    yield "t0", -1, 0
    pairs = [(index, rail) for index in range(nodes) for rail in range(links.rails)]
    for k, (index, rail) in enumerate(pairs, start=1):
        yield f"t{k}", index, rail


def _raise(space: str, link: str, interface: IPv4Interface) -> None:
    ip(f"-n {space} address add {interface} dev {link}")
    ip(f"-n {space} link set {link} up")
