"""Addresses and the records that streams write."""

import numpy as np
import pytest
from test_batches import members

from han._native import Operations, joined
from han.model.channel_layout import MAX_CHANNELS
from han.model.program import INSTRUCTION, PEER, TERMS, Area, Base, Code, Coll, Ref, channel_ref
from han.tasks.stream import NOWHERE, Peer

ELEMENT, GRAIN, GRAINS = 8, 64, 32
NBYTES = GRAIN * GRAINS
TAG, TASK = 5, 7


@pytest.fixture
def stream():
    made = Operations(TAG, NBYTES, ELEMENT, GRAIN, GRAINS)
    made.task = TASK
    return made


def records(*streams):
    code, terms = joined(streams)
    return np.frombuffer(code, INSTRUCTION), np.frombuffer(terms, TERMS)


def test_addresses():
    ref = Ref(Base.SEND, 24)
    assert (ref.base, ref.offset, ref.at, ref.origin, ref.blocks) == (1, 24, 0, 0, 0)
    assert ref == Ref(1, offset=24) != Ref(2, 24)
    assert hash(ref) == hash(Ref(1, 24))
    assert ref + 8 == 8 + ref == Ref(1, 32)
    assert ref.to(100) == Ref(1, 24, 100)
    assert ref.holding(100) == Ref(1, 24, 100, 100)
    assert ref.behind(2).behind(1) == Ref(1, 24, blocks=3)
    assert ref.within(Base.RECV).to(64) == Ref(2, 24, 64)
    assert Ref(1, 24, 100, 90, 3).start(1000) == 24 + 3000 + 100 - 90
    assert repr(ref) == "Ref(base=1, offset=24, at=0, origin=0, blocks=0)"
    assert ref.to(np.int64(5)) == ref.to(5)
    assert ref != 24


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (lambda: Ref(1, -1), OverflowError),
        (lambda: Ref(1).to(-8), OverflowError),
        (lambda: Ref(1).to(1.5), TypeError),
        (lambda: Ref(1) + 2**64, OverflowError),
        (lambda: Ref(), TypeError),
    ],
)
def test_wrong_addresses(wrong, error):
    with pytest.raises(error):
        wrong()


def test_each_operation_has_its_record(stream):
    send, recv, cell = (
        Ref(Base.SEND).to(128),
        Ref(Base.RECV).to(128),
        channel_ref(1, Area.CELLS, 64),
    )
    cell, flag = cell.holding(128), channel_ref(0, Area.FLAGS, 192)
    stream.copy(recv, send, 256)
    stream.reduce(recv, send, cell, 256)
    stream.reduce(recv, send, cell, 64, also=cell)
    stream.reduce(recv, send, cell, 64, block=3)  # no block differs
    stream.pull(recv, send, 64, Peer(3, 1, 2))
    stream.push(recv, send, 64, Peer(3, 1, 2))
    stream.post(flag, 9)
    stream.wait(flag, 9, 4)
    stream.irecv(recv, 64, 6, 2)
    stream.isend(send, 64, 6, 1)
    stream.test(2)
    stream.test(1)
    stream.coll(Coll.REDUCE, recv, send, 8, 4, 1, 1)
    code, _ = records(stream)
    cells, flags = cell.base, flag.base
    expected = [
        (Code.COPY, 0, [2, 1, 0, 0], [128, 128, 0, 0], 256, 0),
        (Code.REDUCE, 0, [2, 1, cells, 0], [128, 128, 64, 0], 32, 0),
        (Code.REDUCE2, 0, [2, 1, cells, cells], [128, 128, 64, 64], 8, 0),
        (Code.REDUCE, 0, [2, 1, cells, 0], [128, 128, 64, 0], 8, 0),
        (Code.PULL, 3, [2, 1, 0, 0], [128, 128, 1, 2], 64, 0),
        (Code.PUSH, 3, [2, 1, 0, 0], [128, 128, 1, 2], 64, 0),
        (Code.POST, 0, [flags, 0, 0, 0], [192, 0, 0, 0], 9, 0),
        (Code.WAIT, 4, [flags, 0, 0, 0], [192, 0, 0, 0], 9, 0),
        (Code.IRECV, 6, [2, 0, 0, 0], [128, 0, 0, 0], 64, 2),
        (Code.ISEND, 6, [0, 1, 0, 0], [0, 128, 0, 0], 64, 1),
        (Code.TEST, 6, [0, 0, 0, 0], [0, 0, 0, 0], 64, 2),
        (Code.TEST, 0, [0, 0, 0, 0], [0, 0, 0, 0], 0, 1),
        (Code.COLL, 4, [2, 1, 0, 0], [128, 128, Coll.REDUCE, 1], 8, 1),
    ]
    names = ("code", "peer", "base", "off", "n", "slot")
    assert [tuple(row[name].tolist() for name in names) for row in code] == expected
    assert (code["stream"] == TAG).all()
    assert (code["task"] == TASK).all()
    assert stream.operand == 256
    assert stream.writes[:2] == bytes([0, 1 << Area.CELLS])
    assert len(stream.writes) == MAX_CHANNELS


