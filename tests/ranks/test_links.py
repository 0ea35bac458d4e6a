"""Long links: what rank 0's first messages say, and who takes part."""

import pytest

from han.ranks import links
from han.ranks.links import long_latency

HOSTS = [7, 7, 3, 5]


class Clocked:
    """A meeting on which steps end at given times, in milliseconds."""

    def __init__(self, rank, times, monkeypatch):
        self.rank, self.met, self.times = rank, [], iter(times)
        monkeypatch.setattr(links, "perf_counter", lambda: 1e-3 * next(self.times))

    def gather(self, ranks, step):
        self.met.append((ranks, step))

    def found(self, hosts=HOSTS, **environ):
        return long_latency(self, hosts, "a step", environ)


@pytest.mark.parametrize(
    ("times", "found"),
    [
        ((900, 1000, 1110, 1212), 50_000),  # rank 2 was late to the first one
        ((0, 100, 101, 201), 0),
        ((0, 9.9, 20, 30), 0),
        ((0, 10.1, 20.2, 30.3), 5050),
    ],
)
def test_the_least_time_there_and_back_counts(monkeypatch, times, found):
    meeting = Clocked(0, times, monkeypatch)
    assert meeting.found() == pytest.approx(found)
    assert meeting.met == [((0, 2), "a step")] * len(times)


def test_rank_0_decides_and_others_wait(monkeypatch):
    slow = (0, 100, 200, 300)
    peer = Clocked(2, slow, monkeypatch)
    assert peer.found() == 0
    assert len(peer.met) == len(slow)
    for rank in (1, 3):
        other = Clocked(rank, (), monkeypatch)
        assert other.found() == 0
        assert other.met == []


def test_nothing_is_asked_on_one_host_or_used_where_calibrations_are_off(monkeypatch):
    alone = Clocked(0, (), monkeypatch)
    assert alone.found([7, 7]) == alone.found([7]) == 0
    assert alone.met == []
    meeting = Clocked(0, (0, 100, 200, 300), monkeypatch)
    assert meeting.found(HAN_CALIBRATE="off") == 0
    assert len(meeting.met) == 4, "the other rank does not know"
