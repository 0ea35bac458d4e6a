"""Nodes as network namespaces, joined by links of a limited rate.

Every node is a network namespace. Another one, the hub, holds the launcher and the bridge that
joins the nodes. So no message reaches the machine's own network, and runs do not disturb each
other. `tc tbf` limits both ends of each link, so that a node sends and receives at the rate, in
full duplex.
"""

import itertools
import os
import shutil
import sys
import tempfile
from ipaddress import IPv4Interface, IPv4Network
from pathlib import Path
from typing import TypeVar

from host import TAG, EmulationError, ip, namespaces, run, start_time, stop

HUB = "hub"
BRIDGE = "br0"
NETWORK = IPv4Network("10.77.0.0/16")  # of the namespaces only
AGENT = Path(__file__).with_name("agent.sh")
SHAPE = "burst 128kb latency 200ms"
Self = TypeVar("Self", bound="Network")


class Network:
    """A network of `nodes` nodes with links of `rate` (as `tc` writes it), while it is open."""

    _count = itertools.count()

    def __init__(self, nodes: int, rate: str = "1gbit"):
        if not 1 <= nodes <= 250:
            raise EmulationError(f"a cluster has 1 to 250 nodes, not {nodes}")
        self.rate = rate
        self.nodes = tuple(f"node{i}" for i in range(nodes))
        self.tag = f"han-emulate-{os.getpid()}-{start_time(os.getpid())}-{next(self._count)}"
        self.directory = _directory(self.tag)
        self.agent = self.directory / "agent.sh"

    def __enter__(self: Self) -> Self:
        try:
            self.up()
        except BaseException:
            self.down()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.down()

    def namespace(self, node: str) -> str:
        """Return the name of the network namespace of `node`."""
        return f"{self.tag}-{node}"

    def up(self) -> None:
        """Create the namespaces, the bridge, the links and the agent."""
        self._write_agent()
        hub = self.namespace(HUB)
        addresses = self._addresses()
        ip(f"netns add {hub}")
        ip(f"-n {hub} link set lo up")
        ip(f"-n {hub} link add {BRIDGE} type bridge forward_delay 0")
        ip(f"-n {hub} address add {addresses[HUB]} dev {BRIDGE}")
        ip(f"-n {hub} link set {BRIDGE} up")
        for node in self.nodes:
            self._attach(node, addresses[node])

    def down(self) -> None:
        """End the processes of this cluster, and remove everything that it has created."""
        remove(self.tag)

    def _addresses(self) -> dict[str, IPv4Interface]:
        names = (HUB, *self.nodes)
        return {
            name: IPv4Interface((address, NETWORK.prefixlen))
            for name, address in zip(names, NETWORK.hosts(), strict=False)
        }

    def _write_agent(self) -> None:
        self.directory.mkdir(mode=0o755)
        hosts = self.directory / "hosts"
        lines = [f"{address.ip} {name}" for name, address in self._addresses().items()]
        hosts.write_text("\n".join(["127.0.0.1 localhost", *lines]) + "\n")
        shutil.copy(AGENT, self.agent)  # keeps its mode

    def _attach(self, node: str, address: IPv4Interface) -> None:
        """Create a node and its link; the port of the bridge has the node's name."""
        name, hub = self.namespace(node), self.namespace(HUB)
        ip(f"netns add {name}")
        ip(f"-n {name} link set lo up")
        ip(f"-n {name} link add eth0 type veth peer name {node} netns {hub}")
        ip(f"-n {name} address add {address} dev eth0")
        ip(f"-n {hub} link set {node} master {BRIDGE}")
        for space, link in ((name, "eth0"), (hub, node)):
            shape = f"qdisc replace dev {link} root tbf rate {self.rate} {SHAPE}"
            run(["tc", "-n", space, *shape.split()])
            ip(f"-n {space} link set {link} up")


def remove(tag: str) -> None:
    """Remove the cluster of that tag, even an incomplete one, and end its processes."""
    names = namespaces(tag)
    stop(names)
    for name in names:
        ip(f"netns delete {name}")
    shutil.rmtree(_directory(tag), ignore_errors=True)


def stale() -> list[str]:
    """Return the tags of clusters whose owner no longer runs."""
    names = [*namespaces(), *(p.name for p in _directory("").iterdir())]
    found = {match[0]: match for name in names if (match := TAG.match(name))}
    return [tag for tag, m in found.items() if start_time(int(m["pid"])) != int(m["start"])]


def check() -> str | None:
    """Return the reason why this machine cannot emulate a cluster, or None; try a small one."""
    if not sys.platform.startswith("linux"):
        return f"network namespaces need Linux; this is {sys.platform}"
    if os.geteuid() != 0:
        return "network namespaces need root"
    if missing := [tool for tool in ("ip", "tc", "unshare", "mount") if not shutil.which(tool)]:
        return f"not found: {', '.join(missing)} (packages iproute2, util-linux)"
    try:
        with Network(nodes=1) as network:
            run([str(network.agent), network.nodes[0], "true"])
    except (EmulationError, OSError) as error:
        return str(error)
    return None


def _directory(tag: str) -> Path:
    return Path(tempfile.gettempdir(), tag)