def test_terms_say_which_grains_move(stream):
    cell = channel_ref(0, Area.CELLS, 640).holding(128)
    stream.copy(cell.to(192), Ref(Base.SEND).behind(3).to(192), 128)
    stream.irecv(cell.to(256), 64, 1, 0)
    stream.test(0)
    stream.post(channel_ref(0, Area.SMALL, 64), 1)
    _, terms = records(stream)
    names = ("offset", "start", "stop", "origin", "blocks", "each")
    assert [tuple(term[name].tolist() for name in names) for term in terms] == [
        ([640, 0, 0, 0], 3, 5, [2, 0, 3, 3], [0, 3, 0, 0], 1),
        ([640, 0, 0, 0], 4, 5, [2, 4, 4, 4], [0, 0, 0, 0], 1),
        ([0, 0, 0, 0], 4, 5, [4, 4, 4, 4], [0, 0, 0, 0], 1),
        ([64, 0, 0, 0], 0, 0, [0, 0, 0, 0], [0, 0, 0, 0], 0),
    ]


def test_members_are_awaited_in_turn(stream):
    flags, _, ranks = members(3)
    one = Operations(TAG, NBYTES, ELEMENT, GRAIN, GRAINS)
    one.task = TASK
    stream.wait_each(flags, 9, ranks)
    stream.wait_each((), 9, ())
    for flag, rank in zip(flags, ranks, strict=True):
        one.wait(flag, 9, rank)
    assert joined((stream,)) == joined((one,))


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"flags": []}, TypeError),
        ({"flags": (1, 2)}, TypeError),
        ({"k": -1}, OverflowError),
        ({"ranks": (1,)}, ValueError),
        ({"ranks": (1, "2")}, TypeError),
    ],
)
def test_wrong_members(stream, wrong, error):
    flags, _, ranks = members(2)
    with pytest.raises(error):
        stream.wait_each(*{"flags": flags, "k": 1, "ranks": ranks, **wrong}.values())


def test_nothing_is_written_for_no_bytes(stream):
    here = Ref(Base.RECV)
    stream.copy(here, Ref(Base.SEND), 0)
    stream.copy(here, here, 64)
    stream.reduce(here, here, here, 0)
    stream.pull(here, here, 0, Peer(0, 0, 0))
    assert len(stream) == 0
    assert joined((stream,)) == joined(()) == (b"", b"")


def test_a_stream_is_awaited_once():
    one, other = (Operations(TAG, NBYTES, ELEMENT, GRAIN, GRAINS) for _ in range(2))
    for position in (0, 3, 3, 2, 5):
        one.await_stream(1, position)
    for position in (3, 5):
        other.await_stream(1, position)
    assert len(one) == len(other) == 2


def test_streams_are_joined():
    plain = [Operations(k, NBYTES, ELEMENT, ELEMENT, 0) for k in range(3)]
    for k, one in enumerate(plain):
        for _ in range(20 * k + 1):
            one.copy(Ref(Base.RECV), Ref(Base.SEND), 8)
    plain[0].await_stream(2, 5)
    code, terms = records(*plain)
    assert not len(terms)
    assert code["stream"].tolist() == [0, 0] + [1] * 21 + [2] * 41
    assert code["n"][1] == 2 + 21 + 5
    for wrong in ((3, 1), (2, 42)):
        plain[1].await_stream(*wrong)
        with pytest.raises(ValueError, match=f"awaits number {wrong[1]} of stream {wrong[0]}"):
            joined(tuple(plain))
        assert len(plain[1]) == 1, "streams keep their operations where they are not joined"
        plain[1] = Operations(1, NBYTES, ELEMENT, ELEMENT, 0)


