"""Tasks of ``adapt`` in one stream: what one call emits is what is emitted piece by piece."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from machines import topology_of
from test_batches import RECV, SCRATCH, SEND, stream
from test_equal_roles import differs

from han.submodules.adapt import bcast, reduce
from han.tasks.choice import Choice, level_choice
from han.tasks.lower import lower
from han.tasks.signature import Signature
from han.tasks.size_classes import class_of
from han.tasks.stream import Builder
from han.tuning.parts import plan_of_choice

MEMORY = 1 << 18


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.integers(2, 9), st.integers(0, 8), st.sampled_from(["chain", "binomial", "linear"]),
    st.sampled_from([0, 1, 64, 640, 6400, 10_000]), st.sampled_from([None, 64, 640, 6400]),
    st.sampled_from([64, 128, 1000]), st.integers(1, 5), st.booleans(), st.booleans(),
)  # fmt: skip
def test_one_call_emits_what_pieces_do(
    monkeypatch, size, root, algorithm, nbytes, segment, step, window, sized, inner
):
    places = [[k // 2 for k in range(size)], [0] * size]
    topology = topology_of(places, 0 if inner else -1)
    signature = Signature("bcast", nbytes, root=root % size)
    if sized and nbytes:
        signature = class_of(signature, nbytes)
    network = level_choice("adapt", algorithm, segment=step, window=window)
    choice = Choice((level_choice("sm", "flat") if inner else network, network), segment)
    plan = plan_of_choice(topology, signature, choice, MEMORY)
    for rank in range(size):
        found = lower(plan, rank)
        with monkeypatch.context() as patched:
            patched.setattr(bcast, "_in_one_stream", bcast._piece_by_piece)
            piece_by_piece = lower(plan, rank)
        assert not differs(_without_tasks(found), _without_tasks(piece_by_piece))


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.integers(2, 9), st.integers(0, 8),
    st.sampled_from(["chain", "binomial", "linear", "in_order_binary", "by_rank"]),
    st.sampled_from([0, 8, 64, 640, 6400, 10_000]), st.sampled_from([None, 64, 640, 6400]),
    st.sampled_from([64, 128, 1000]), st.integers(1, 5), st.booleans(), st.integers(0, 2),
)  # fmt: skip
def test_one_call_combines_as_pieces_do(
    monkeypatch, size, root, algorithm, nbytes, segment, step, window, sized, inner
):
    places = [[k // 2 for k in range(size)], [0] * size]
    topology = topology_of(places, 0 if inner else -1)
    signature = Signature("reduce", nbytes // 8, 8, "sum", "f8", root=root % size)
    if sized and nbytes:
        signature = class_of(signature, nbytes)
    network = level_choice("adapt", algorithm, segment=step, window=window)
    choice = Choice((level_choice("sm", "flat") if inner else network, network), segment)
    plan = plan_of_choice(topology, signature, choice, MEMORY)
    monkeypatch.setattr(Builder, "most_branches", inner // 2)
    for rank in range(size):
        found = lower(plan, rank)
        with monkeypatch.context() as patched:
            patched.setattr(reduce, "_in_one_stream", _pieces_in_one_stream)
            piece_by_piece = lower(plan, rank)
        assert not differs(found, piece_by_piece)


def _pieces_in_one_stream(context, tree, inbox):
    reduce._piece_by_piece(context, tree, inbox.pieces, inbox)


def _without_tasks(program):
    """Receives are posted ahead, in the name of the task at hand or of that which they serve."""
    code = program.code.copy()
    code["task"] = 0
    program.__dict__["code"] = code
    return program


def test_arguments_of_another_kind_are_errors():
    turn = (0, 0, 640, ())
    ends, requests = stream().forward(SEND, RECV, (1,), (2,), (turn,), 64, 2, 5)
    assert (len(ends), requests) == (1, 5 + 2 + 2)
    assert stream().forward(SEND, RECV, (), (), (turn,), 64, 2, 5) == ((0,), 5)
    for bad in (
        (SEND, RECV, (1,), (2,), (turn,), 0, 2, 5),
        (SEND, RECV, (1,), (2,), (turn,), 64, 0, 5),
        (SEND, RECV, (1, 3), (2,), (turn,), 64, 2, 5),
        (SEND, RECV, (1,), (2,), (turn,), 64, 2, 1 << 40),
        (SEND, RECV, (1 << 40,), (2,), (turn,), 64, 2, 5),
        (SEND, RECV, (1,), (2,), ((0, 64, 0, ()),), 64, 2, 5),
    ):
        with pytest.raises(ValueError, match=r"forward|number"):
            stream().forward(*bad)
    child = (1, 0, SCRATCH, 7)
    ends, requests = stream().combine_pieces(RECV, SEND, (child,), (2,), (turn,), 64, 2, 64, 9)
    assert (len(ends), requests) == (1, 9 + 2)
    for bad in (
        (RECV, SEND, (child,), (2,), (turn,), 0, 2, 64, 9),
        (RECV, SEND, (child,), (2,), (turn,), 64, 0, 64, 9),
        (RECV, SEND, (child,), (2, 3), (turn,), 64, 2, 64, 9),
        (RECV, SEND, ((1, 0, SCRATCH, 1 << 40),), (2,), (turn,), 64, 2, 64, 9),
        (RECV, SEND, (child,), (2,), ((0, 64, 0, ()),), 64, 2, 64, 9),
    ):
        with pytest.raises(ValueError, match=r"combine_pieces|number"):
            stream().combine_pieces(*bad)
    with pytest.raises(TypeError):
        stream().combine_pieces(RECV, SEND, (1,), (2,), (turn,), 64, 2, 64, 9)
    for bad in (
        (SEND, RECV, 1, (2,), (turn,), 64, 2, 5),
        (SEND, RECV, (1,), (2,), ((0, 0),), 64, 2, 5),
        (SEND, None, (1,), (2,), (turn,), 64, 2, 5),
        (SEND, RECV),
    ):
        with pytest.raises((TypeError, ValueError)):
            stream().forward(*bad)
