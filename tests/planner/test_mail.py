"""Messages of a transfer, and the steps of an exchange: those of one call for each message."""

import gc
import weakref

import pytest
from test_batches import GRAIN, RECV, SCRATCH, SEND, agree, stream

from han._native import Mail, Transfer


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


def test_a_stage_of_an_exchange():
    """Members 0 and 1 bring bytes 0 to 128 and 128 to 192 each; this rank is between them."""
    made, one = stream(), stream()
    mail, other = (Mail(each, (7, 8), GRAIN, iter(range(20)).__next__) for each in (made, one))
    runs = ((0, 128), (128, 192))
    arriving = tuple((m, *run, 4096 * m + run[0]) for m in (0, 1) for run in runs)
    leaving, folds = ((1, 0, 192),), tuple((*run, run[0] == 0, (0,), (1,)) for run in runs)
    mail.stage(SCRATCH, SEND, SEND, RECV, 64, 128, 64, arriving, leaving, folds)
    came = {
        (m, a): other.receive((SCRATCH + at).holding(64 + a), 64 + a, 64 + b, m, 128)
        for m, a, b, at in arriving
    }
    sent = other.send(SEND, 64, 256, 1, 128)
    for (start, stop), own in zip(runs, (SEND, RECV), strict=True):
        before, after = (came[0, start],), (came[1, start],)
        other.combine(RECV, own, 64 + start, 64 + stop, 64, before, after, (sent,))
    other.complete(sent)
    agree(made, one)


def gathering(mail, steps):
    """Do what `Mail.gather` does, by calls for each message."""
    sent = []
    for arriving, leaving in steps:
        came = [mail.receive(RECV, 64 + a, 64 + b, m, 64) for m, a, b in arriving]
        sent += [mail.send(RECV, 64 + a, 64 + b, m, 64) for m, a, b in leaving]
        for transfer in came:
            mail.complete(transfer)
    for transfer in sent:
        mail.complete(transfer)


FOLD = (0, 8, 0, (0,), ())  # of a member from which nothing arrives
ALONE, TURN = (0, 8, 1, (), ()), (0, 0, 8, ())
STEPS = ((((0, 0, 128),), ((1, 128, 256),)), ((), ((0, 0, 256),)), (((1, 256, 320),), ()))


def test_gathering_steps():
    made, one = stream(), stream()
    mail, other = (Mail(each, (7, 8), GRAIN, iter(range(20)).__next__) for each in (made, one))
    mail.gather(RECV, 64, 64, STEPS)
    gathering(other, STEPS)
    agree(made, one)


def test_whole_tasks_of_an_exchange():
    """A stage without folds, one with, and steps, of two tasks; the first awaits a stream."""
    made, one = stream(), stream()
    mail, other = (Mail(each, (7, 8), GRAIN, iter(range(20)).__next__) for each in (made, one))
    stages = ((), ((1, 0, 64),), ()), (((0, 0, 64, 0),), ((1, 0, 64),), ((0, 64, 1, (0,), ()),))
    third = ((), ((0, 0, 64),), ())  # of what has been combined
    task = (*stages, third), STEPS
    turns = (3, 64, 128, ((2, 5),)), (4, 128, 192, ())
    ends = mail.exchange(SCRATCH, SEND, RECV, 64, 64, turns, (task, ((), ())))
    one.task = 3
    one.await_stream(2, 5)
    for stage, mine in zip(task[0], (SEND, SEND, RECV), strict=True):
        other.stage(SCRATCH, mine, SEND, RECV, 64, 64, 64, *stage)
    gathering(other, STEPS)
    assert ends == (len(one), len(one)), "the second task has no steps"
    assert made.task == 4
    agree(made, one)


def test_a_mail_in_a_cycle_is_collected():
    """A function that makes requests may refer to the mail, and to its transfers."""

    class Owner:
        def request(self):
            return 0

    owner = Owner()
    owner.mail = Mail(stream(), (7, 8), GRAIN, owner.request)
    owner.transfer = owner.mail.receive(RECV, 0, 64, 1, 64)
    assert gc.is_tracked(owner.transfer)
    gone = weakref.ref(owner)
    del owner
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (lambda mail: mail.combine(RECV, SEND, 0, 64, 0, (), (), ()), ValueError),
        (lambda mail: mail.combine(RECV, SEND, 64, 0, 64, (), (), ()), ValueError),
        (lambda mail: mail.combine(RECV, SEND, 0, 64, 64, [], (), ()), TypeError),
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
        (lambda mail: mail.stage(RECV, RECV, RECV, RECV, 0, 8, 8, (), ()), TypeError),
        (lambda mail: mail.stage(RECV, RECV, RECV, RECV, 0, 8, 8, (), (), []), TypeError),
        (
            lambda mail: mail.stage(RECV, RECV, RECV, RECV, 0, 8, 8, ((0, 0, 8),), (), ()),
            ValueError,
        ),
        (
            lambda mail: mail.stage(RECV, RECV, RECV, RECV, 0, 8, 8, (), ((2, 0, 8),), ()),
            IndexError,
        ),
        (lambda mail: mail.stage(RECV, RECV, RECV, RECV, 0, 8, 8, (), (), (FOLD,)), ValueError),
        (lambda mail: mail.stage(RECV, RECV, RECV, RECV, 0, 8, 0, (), (), (ALONE,)), ValueError),
        (lambda mail: mail.stage(RECV, RECV, RECV, RECV, 0, 8, 8, (), (), (0,)), TypeError),
        (lambda mail: mail.gather(RECV, 0, 8, [()]), TypeError),
        (lambda mail: mail.gather(RECV, 0, 8, ((),)), ValueError),
        (lambda mail: mail.gather(RECV, 0, 8, (((), None),)), TypeError),
        (lambda mail: mail.exchange(RECV, RECV, RECV, 8, 8, (TURN,), ()), ValueError),
        (lambda mail: mail.exchange(RECV, RECV, RECV, 8, 8, (TURN,), ((),)), ValueError),
        (lambda mail: mail.exchange(RECV, RECV, RECV, 8, 8, (TURN,), ((((),), ()),)), ValueError),
        (lambda mail: mail.exchange(RECV, RECV, RECV, 8, 8, ((),), (((), ()),)), ValueError),
        (lambda mail: Mail.__new__(Mail).gather(RECV, 0, 8, ()), ValueError),
        (lambda mail: Mail.__new__(Mail).exchange(RECV, RECV, RECV, 8, 8, (), ()), ValueError),
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
