"""Operations for several members at once: they are those of one call for each member."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_planner import quick

from han._native import Mail, Operations, Transfer, joined
from han.model.program import INSTRUCTION, Area, Base, Code, Ref, channel_ref
from han.submodules.parts.fold import fold
from han.tasks.canonical import canonical, linear, rooms

ELEMENT, GRAIN, GRAINS = 8, 64, 64
SEND, RECV, SCRATCH = Ref(Base.SEND), Ref(Base.RECV), Ref(Base.SCRATCH)


def stream(grains=GRAINS):
    return Operations(5, GRAIN * GRAINS, ELEMENT, GRAIN, grains)


def members(number):
    """Return flags, cells and ranks of members."""
    flags = tuple(channel_ref(0, Area.FLAGS, 64 * k) for k in range(number))
    cells = tuple(channel_ref(0, Area.CELLS, 640 * k) for k in range(number))
    return flags, cells, tuple(range(7, 7 + number))


def agree(a, b):
    """Check that two streams have the same operations."""
    assert (a.operand, a.writes, len(a)) == (b.operand, b.writes, len(b))
    assert joined((a,)) == joined((b,))


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


# ---- pieces -----------------------------------------------------------------------------------


@pytest.mark.parametrize("in_cells", [True, False])
@pytest.mark.parametrize("number", [0, 1, 3])
def test_pieces_are_passed_one_by_one(in_cells, number):
    """320 bytes in pieces of 128, from number 1 on: through cells 1, 0 and 1 of two."""
    flags, cells, ranks = members(number + 3)
    dst = (SCRATCH, SCRATCH + 128) if in_cells else RECV
    operands = tuple(tuple(cells[m] + 64 * k for m in range(number)) for k in range(2))
    arrivals, reads = (flags[:number], ranks[:number]), (flags[-2:-1], ranks[-2:-1])
    batch, one = stream(), stream()
    found = batch.pass_pieces(
        dst, SEND, operands, (64, 384, 128), 1, arrivals, reads, (flags[-1], flags[-2])
    )
    assert found == 4
    for index, start, nbytes in ((1, 64, 128), (2, 192, 128), (3, 320, 64)):
        if index > 1:
            one.wait_each(reads[0], index - 1, reads[1])
        place = dst[index % 2].holding(start) if in_cells else RECV.to(start)
        own, these = SEND.to(start), operands[index % 2]
        one.combine_each(place, own, these, nbytes, arrivals[0], index + 1, arrivals[1])
        one.post(flags[-1], index + 1)
        one.post(flags[-2], index + 1)
    agree(batch, one)


def test_a_task_without_data_is_one_piece():
    flags, _, ranks = members(2)
    batch, one = stream(), stream()
    arrivals = flags[:1], ranks[:1]
    none = ((), ())
    assert batch.pass_pieces(RECV, SEND, ((SCRATCH,),), (0, 0, 64), 5, arrivals, none, flags) == 6
    one.wait(flags[0], 6, ranks[0])
    one.post(flags[0], 6)
    one.post(flags[1], 6)
    agree(batch, one)


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"dst": 1}, TypeError),
        ({"dst": ()}, ValueError),
        ({"own": ()}, ValueError),
        ({"own": (None,)}, TypeError),
        ({"operands": ()}, ValueError),
        ({"operands": ((),)}, ValueError),
        ({"operands": (1,)}, TypeError),
        ({"part": (0, 64)}, ValueError),
        ({"part": (0, 64, 0)}, ValueError),
        ({"part": (64, 0, 64)}, ValueError),
        ({"index": -1}, OverflowError),
        ({"arrivals": ()}, ValueError),
        ({"arrivals": ((RECV,), ())}, ValueError),
        ({"reads": ([], ())}, TypeError),
        ({"posts": [RECV]}, TypeError),
        ({"posts": (1,)}, TypeError),
    ],
)
def test_wrong_pieces(wrong, error):
    flags, cells, ranks = members(1)
    right = {"dst": RECV, "own": SEND, "operands": (cells,), "part": (0, 64, 64), "index": 0}
    more = {"arrivals": (flags, ranks), "reads": (flags, ranks), "posts": flags}
    with pytest.raises(error):
        stream().pass_pieces(*{**right, **more, **wrong}.values())


# ---- messages ---------------------------------------------------------------------------------


def test_messages_of_a_transfer():
    """160 bytes in messages of 64, since 100 bytes hold one grain of 64."""
    made, one = stream(), stream()
    mail = Mail(made, (7, 8), GRAIN, iter(range(10)).__next__)
    came = mail.receive(RECV, 64, 256, 1, 100)
    sent = mail.send(SEND, 0, 0, 0, 100)
    assert (came.place, came.start, came.stop) == (RECV, 64, 256)
    assert came.overlaps(0, 65)
    assert came.overlaps(255, 300)
    assert not came.overlaps(0, 64)
    assert not came.overlaps(256, 300)
    for number, at in enumerate((64, 128, 192)):
        one.irecv(RECV.to(at), 64, 8, number)
    one.isend(SEND, 0, 7, 3)
    for until, requests in ((64, ()), (65, (0,)), (128, ()), (192, (1,)), (None, (2,)), (999, ())):
        mail.complete(came, until)
        for request in requests:
            one.test(request)
    mail.complete(sent, 1)  # no bytes are one message, which begins before byte 1
    one.test(3)
    again = mail.receive(RECV, 0, 192, 1, 64)  # requests that are free, the last one first
    for at, request in ((0, 3), (64, 2), (128, 1)):
        one.irecv(RECV.to(at), 64, 8, request)
    mail.complete(again)
    for request in (3, 2, 1):
        one.test(request)
    agree(made, one)


@pytest.mark.parametrize("members", [(), (0,), (1, 1), (0, 0, 1), (1,)])
def test_operands_are_combined_as_they_arrive(members):
    """Bytes 64 to 320 in parts of 128; a member's number says if it comes before (0) this rank."""
    made, one = stream(), stream()
    mails = [Mail(each, (7, 8), GRAIN, iter(range(20)).__next__) for each in (made, one)]
    rooms = [(SCRATCH + 4096 * k).holding(64) for k in range(len(members))]
    came, expected = ([mail.receive(r, 64, 320, 1, 64) for r in rooms] for mail in mails)
    sends, leaving = ([mail.send(RECV, at, 256, 0, 64) for at in (0, 128)] for mail in mails)
    before, after = ([k for k, side in enumerate(members) if side == x] for x in (0, 1))
    sides = [tuple(came[k] for k in side) for side in (before, after)]
    mails[0].combine(RECV, SEND, 64, 320, 128, *sides, tuple(sends))
    for first, last in ((64, 192), (192, 320)):
        own, result, total = SEND.to(first), RECV.to(first), None
        for k in before:
            mails[1].complete(expected[k], last)
            if total is not None:
                one.reduce(total, total, rooms[k].to(first), last - first)
            total = total or rooms[k].to(first)
        for transfer in leaving:
            if transfer.overlaps(first, last):
                mails[1].complete(transfer, last)
        if total is not None:
            one.reduce(result, total, own, last - first)
        total = own if total is None else result
        for k in after:
            mails[1].complete(expected[k], last)
            one.reduce(result, total, rooms[k].to(first), last - first)
            total = result
        one.copy(result, total, last - first)
    agree(made, one)


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (lambda mail: mail.combine(RECV, SEND, 0, 64, 0, (), (), ()), ValueError),
        (lambda mail: mail.combine(RECV, SEND, 64, 0, 64, (), (), ()), ValueError),
        (lambda mail: mail.combine(RECV, SEND, 0, 64, 64, [], (), ()), ValueError),
        (lambda mail: mail.combine(RECV, SEND, 0, 64, 64, (1,), (), ()), TypeError),
        (lambda mail: mail.combine(RECV, SEND, 0, 64, 64, (), (1,), ()), TypeError),
        (lambda mail: mail.combine(RECV, SEND, 0, 64, 64, (), (), (1,)), TypeError),
        (lambda mail: mail.combine(RECV, 1, 0, 64, 64, (), (), ()), TypeError),
        (lambda mail: Mail.__new__(Mail).combine(RECV, SEND, 0, 64, 64, (), (), ()), ValueError),
        (lambda mail: mail.send(1, 0, 64, 0, 64), TypeError),
        (lambda mail: mail.send(SEND, 64, 0, 0, 64), ValueError),
        (lambda mail: mail.send(SEND, 0, 64, 2, 64), IndexError),
        (lambda mail: mail.send(SEND, 0, 64, 0), TypeError),
        (lambda mail: mail.send(SEND, 0, 1 << 50, 0, 1), ValueError),
        (lambda mail: mail.complete(SEND), TypeError),
        (lambda mail: mail.complete(), TypeError),
        (lambda mail: mail.complete(mail.send(SEND, 0, 64, 0, 64), -1), OverflowError),
        (lambda mail: mail.send(SEND, 0, 128, 0, 64), ValueError),
        (lambda mail: mail.__init__(stream(), (1,), 8, int), ValueError),
        (lambda mail: Mail(8, (1,), 8, int), ValueError),
        (lambda mail: Mail(stream(), (1,), 0, int), ValueError),
        (lambda mail: Mail(stream(), [1], 8, int), TypeError),
        (lambda mail: Mail.__new__(Mail).send(SEND, 0, 64, 0, 64), ValueError),
        (lambda mail: Mail.__new__(Mail).complete(SEND), TypeError),
        (lambda mail: Transfer(), TypeError),
    ],
)
def test_wrong_messages(wrong, error):
    requests = iter((0, 1 << 40))
    mail = Mail(stream(), (7, 8), GRAIN, requests.__next__)
    with pytest.raises(error):
        wrong(mail)


