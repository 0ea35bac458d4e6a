"""Operations for several members at once: they are those of one call for each member."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plans import programs_of, rules_of
from test_planner import quick

from han._native import Operations, each_piece, joined
from han.model.program import INSTRUCTION, TERMS, Area, Base, Ref, channel_ref
from han.model.topology import virtual
from han.submodules.exchange import messages
from han.submodules.parts import series
from han.submodules.parts.fold import fold
from han.submodules.registry import plan_of_choice
from han.tasks.canonical import canonical, linear, rooms
from han.tasks.choice import Choice, level_choice
from han.tasks.signature import Signature

ELEMENT, GRAIN, GRAINS = 8, 64, 64
SEND, RECV, SCRATCH = Ref(Base.SEND), Ref(Base.RECV), Ref(Base.SCRATCH)


def stream(grains=GRAINS):
    return Operations(5, GRAIN * GRAINS, ELEMENT, GRAIN, grains)


def members(number):
    """Return flags, cells and ranks of members."""
    flags = tuple(channel_ref(0, Area.FLAGS, 64 * k) for k in range(number))
    cells = tuple(channel_ref(0, Area.CELLS, 640 * k) for k in range(number))
    return flags, cells, tuple(range(7, 7 + number))


def others(number, grains=GRAINS):
    """Return streams of some operations each, which others may await."""
    found = [stream(grains) for _ in range(number)]
    for one in found:
        one.wait_each((channel_ref(0, Area.FLAGS),) * 9, 1, (0,) * 9)
    return found


def records(plan):
    """Return the operations of all ranks."""
    programs = programs_of(plan)
    terms = [None if p.terms is None else p.terms.tobytes() for p in programs]
    return [p.code.tobytes() for p in programs], terms


def agree(a, b, grains=GRAINS):
    """Check that two streams have the same operations."""
    assert (a.operand, a.writes, len(a)) == (b.operand, b.writes, len(b))
    assert joined((a, *others(4, grains))) == joined((b, *others(4, grains)))


# ---- shares -----------------------------------------------------------------------------------

BOUNDS = ((0, 128), (128, 384), (384, 384), (384, 448))
SPANS = [(192, 256), (320, 448), (512, 512), (512 + 64, 512 + 64)]  # behind 128: 64 to 192 of each


def test_a_part_of_each_share_is_shown():
    _, cells, _ = members(4)
    batch, one = stream(), stream()
    batch.show_each(cells, 8192, SEND, BOUNDS, (128, 64, 128))
    for cell, (start, stop) in zip(cells, SPANS, strict=True):
        one.copy((cell + 8192).holding(start), SEND.to(start), stop - start)
    assert len(batch) == 2, "two shares have no such part"
    agree(batch, one)


def test_a_part_of_each_share_is_taken_once_its_owner_has_shown_it():
    flags, cells, ranks = members(4)
    flags, ranks = (tuple([of[k] for k in (0, 1, 1, 3)]) for of in (flags, ranks))
    batch, one = stream(), stream()
    batch.take_each(RECV, cells, 64, BOUNDS, (128, 64, 128), flags, 3, ranks)
    for k, (start, stop) in enumerate(SPANS):
        if k != 2:  # of the same owner as the share before
            one.wait(flags[k], 3, ranks[k])
        one.copy(RECV.to(start), (cells[k] + 64).holding(start), stop - start)
    agree(batch, one)


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"dst": None}, TypeError),
        ({"cells": [RECV, RECV]}, TypeError),
        ({"cells": (RECV, 8)}, TypeError),
        ({"offset": -1}, OverflowError),
        ({"bounds": BOUNDS[:1]}, ValueError),
        ({"bounds": ((0, 64), (64,))}, ValueError),
        ({"bounds": ((0, 64), 64)}, TypeError),
        ({"part": (0, 0)}, ValueError),
        ({"part": (0, 0, "1")}, TypeError),
        ({"flags": ()}, ValueError),
        ({"ranks": (7,)}, ValueError),
    ],
)
def test_wrong_shares(wrong, error):
    flags, cells, ranks = members(2)
    right = {"dst": RECV, "cells": cells, "offset": 0, "bounds": BOUNDS[:2], "part": (0, 0, 64)}
    asked = {**right, "flags": flags, "k": 1, "ranks": ranks, **wrong}
    with pytest.raises(error):
        stream().take_each(*asked.values())
    if wrong.keys() <= right.keys():
        with pytest.raises(error):
            stream().show_each(*(asked[k] for k in ("cells", "offset", "dst", "bounds", "part")))


# ---- operands ---------------------------------------------------------------------------------


@quick
@given(st.data())
def test_operands_are_combined_as_one_by_one(data):
    number = data.draw(st.integers(1, 20))
    flags, cells, ranks = members(number)
    starts = sorted(data.draw(st.sets(st.integers(0, 99), min_size=number, max_size=number)))
    order = data.draw(st.sampled_from([linear(number), canonical(tuple(starts))]))
    mine = data.draw(st.integers(0, number))  # `number`: this rank has no operand
    operands = tuple(SEND if k == mine else cell for k, cell in enumerate(cells))
    partials = tuple(SCRATCH + 4096 * k for k in range(rooms(order)))
    also = data.draw(st.sampled_from([None, channel_ref(1, Area.CELLS, 64).holding(128)]))
    waits, into = data.draw(st.booleans()), RECV.to(128)
    batch, one = (Operations(5, GRAIN * GRAINS, ELEMENT, GRAIN, GRAINS, True) for _ in "12")
    if partials and data.draw(st.booleans()):
        partials = (into, *partials[1:])
    given_waits = (flags, 5, ranks) if waits else None
    batch.fold_each(into, operands, mine, 64, 256, order, partials, given_waits, also, 3)

    def each():
        for k, operand in enumerate(operands):
            if waits and k != mine:
                one.wait(flags[k], 5, ranks[k])
            yield operand.to(128) if k == mine else operand.holding(64).to(128)

    places = [place if place == into else place.holding(128) for place in partials]
    fold(one, order, each(), 256, into, places, also=also, block=3)
    agree(batch, one)


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"operands": [SEND, SEND, SEND]}, TypeError),
        ({"operands": (SEND, SEND)}, ValueError),
        ({"mine": -1}, OverflowError),
        ({"nbytes": None}, TypeError),
        ({"order": (0, 1)}, ValueError),
        ({"order": (0, 2, 1)}, ValueError),
        ({"order": (0, 0, 1)}, ValueError),
        ({"order": (0, 1, "1")}, TypeError),
        ({"partials": ()}, ValueError),
        ({"partials": (1,)}, TypeError),
        ({"waits": ()}, ValueError),
        ({"waits": ((RECV,), 1, (1,))}, ValueError),
        ({"also": 1}, TypeError),
        ({"block": -1}, OverflowError),
        ({"block": None, "more": None}, TypeError),
    ],
)
def test_wrong_operands(wrong, error):
    _, cells, _ = members(3)
    right = {"dst": RECV, "operands": cells, "mine": 3, "start": 0, "nbytes": 64}
    more = {"order": linear(3), "partials": (SCRATCH,), "waits": None, "also": None}
    with pytest.raises(error):
        stream().fold_each(*{**right, **more, **wrong}.values())
    many = 70
    with pytest.raises(ValueError, match="more than 64 partial results"):
        stream().fold_each(RECV, (SEND,) * many, many, 0, 64, (0,) * many, (), None, None)


# ---- turns ------------------------------------------------------------------------------------


@pytest.mark.parametrize("grains", [0, GRAINS])
def test_two_turns_tell_those_that_follow(grains):
    _, cells, ranks = members(5)
    batch, one = stream(grains), stream(grains)

    def turn(to, k):
        data = SEND.to(128 * k)
        to.copy(cells[k].holding(128 * k), data, 128)
        to.post(channel_ref(0, Area.FLAGS), k + 1)
        to.isend(data, 128, ranks[0], 3)
        to.test(3)

    for k in range(5):
        one.task = k // 2
        turn(one, k)
    for k in range(2):
        turn(batch, k)
    turns = tuple((k // 2, 128 * k, 128 * k + 128, ()) for k in range(2, 5))
    assert batch.again(0, 4, 4, turns) == [12, 16, 20]
    for wrong in ((0, 3, 4, ()), (0, 19, 4, ()), (4, 0, 4, ()), (0, 4, 99, ())):
        with pytest.raises(ValueError, match=r"again: \d+ operations from number \d+ on"):
            batch.again(*wrong)
    with pytest.raises(TypeError):
        batch.again(0, 4, 4, None)
    agree(batch, one, grains)


def pipelined(nbytes):
    """Yield plans of calls whose pieces go through cells in turn, or between nodes by exchanges."""
    trees = [level_choice("sm", name, cells=cells, chunk=4096)
             for name, cells in (("flat", 4), ("kary", 3), ("knomial", 8))]  # fmt: skip
    trees.append(level_choice("sm", "knomial", chunk=3000, trailing=1))
    exchanges = [level_choice("exchange", name, segment=2048)
                 for name in ("recursive", "halving", "cyclic")]  # fmt: skip
    for kind, op in product(("bcast", "reduce", "allreduce"), ("sum", "matrix product")):
        plain, named = op == "sum", ("", "") if kind == "bcast" else (op, "f8")
        signature = Signature(kind, nbytes // 8, 8, *named, plain, plain)
        between = exchanges if kind == "allreduce" else [level_choice("adapt", "in_order_binary")]
        for tree, outer, segment in product(trees, between, (8192, 20000)):
            choice = Choice((tree, outer), segment)
            if rules_of(virtual(6, 3)).objection(signature, choice) is None:
                yield plan_of_choice(virtual(6, 3), signature, choice, 1 << 18)


def every_task(context):
    """Yield all tasks, begun and ended here."""
    for task in context.tasks:
        context.stream.begin(task)
        yield task
        context.stream.end(task)


@pytest.mark.parametrize("nbytes", [100_000, 131_072])
def test_operations_that_follow_from_others_are_those_of_each_piece(monkeypatch, nbytes):
    plans = list(pipelined(nbytes))
    told = [records(plan) for plan in plans]
    monkeypatch.setattr(messages, "in_strides", every_task)
    monkeypatch.setattr(series, "each_piece", one_by_one)
    for plan, found in zip(plans, told, strict=True):
        assert found == records(plan), plan.choice
    assert len(plans) > 20


# ---- rows -------------------------------------------------------------------------------------


def one_by_one(rows, turns, step, index, first, stop):
    """Emit what rows name with one call for each operation, as `each_piece` does."""
    pieces = [
        (number, at, min(step, end - at), awaits, at == start, at + step >= end)
        for number, start, end, awaits in turns
        for at in range(start, end, step) or (start,)
    ]
    ends = []
    for turn, (stream, name, ahead, *operands) in product(range(first, stop), rows):
        if 0 <= turn + ahead < len(pieces):
            number, *piece = pieces[turn + ahead]
            emit_row(stream, name, operands, index + turn + ahead, number, piece, ends)
    return ends


def emit_row(stream, name, operands, index, number, piece, ends):
    """Emit an operation of a piece."""
    at, nbytes, awaits, first, last = piece

    def place(of):
        return of.to(at) if isinstance(of, Ref) else of[index % len(of)].holding(at)

    def value(each, more):
        return each * index + more

    if name == "label" or (name == "begin" and first):
        stream.task = number
        for position in awaits if name == "begin" else ():
            stream.await_stream(*position)
    elif name == "end" and last:
        ends.append(len(stream))
    elif name == "follow":
        stream.await_stream(operands[1], len(operands[0]))
    elif name in ("copy", "reduce", "accumulate"):
        getattr(stream, name)(*map(place, operands), nbytes)
    elif name == "fold":
        dst, own, cells, mine, order, partials, flags, ranks, *count = operands
        operand = [*cells[index % len(cells)]]
        operand[mine : mine + 1] = [place(own)] if mine < len(operand) else []
        waits = flags, value(*count), ranks
        stream.fold_each(place(dst), tuple(operand), mine, at, nbytes, order,
                         partials or (place(dst),), waits, None)  # fmt: skip
    elif name == "post":
        stream.post(operands[0], value(*operands[1:]))
    elif name == "wait" and value(*operands[2:]) > 0:
        stream.wait_each(operands[0], value(*operands[2:]), operands[1])
    elif name in ("isend", "irecv"):
        where, rank, requests = operands
        getattr(stream, name)(place(where), nbytes, rank, requests[index % len(requests)])
    elif name == "test":
        stream.test(operands[0][index % len(operands[0])])


RIGHT = {
    "follow": (stream(), 1), "copy": (RECV, SEND), "reduce": (RECV, SEND, SEND),
    "accumulate": (RECV, SEND), "post": (SCRATCH, 1, 1), "wait": ((SCRATCH,), (0,), 1, 1),
    "fold": (RECV, SEND, ((SCRATCH, SCRATCH),), 0, (0, 1), (), (SEND, SEND), (0, 1), 1, 1),
    "isend": (SEND, 1, (0,)), "irecv": (RECV, 1, (0, 1)), "test": ((0,),),
}  # fmt: skip
TURNS = ((0, 0, 256, ((1, 2),)), (1, 256, 512, ()))


@pytest.mark.parametrize("name", RIGHT)
def test_operands_of_rows_have_their_types(name):
    for k, wrong in product(range(len(RIGHT[name])), (None, "1", 1.5)):
        operands = (*RIGHT[name][:k], wrong, *RIGHT[name][k + 1 :])
        with pytest.raises(TypeError):
            each_piece(((stream(), name, 0, *operands),), TURNS, 64, 0, 0, 8)
    one = stream()
    assert each_piece(((one, name, 0, *RIGHT[name]),), TURNS, 64, 0, 0, 8) == []
    assert len(one) or name == "follow"


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"rows": [(stream(), "label", 0)]}, TypeError),
        ({"rows": (1,)}, TypeError),
        ({"rows": ((stream(), "label"),)}, TypeError),
        ({"rows": ((1, "label", 0),)}, TypeError),
        ({"rows": ((stream(), 1, 0),)}, TypeError),
        ({"rows": ((stream(), "label", "0"),)}, TypeError),
        ({"rows": ((stream(), "label", 0, 1),)}, ValueError),
        ({"rows": ((stream(), "shuffle", 0),)}, ValueError),
        ({"rows": ((stream(), "test", 0, ()),)}, ValueError),
        ({"rows": ((stream(), "post", 0, RECV, 1 << 70, 0),)}, OverflowError),
        ({"turns": ((0, 0, 64),)}, ValueError),
        ({"turns": ((0, 64, 0, ()),)}, ValueError),
        ({"turns": (("0", 0, 64, ()),)}, TypeError),
        ({"turns": ((0, 0, 64, None),)}, TypeError),
        ({"turns": ((0, 0, 64, ((1,),)),)}, ValueError),
        ({"turns": ((0, 0, 1 << 63, ()),), "step": 1}, MemoryError),
        ({"step": 0}, ValueError),
        ({"step": None}, TypeError),
    ],
)
def test_wrong_rows(wrong, error):
    right = {"rows": ((stream(), "begin", 0),), "turns": TURNS, "step": 64, "index": 0}
    with pytest.raises(error):
        each_piece(*{**right, "first": 0, "stop": 8, **wrong}.values())


# ---- numbers and objects that do not fit --------------------------------------------------------


def test_numbers_beyond_their_fields_are_refused():
    flag, large = channel_ref(0, Area.FLAGS, 0), (1 << 32) + 5
    for call in (
        lambda one: one.wait(flag, 1, large),
        lambda one: one.isend(SEND, 8, large, 0),
        lambda one: one.irecv(RECV, 8, 1, 1 << 31),
        lambda one: one.coll(0, RECV, SEND, 1, large, 0, 0),
        lambda one: one.wait_each((flag,), 1, (large,)),
        lambda one: one.await_stream(large, 0),
    ):
        one = stream()
        with pytest.raises((ValueError, OverflowError, TypeError)):
            call(one)
        assert not len(one)


@pytest.mark.parametrize("grains", [0, GRAINS])
@pytest.mark.parametrize("number", [16, 17, 8192, 8193, 65536, 65537, 140000])
def test_records_stay_as_they_are_while_a_stream_grows(number, grains):
    """Large records move to huge pages, and the program takes their memory over."""
    flag, first, long = channel_ref(0, Area.FLAGS, 64), stream(grains), stream(grains)
    first.wait(flag, 7, 3)
    for start in range(0, number, 1000):
        flags = (flag,) * min(1000, number - start)
        long.wait_each(flags, start, tuple(range(start, start + len(flags))))
    code, terms = joined((first, long))
    operations = np.frombuffer(code, INSTRUCTION)
    assert operations["n"].tolist() == [7, *(k // 1000 * 1000 for k in range(number))]
    assert operations["peer"].tolist() == [3, *range(number)]
    assert len(terms) == ((number + 1) * TERMS.itemsize if grains else 0)
    if grains:
        assert set(np.frombuffer(terms, TERMS)["offset"][:, 0].tolist()) == {64}


def test_a_stream_is_made_and_joined_once():
    one, other = stream(), stream()
    one.copy(RECV, SEND, 64)
    for wrong in ((one, one), (one, other, one)):
        with pytest.raises(ValueError, match="joined once"):
            joined(wrong)
    with pytest.raises(ValueError, match="made once"):
        one.__init__(5, 64, 8, 64, 1)
    bare = Operations.__new__(Operations)
    bare.reduce(RECV, SEND, SEND, 64)  # elements of a byte
    assert len(bare) == 1
