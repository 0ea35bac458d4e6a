"""Messages of a transfer: whole grains, completed in order, whose requests serve later ones."""

from types import SimpleNamespace

from test_batches import GRAIN, RECV, SEND, agree, stream

from han.submodules.parts.mail import Mail


def mail_of(made):
    """Return the mail of a stream, to and from ranks 7 and 8."""
    group = SimpleNamespace(ranks=(7, 8))
    builder = SimpleNamespace(request=iter(range(10)).__next__)
    return Mail(SimpleNamespace(stream=made, group=group, grain=GRAIN, builder=builder))


def test_messages_of_a_transfer():
    """160 bytes in messages of 64, since 100 bytes hold one grain of 64."""
    made, one = stream(), stream()
    mail = mail_of(made)
    came = mail.receive(RECV, 64, 256, 1, 100)
    sent = mail.send(SEND, 0, 0, 0, 100)
    assert came.overlaps(0, 65)
    assert came.overlaps(255, 300)
    assert not came.overlaps(0, 64)
    assert not came.overlaps(256, 300)
    for number, at in enumerate((64, 128, 192)):
        one.irecv(RECV.to(at), 64, 8, number)
    one.isend(SEND, 0, 7, 3)
    awaited = ((64, ()), (65, (0,)), (60, ()), (128, ()), (192, (1,)), (65, ()), (None, (2,)))
    for until, requests in (*awaited, (999, ())):
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