# ---- rings ------------------------------------------------------------------------------------


def shown(made):
    """Return what each operation does: its code, where in the message, its bytes, and requests."""
    number, others = len(made), [stream(0) for _ in range(4)]
    for other in others:
        other.wait_each((channel_ref(0, Area.FLAGS),) * 9, 1, (0,) * 9)
    code, _ = joined((made, *others))
    found = []
    for op in np.frombuffer(code, INSTRUCTION)[:number]:
        name = Code(op["code"]).name
        if name == "AWAIT":
            found.append(f"await {op['peer']}:{int(op['n']) - number - 9 * (int(op['peer']) - 1)}")
        elif name == "REDUCE":
            found.append(f"reduce {op['off'][0]} from {op['off'][1] // 1000}")
        elif name == "TEST":
            found.append(f"test {op['slot']}")
        else:
            place = op["off"][1 if name == "ISEND" else 0]
            where = place if name == "ISEND" or op["base"][0] == Base.RECV else f"cell {place}"
            found.append(f"{name[1:].lower()} {where} {op['peer']} ({op['slot']})")
    return found


def test_the_hops_of_a_ring():
    """Two nodes, blocks of two pieces and one, in cells of 1000 bytes for two pieces."""
    made = stream(0)
    cells = (SCRATCH, SCRATCH + 1000)
    mine, others = ((0, 64), (64, 128)), ((128, 192), None)
    awaits = ((), ((3, 7),), ((3, 9), (4, 1)))
    ends, free, first = made.circulate(
        SEND, RECV, cells, (1, 2), (*others, *mine, *mine), 2, awaits, (5,), 8
    )
    # This rank sends bytes 0 to 128 and combines bytes 128 to 192, which it sends then.
    assert shown(made) == [
        "recv cell 0 1 (5)",
        "send 0 2 (8)", "await 3:7", "send 64 2 (9)",
        "test 5", "await 3:9", "await 4:1", "reduce 128 from 0", "send 128 2 (5)",
        "test 8", "recv 0 1 (8)",
        "test 9", "recv 64 1 (9)",
        "test 8", "test 9", "test 5",
    ]  # fmt: skip
    assert ends == [8, 14, 15]
    assert free == (8, 9, 5)
    assert first == 10


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"source": 1}, TypeError),
        ({"cells": ()}, ValueError),
        ({"cells": (1,)}, TypeError),
        ({"peers": (1,)}, TypeError),
        ({"pieces": ((0, 64), (64, 128))}, ValueError),
        ({"pieces": ((0, 64), (64, 128), (64,))}, TypeError),
        ({"width": 0}, ValueError),
        ({"width": 4}, ValueError),
        ({"awaits": ()}, ValueError),
        ({"awaits": ((), ((1, -2),))}, OverflowError),
        ({"awaits": ((), 3)}, TypeError),
        ({"free": [1]}, TypeError),
        ({"free": (1 << 40,)}, ValueError),
        ({"first": 1 << 31}, ValueError),
        ({"first": 2**64 - 1}, ValueError),
        ({"peers": (1 << 32, 2)}, ValueError),
    ],
)
def test_wrong_rings(wrong, error):
    right = {"source": SEND, "result": RECV, "cells": (SCRATCH,), "peers": (1, 2)}
    more = {"pieces": ((0, 64), (64, 128), (64, 128)), "width": 1, "awaits": ((), ())}
    with pytest.raises(error):
        stream().circulate(*{**right, **more, "free": (), "first": 0, **wrong}.values())


