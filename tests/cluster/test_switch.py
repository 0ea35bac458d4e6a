"""The switch without devices: its ports are sockets, and the test is its clock."""

import socket
from contextlib import ExitStack, suppress
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st
from switch import HEADER, Switch

pytestmark = [pytest.mark.cluster, pytest.mark.any_library]

NODES = 4
LATENCY = 5.0


def packet(destination: int, number: int, version: int = 4) -> bytes:
    """Return an IP packet to a node that carries a number."""
    return bytes([version << 4]) + bytes(15) + bytes([10, 77, 0, destination]) + bytes([number])


class Ports:
    """A switch with a socket for each node; node 0 is the launcher's, whose packets are prompt."""

    def __init__(self, undo: ExitStack, byte: float = 0.0):
        pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(NODES)]
        for one in (end for pair in pairs for end in pair):
            one.setblocking(False)
            undo.enter_context(one)
        self.nodes = [node for node, _ in pairs]
        self.ends = [end.fileno() for _, end in pairs]
        ports = {bytes([10, 77, 0, k]): end for k, end in enumerate(self.ends)}
        self.switch = Switch(ports, LATENCY, {self.ends[0]}, byte)

    def send(self, source: int, data: bytes, now: float) -> None:
        self.nodes[source].send(data)
        self.switch.take(self.ends[source], now)

    def received(self, node: int) -> list[int]:
        numbers: list[int] = []
        with suppress(BlockingIOError):
            while True:
                numbers.append(self.nodes[node].recv(100)[-1])
        return numbers


@pytest.fixture
def ports():
    with ExitStack() as undo:
        yield Ports(undo)


def test_a_packet_arrives_after_the_latency(ports):
    ports.send(1, packet(2, 7), now=1.0)
    assert ports.switch.deliver(now=1.0 + LATENCY / 2) == LATENCY / 2
    assert ports.received(2) == []
    assert ports.switch.deliver(now=1.0 + LATENCY) is None
    assert ports.received(2) == [7]


@pytest.mark.parametrize("pair", [(0, 2), (2, 0)])
def test_packets_of_the_launcher_are_not_delayed(ports, pair):
    ports.send(pair[0], packet(pair[1], 7), now=1.0)
    assert ports.switch.deliver(now=1.0) is None
    assert ports.received(pair[1]) == [7]


@pytest.mark.parametrize("data", [packet(9, 1), packet(2, 1, version=6), b"\x45", b"\x00"])
def test_packets_to_nobody_are_dropped(ports, data):
    ports.send(1, data, now=0.0)
    assert ports.switch.deliver(now=2 * LATENCY) is None
    assert [ports.received(node) for node in range(NODES)] == [[]] * NODES


@pytest.fixture
def slow():
    """Links on which a packet takes 1 s."""
    with ExitStack() as undo:
        yield Ports(undo, byte=1 / (len(packet(1, 0)) + HEADER))


def test_a_packet_takes_its_time_on_a_link_also_after_a_pause(slow):
    for pause in (0.0, 100.0):
        slow.send(1, packet(2, 7), now=pause)
        assert slow.switch.deliver(now=pause) == pytest.approx(1 + LATENCY)
        slow.switch.deliver(now=pause + 1 + LATENCY)
        assert slow.received(2) == [7]


@pytest.mark.parametrize("sources", [(1, 1, 1), (1, 2, 1)])
def test_a_link_carries_one_packet_after_the_other(slow, sources):
    for number, source in enumerate(sources):
        slow.send(source, packet(2, number), now=0.0)
    due = [1 + LATENCY, 2 + LATENCY, 3 + LATENCY]
    for number, moment in enumerate(due):
        slow.switch.deliver(now=moment - 0.01)
        assert slow.received(2) == []
        slow.switch.deliver(now=moment + 0.01)
        assert slow.received(2) == [number]


def test_a_packet_that_waits_at_its_sender_does_not_hold_up_those_of_others(slow):
    for number in range(5):
        slow.send(1, packet(3, number), now=0.0)
    slow.send(1, packet(2, 5), now=0.0)
    slow.send(3, packet(2, 6), now=0.0)
    slow.switch.deliver(now=1.01 + LATENCY)
    assert slow.received(2) == [6]
    assert slow.switch.deliver(now=5.99 + LATENCY) == pytest.approx(0.01)
    assert (slow.received(2), slow.received(3)) == ([], [0, 1, 2, 3, 4])
    slow.switch.deliver(now=6.01 + LATENCY)
    assert slow.received(2) == [5]


def test_links_send_and_receive_at_once(slow):
    slow.send(1, packet(2, 7), now=0.0)
    slow.send(2, packet(1, 8), now=0.0)
    slow.switch.deliver(now=1 + LATENCY)
    assert (slow.received(2), slow.received(1)) == ([7], [8])


def test_a_late_process_makes_no_link_slower(slow):
    for number in range(3):
        slow.send(1, packet(2, number), now=0.0)
    assert slow.switch.deliver(now=3 + LATENCY) is None
    assert slow.received(2) == [0, 1, 2]


@given(st.lists(st.floats(0, 3), min_size=1, max_size=40), st.booleans())
def test_a_message_arrives_when_its_bytes_have_passed_one_link(pauses, late):
    """Packets of 1 s are sent after pauses: the last one is due when the link has carried all."""
    moments = list(accumulate(pauses))
    sent = max(moment + len(moments) - k for k, moment in enumerate(moments))
    with ExitStack() as undo:
        ports = Ports(undo, byte=1 / (len(packet(1, 0)) + HEADER))
        for number, moment in enumerate(moments):
            ports.send(1, packet(2, number), now=moment)
            if not late:
                ports.switch.deliver(now=moment)
        ports.switch.deliver(now=sent + LATENCY - 0.01)
        assert len(moments) - 1 not in ports.received(2)
        assert ports.switch.deliver(now=sent + LATENCY + 0.01) is None
        assert len(moments) - 1 in ports.received(2)


def test_packets_of_the_launcher_take_no_time_on_a_link(slow):
    slow.send(0, packet(2, 7), now=1.0)
    assert slow.switch.deliver(now=1.0) is None
    assert slow.received(2) == [7]


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.floats(0, 20)), max_size=20))
def test_packets_of_a_pair_keep_their_order(moves):
    with ExitStack() as undo:
        ports, now = Ports(undo), 0.0
        received = {node: [] for node in range(NODES)}
        for number, (source, target, pause) in enumerate(moves):
            ports.send(source, packet(target, number), now)
            now += pause
            ports.switch.deliver(now)
            for node, numbers in received.items():
                numbers += ports.received(node)
        ports.switch.deliver(now + LATENCY)
        for node, numbers in received.items():
            numbers += ports.received(node)
            for source in range(NODES):
                sent = [k for k, move in enumerate(moves) if move[:2] == (source, node)]
                assert [k for k in numbers if k in sent] == sent
