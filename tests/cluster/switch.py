"""A switch between TUN devices that delivers each packet after a latency, at the rate of links.

    python switch.py --latency 0.05 hub/t0=10.77.0.1 t1=10.77.0.2 t2=10.77.0.3

Creates the devices in its own network namespace and prints a line when they exist; they last as
long as the process. A packet goes to the device that has its destination address. Packets from and
to a device written as hub/NAME are not delayed: it is the launcher's, which is not measured.

With a rate (``--byte``), a link carries a packet after the one before it, and both links of a
packet are busy for as long as it takes at the rate. The moments follow from when packets were taken
and from each other, so a process that delivers late makes no busy link slower, and a link that has
rested sends nothing at a higher rate. A link receives packets in the order in which they leave
their senders' links, so a packet that waits at its sender does not hold up those of others.
"""

import argparse
import contextlib
import fcntl
import heapq
import ipaddress
import itertools
import os
import select
import struct
import time
from collections.abc import Mapping, Set

TUN = "/dev/net/tun"
TUNSETIFF = 0x400454CA
IFF_TUN, IFF_NO_PI = 0x0001, 0x1000
HUB = "hub/"
LARGEST = 1 << 16  # bytes of a packet
HEADER = 14  # bytes of Ethernet that a link carries with each packet
TURN = 64  # packets that are taken from one device before the next one has its turn


class Switch:
    """Forwards packets between file descriptors, which `ports` names by address.

    `prompt` are the descriptors whose packets are not delayed. `byte`: seconds that a byte takes
    on a link, 0 without a rate. All times are in seconds of one clock, which the caller reads.
    """

    def __init__(
        self, ports: Mapping[bytes, int], latency: float, prompt: Set[int] = frozenset(),
        byte: float = 0.0,
    ) -> None:  # fmt: skip
        self.ports = dict(ports)
        self.latency, self.byte = latency, byte
        self.prompt = prompt
        self._sends = dict.fromkeys(self.ports.values(), 0.0)  # when a port has sent its packets
        self._receives = dict.fromkeys(self.ports.values(), 0.0)
        self._count = itertools.count()  # packets that are due at once leave in order
        # Packets by the moment at which they leave their senders' links; then by when they arrive.
        self._leaving: list[tuple[float, int, int, bytes]] = []
        self._waiting: list[tuple[float, int, int, bytes]] = []

    def take(self, port: int, now: float) -> None:
        """Take the packets that have arrived at `port`, at most TURN of them."""
        for _ in range(TURN):
            try:
                packet = os.read(port, LARGEST)
            except OSError:  # no more, or the device is gone
                return
            out = self.ports.get(packet[16:20]) if packet[:1] and packet[0] >> 4 == 4 else None
            if out is None:
                continue
            if port in self.prompt or out in self.prompt:
                heapq.heappush(self._waiting, (now, next(self._count), out, packet))
            else:
                self._sends[port] = max(now, self._sends[port]) + self._seconds(packet)
                entry = self._sends[port], next(self._count), out, packet
                heapq.heappush(self._leaving, entry)

    def _seconds(self, packet: bytes) -> float:
        """Return how long a packet takes on a link."""
        return (len(packet) + HEADER) * self.byte

    def _leave(self, now: float) -> None:
        """Reserve the receivers' links for the packets that have left their senders' links."""
        while self._leaving and self._leaving[0][0] <= now:
            left, number, out, packet = heapq.heappop(self._leaving)
            self._receives[out] = max(left, self._receives[out] + self._seconds(packet))
            due = self._receives[out] + self.latency
            heapq.heappush(self._waiting, (due, number, out, packet))

    def deliver(self, now: float) -> float | None:
        """Deliver what is due.

        Return the seconds until a packet may be due, None if none waits.
        """
        self._leave(now)
        while self._waiting and self._waiting[0][0] <= now:
            _, _, out, packet = heapq.heappop(self._waiting)
            with contextlib.suppress(OSError):  # as a full queue or a link that is down loses it
                os.write(out, packet)
        due = [self._leaving[0][0] + self.latency] if self._leaving else []
        due += [self._waiting[0][0]] if self._waiting else []
        return min(due) - now if due else None


def serve(switch: Switch) -> None:
    """Forward packets until the process is ended."""
    with select.epoll() as poller:
        for port in switch.ports.values():
            poller.register(port, select.EPOLLIN)
        while True:
            # The timeout of epoll_wait is in whole milliseconds, that of select in microseconds.
            select.select([poller], [], [], switch.deliver(time.monotonic()))
            for port, _ in poller.poll(0):
                switch.take(port, time.monotonic())


def open_device(name: str) -> int:
    """Create a TUN device; it lasts until the descriptor is closed."""
    port = os.open(TUN, os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(port, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
    return port


def run_before_ranks(real_time: bool) -> None:
    """Give this process a processor before ranks that poll.

    A switch of short latencies runs for each packet. If it is a real-time process, ranks on the
    same processors lose milliseconds each time.
    """
    if real_time:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    else:
        os.setpriority(os.PRIO_PROCESS, 0, -20)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--latency", type=float, required=True, help="seconds each way")
    parser.add_argument("--byte", type=float, default=0.0, help="seconds of a byte on a link")
    parser.add_argument("devices", nargs="+", metavar="[hub/]NAME=ADDRESS")
    arguments = parser.parse_args()
    ports, prompt = {}, set()
    for device in arguments.devices:
        name, address = device.split("=")
        port = open_device(name.removeprefix(HUB))
        ports[ipaddress.IPv4Address(address).packed] = port
        if name.startswith(HUB):
            prompt.add(port)
    with contextlib.suppress(OSError):  # a container may refuse it
        run_before_ranks(real_time=not arguments.byte)
    print("ready", flush=True)
    serve(Switch(ports, arguments.latency, frozenset(prompt), arguments.byte))


if __name__ == "__main__":
    main()