@pytest.mark.parametrize("longest", range(3))
def test_joined_streams_give_away_their_operations(longest):
    streams = tuple(Operations(k, NBYTES, ELEMENT, GRAIN, GRAINS) for k in range(3))
    for k, one in enumerate(streams):
        for j in range(100 if k == longest else 7 * k):
            one.copy(Ref(Base.RECV).to(GRAIN * (j % 8)), Ref(Base.SEND).to(GRAIN * (j % 8)), GRAIN)
    code, terms = records(*streams)
    lengths = [100 if k == longest else 7 * k for k in range(3)]
    assert code["stream"].tolist() == np.repeat(range(3), lengths).tolist()
    assert terms["start"].tolist() == [j % 8 for n in lengths for j in range(n)]
    assert code.flags.writeable
    assert [len(one) for one in streams] == [0, 0, 0]
    streams[0].copy(Ref(Base.RECV), Ref(Base.SEND), GRAIN)
    assert len(records(*streams)[0]) == 1


def test_streams_of_different_programs_are_not_joined(stream):
    other = Operations(1, NBYTES, ELEMENT, ELEMENT, 0)
    with pytest.raises(ValueError, match="streams for one size and for many"):
        joined((stream, other))


@pytest.mark.parametrize(
    ("act", "error", "message"),
    [
        (lambda s: s.copy(Ref(2).to(64), Ref(1), 64), ValueError, "bytes 0 and 64 of the message"),
        (lambda s: s.copy(Ref(2), Ref(1, 64), 64), ValueError, "offset of 64 bytes in a user's"),
        (lambda s: s.copy(Ref(2), Ref(PEER + 1, 8), 64), ValueError, "offset of 8 bytes in a"),
        (lambda s: s.copy(Ref(2).to(8), Ref(1).to(8), 64), ValueError, "bytes 8 to 72: not whole"),
        (lambda s: s.copy(Ref(2), Ref(1), 8), ValueError, "bytes 0 to 8: not whole grains of 64"),
        (lambda s: s.copy(Ref(1 << 16), Ref(1), 64), ValueError, "a base of 65536"),
        (lambda s: s.copy(Ref(2), 5, 64), TypeError, "a Ref expected, not int"),
        (lambda s: s.copy(Ref(2), Ref(1)), TypeError, "copy takes 3 arguments, not 2"),
        (lambda s: s.reduce(Ref(2), Ref(1), Ref(1), also=Ref(2)), TypeError, "4 arguments, not 3"),
        (lambda s: s.reduce(Ref(2), Ref(1), Ref(1), 64, to=Ref(2)), TypeError, "argument 'to'"),
        (lambda s: s.reduce(Ref(2), Ref(1), Ref(1), 64, also=7), TypeError, "a Ref expected"),
        (lambda s: s.copy(Ref(2), Ref(1), 64, block=-1), OverflowError, "negative"),
        (lambda s: s.post(Ref(6), -1), OverflowError, "negative"),
        (lambda s: s.test(1 << 40), ValueError, "a request of number"),
        (lambda s: s.pull(Ref(2), Ref(1), 64, 3), TypeError, "tuple"),
    ],
)
def test_what_cannot_be_written_is_refused(stream, act, error, message):
    with pytest.raises(error, match=message):
        act(stream)
    assert len(stream) == 0


def test_collectives_of_the_library_need_room_for_an_operand(stream):
    stream.coll(Coll.REDUCE | Coll.BLOCKING, NOWHERE, Ref(Base.SEND), 16, 0, 0, 0)
    stream.coll(Coll.BCAST, Ref(Base.RECV), NOWHERE, 64, 0, 0, 0)
    _, terms = records(stream)
    assert stream.operand == 128
    assert terms["each"].tolist() == [ELEMENT, 1]


@pytest.mark.parametrize("arguments", [(1, 8, 0, 8, 0), (1, 8, 8, 0, 0), (1 << 17, 8, 8, 8, 0), ()])
def test_streams_of_impossible_messages(arguments):
    with pytest.raises((ValueError, OverflowError, TypeError)):
        Operations(*arguments)
