"""The hops of a ring that one call emits are those of a reference in plain Python.

The reference follows han/submodules/ring.py hop by hop and piece by piece: it keeps what is under
way in dictionaries by (hop, piece), where the C code has arrays of positions.
"""

from collections import deque
from itertools import product
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import topology_of
from test_batches import GRAIN, RECV, SCRATCH, SEND, agree, stream
from test_planner import quick

from han.model.program import Code
from han.tasks.choice import Choice, level_choice
from han.tasks.lower import lower
from han.tasks.signature import Signature
from han.tasks.stream import Stream
from han.tuning.built_in.traits import NodeTraits
from han.tuning.heuristics import choose
from han.tuning.parts import plan_of_choice


class Reference:
    """One rank's hops: hop h brings the blocks that the rank before has sent as its hop h."""

    def __init__(self, made, source, result, cells, peers, pieces, width, awaits, free, first):
        self.made, self.source, self.result, self.cells = made, source, result, cells
        self.before, self.behind = peers
        self.hops = len(pieces) // width - 1
        self.turns = list(product(range(1, self.hops + 1), range(width)))
        self.piece = dict(zip([*self.turns, *product([0], range(width))], pieces, strict=True))
        self.number = {turn: k for k, turn in enumerate(self.turns)}  # in the order of arrival
        self.awaits, self.free, self.first = deque(awaits), list(free), first
        self.arriving, self.leaving, self.ends = {}, {}, []

    def new(self):
        """Take the request that became free last, or else a new one."""
        if self.free:
            return self.free.pop()
        self.first += 1
        return self.first - 1

    def done(self, request):
        self.made.test(request)
        self.free.append(request)

    def await_others(self):
        for other, position in self.awaits.popleft():
            self.made.await_stream(other, position)

    def cell(self, turn):
        return self.cells[self.number[turn] % len(self.cells)].holding(self.piece[turn][0])

    def combines(self, turn):
        return turn[0] <= self.hops // 2

    def finish_sends(self, most):
        """Wait for sends whose piece the rank behind numbers up to `most`, the oldest first."""
        for turn in [turn for turn in self.leaving if self.number[turn] <= most]:
            self.done(self.leaving.pop(turn))

    def post(self, turn):
        """Start to receive a piece; a finished one replaces what this rank has sent on."""
        if self.piece[turn] is None:
            return
        start, stop = self.piece[turn]
        if self.combines(turn):
            place = self.cell(turn)
        else:
            self.finish_sends(self.number[turn] - len(self.turns) // 2)
            place = self.result.to(start)
        self.arriving[turn] = self.new()
        self.made.irecv(place, stop - start, self.before, self.arriving[turn])

    def send(self, turn, place, piece):
        """Send a piece, which is the rank behind's `turn`; it has a window of receives posted."""
        width = len(self.piece) // (self.hops + 1)
        self.finish_sends(self.number[turn] - width - len(self.cells))
        self.leaving[turn] = self.new()
        self.made.isend(place.to(piece[0]), piece[1] - piece[0], self.behind, self.leaving[turn])

    def take(self, turn):
        """Wait for a piece, combine it, and send it on."""
        piece, (hop, k) = self.piece[turn], turn
        if piece is None:
            return
        start, stop = piece
        self.done(self.arriving.pop(turn))
        if self.combines(turn):
            self.await_others()
            arrived, own = self.cell(turn), self.source.to(start)
            self.made.reduce(self.result.to(start), arrived, own, stop - start)
        if hop >= self.hops // 2:  # it has passed all ranks
            self.ends.append(len(self.made))
        if hop < self.hops:
            self.send((hop + 1, k), self.result, piece)

    def run(self):
        window = len(self.cells)
        for turn in self.turns[:window]:
            self.post(turn)
        for k in range(len(self.piece) // (self.hops + 1)):
            if self.piece[0, k] is not None:
                self.await_others()
                self.send((1, k), self.source, self.piece[0, k])
        ahead = self.turns[window:]
        for number, turn in enumerate(self.turns):
            self.take(turn)
            if number < len(ahead):
                self.post(ahead[number])
        self.finish_sends(len(self.turns))
        return self.ends, tuple(self.free), self.first


def by_reference(made, *arguments):
    return Reference(made, *arguments).run()


@st.composite
def rings(draw):
    """Return the arguments of a ring: blocks of pieces, of which some are missing."""
    nodes, width = draw(st.integers(2, 7)), draw(st.integers(1, 4))
    half = (nodes - 1) * width
    window = draw(st.integers(1, half))
    blocks, at = [], 0
    for _ in range(nodes):
        some = draw(st.integers(1 if not blocks else 0, width))
        blocks.append(
            [(at + GRAIN * k, at + GRAIN * (k + 1)) for k in range(some)] + [None] * (width - some)
        )
        at += GRAIN * some
    me = draw(st.integers(0, nodes - 1))
    order = [blocks[(me - hop) % nodes] for hop in range(nodes)]
    hops = [*order[1:], *order[:-1], order[0]]
    pieces = tuple(piece for hop in hops for piece in hop)
    begun = [p for p in (*pieces[2 * half :], *pieces[:half]) if p is not None]
    awaits = [((draw(st.integers(1, 4)), draw(st.integers(0, 9))),) * draw(st.integers(0, 2))
              for _ in begun]  # fmt: skip
    free = tuple(draw(st.lists(st.integers(0, 5), max_size=3, unique=True)))
    cells = tuple(SCRATCH + GRAIN * k for k in range(window))
    return SEND, RECV, cells, (3, 5), pieces, width, tuple(awaits), free, draw(st.integers(6, 9))


@settings(quick, max_examples=200)
@given(rings())
def test_any_ring_is_that_of_the_reference(arguments):
    made, one = stream(), stream()
    assert made.circulate(*arguments) == by_reference(one, *arguments)
    agree(made, one)


def programs(plan):
    """Return the operations of all ranks' programs."""
    return [lower(plan, rank).code for rank in range(plan.topology.size)]


@settings(quick, max_examples=40)
@given(st.data())
def test_plans_of_any_machine_and_size_are_those_of_the_reference(data):
    nodes, ppn = data.draw(st.integers(2, 9)), data.draw(st.integers(1, 3))
    size = data.draw(st.integers((nodes - 1) * ppn + 1, nodes * ppn))  # the last node may be small
    topology = topology_of([[r // ppn for r in range(size)], [0] * size], 0)
    count = data.draw(st.one_of(st.integers(1, 40), st.integers(41, 1 << 17)))
    signature = Signature("allreduce", count, 8, "sum", "float64")
    choice = choose(signature, topology, NodeTraits(), "ring")
    parameters = {
        "segment": data.draw(st.sampled_from([8, 100, 4096, 32768])) * max(1, count >> 11),
        "window": data.draw(st.sampled_from([1, 2, 3, 8])),
    }
    levels = (choice.levels[0], level_choice("ring", "pieces", **parameters))
    plan = plan_of_choice(topology, signature, Choice(levels, None, composition="ring"), 1 << 22)
    made = programs(plan)
    with mock.patch.object(Stream, "circulate", by_reference):
        expected = programs(plan)
    assert any((code["code"] == Code.IRECV).any() for code in made)
    for one, other in zip(made, expected, strict=True):
        assert one.tobytes() == other.tobytes()


def test_the_reference_is_used_in_place_of_the_call():
    topology = topology_of([[0, 1, 2], [0, 0, 0]], 0)
    signature = Signature("allreduce", 100, 8, "sum", "float64")
    plan = plan_of_choice(topology, signature, choose(signature, topology, NodeTraits(), "ring"), 0)
    called = mock.Mock(side_effect=RuntimeError("called"))
    with (
        mock.patch.object(Stream, "circulate", called),
        pytest.raises(RuntimeError, match="called"),
    ):
        lower(plan, 0)