# ---- numbers and objects that do not fit --------------------------------------------------------


def test_numbers_beyond_their_fields_are_refused():
    flag, large = channel_ref(0, Area.FLAGS, 0), (1 << 32) + 5
    mail = Mail(stream(), (large,), GRAIN, iter(range(9)).__next__)
    for call in (
        lambda one: one.wait(flag, 1, large),
        lambda one: one.isend(SEND, 8, large, 0),
        lambda one: one.irecv(RECV, 8, 1, 1 << 31),
        lambda one: one.coll(0, RECV, SEND, 1, large, 0, 0),
        lambda one: one.wait_each((flag,), 1, (large,)),
        lambda one: one.await_stream(large, 0),
        lambda one: mail.send(SEND, 0, 64, 0, 64),
        lambda one: Mail(stream(), (1,), -1, int),
    ):
        one = stream()
        with pytest.raises((ValueError, OverflowError, TypeError)):
            call(one)
        assert not len(one)


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


def test_a_transfer_belongs_to_its_mail():
    mine, others = (Mail(stream(), (1,), GRAIN, iter(range(9)).__next__) for _ in range(2))
    transfer = mine.receive(RECV, 0, 64, 0, 64)
    with pytest.raises(ValueError, match="another Mail"):
        others.complete(transfer)
    with pytest.raises(ValueError, match="another Mail"):
        Mail.__new__(Mail).complete(transfer)
    mine.complete(transfer)
