"""Nodes as network namespaces, joined by links of a rate or a switch with a latency.

Every node is a network namespace. Another one, the hub, holds the launcher and the bridge that
joins the nodes. So no message reaches the machine's own network, and runs do not disturb each
other. `tc tbf` limits both ends of each link, so that a node sends and receives at the rate, in
full duplex. With a latency, a switch (switch.py, in a namespace of its own) takes the place of the
bridge, and of the token buckets.
"""

import itertools
import os
import shutil
import subprocess
import sys
import tempfile
from ipaddress import IPv4Interface
from pathlib import Path
from typing import TypeVar

import wiring
from host import TAG, EmulationError, ip, namespaces, run, start_time, stop
from wiring import Links

HUB = "hub"
SWITCH = "switch"
AGENT = Path(__file__).with_name("agent.sh")
ONE_GBIT = Links()
Self = TypeVar("Self", bound="Network")


class Network:
    """A network of `nodes` nodes, joined by `links`, while it is open."""

    _count = itertools.count()

    def __init__(self, nodes: int, links: Links = ONE_GBIT) -> None:
        if not 1 <= nodes <= 250:
            raise EmulationError(f"a cluster has 1 to 250 nodes, not {nodes}")
        self.links = links
        self.nodes = tuple(f"node{i}" for i in range(nodes))
        self.tag = f"han-emulate-{os.getpid()}-{start_time(os.getpid())}-{next(self._count)}"
        self.directory = _directory(self.tag)
        self.agent = self.directory / "agent.sh"
        self.switch: subprocess.Popen[str] | None = None

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

    @property
    def spaces(self) -> tuple[str, ...]:
        """The namespaces of the launcher and the nodes."""
        return tuple(self.namespace(name) for name in (HUB, *self.nodes))

    def up(self) -> None:
        """Create the namespaces, the links and the agent."""
        if reason := _missing(self.links):
            raise EmulationError(reason)
        self._write_agent()
        for space in self.spaces:
            ip(f"netns add {space}")
            ip(f"-n {space} link set lo up")
        if self.links.latency:
            self._switch()
        else:
            self._bridge()
        if self.links.rails > 1:
            for index, node in enumerate(self.nodes):
                wiring.separate_rails(self.namespace(node), index, self.links)

    def down(self) -> None:
        """End the processes of this cluster, and remove everything that it has created."""
        if self.switch is not None:
            wiring.stop_switch(self.switch)
        remove(self.tag)

    def check_switch(self) -> None:
        """Raise EmulationError if the switch has ended."""
        if self.switch is not None and (status := self.switch.poll()) is not None:
            text = wiring.why(self.directory / "switch.log")
            raise EmulationError(f"the switch has ended with status {status}: {text}")

    def _bridge(self) -> None:
        hub = self.namespace(HUB)
        wiring.build_bridge(hub)
        for index, node in enumerate(self.nodes):
            wiring.attach_shaped(hub, self.namespace(node), index, node, self.links)

    def _switch(self) -> None:
        hub, *names = self.spaces
        space = self.namespace(SWITCH)
        ip(f"netns add {space}")
        log = self.directory / "switch.log"
        self.switch = wiring.start_switch(space, len(names), self.links, log)
        wiring.attach_delayed(space, hub, names, self.links)

    def _addresses(self) -> dict[str, IPv4Interface]:
        return {name: wiring.address(0, i) for i, name in enumerate((HUB, *self.nodes), start=-1)}

    def _write_agent(self) -> None:
        self.directory.mkdir(mode=0o755)
        hosts = self.directory / "hosts"
        lines = [f"{address.ip} {name}" for name, address in self._addresses().items()]
        hosts.write_text("\n".join(["127.0.0.1 localhost", *lines]) + "\n")
        shutil.copy(AGENT, self.agent)  # keeps its mode


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


def check(links: Links = ONE_GBIT) -> str | None:
    """Try a small cluster; return the reason why this machine cannot emulate it, or None."""
    if reason := _missing(links):
        return reason
    try:
        with Network(1, links) as network:
            run([str(network.agent), network.nodes[0], "true"])
    except (EmulationError, OSError) as error:
        return str(error)
    return None


def _missing(links: Links) -> str | None:
    """Return what this machine lacks for such links, or None."""
    if not sys.platform.startswith("linux"):
        return f"network namespaces need Linux; this is {sys.platform}"
    if os.geteuid() != 0:
        return "network namespaces need root; run it as root (sudo)"
    if missing := [tool for tool in ("ip", "tc", "unshare", "mount") if not shutil.which(tool)]:
        return f"not found: {', '.join(missing)} (packages iproute2, util-linux)"
    return links.problem()


def _directory(tag: str) -> Path:
    return Path(tempfile.gettempdir(), tag)
