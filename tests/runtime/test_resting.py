"""What a parent keeps of children that were freed."""

from __future__ import annotations

from dataclasses import dataclass

from han.runtime.resting import MOST, MOST_ROOM, Nest


@dataclass
class Parts:
    token: int
    sound: bool = True
    room: int = 0
    sets: int = 1
    ended: int = 0

    def end(self):
        self.ended += 1


def test_the_oldest_set_of_ranks_is_dropped_first():
    nest, every = Nest(), [Parts(k) for k in range(MOST + 3)]
    for k, parts in enumerate(every):
        nest.put((k,), parts)
    assert [parts.ended for parts in every] == [1] * 3 + [0] * MOST
    assert nest.take((0,)) is None
    assert nest.take((3,)) is every[3]
    assert nest.take((3,)) is None
    assert every[3].ended == 0


def test_later_parts_of_the_same_ranks_replace_earlier_ones():
    nest, first, second = Nest(), Parts(1), Parts(2)
    nest.put((0, 1), first)
    nest.put((0, 1), second)
    assert (first.ended, second.ended, len(nest)) == (1, 0, 1)


def test_parts_after_an_error_are_given_back():
    nest, parts = Nest(), Parts(1)
    nest.put((0, 1), parts)
    parts.sound = False
    assert nest.take((0, 1)) is None
    assert parts.ended == 1


def test_a_nest_that_is_closed_has_given_all_back():
    nest, every = Nest(), [Parts(k) for k in range(4)]
    for k, parts in enumerate(every):
        nest.put((k,), parts)
    nest.close()
    assert [parts.ended for parts in every] == [1] * 4
    assert not nest.open
    assert not len(nest)


def test_sets_of_ranks_below_those_of_a_child_count_too():
    nest, every = Nest(), [Parts(k, sets=MOST // 2) for k in range(3)]
    for k, parts in enumerate(every):
        nest.put((k,), parts)
    assert [parts.ended for parts in every] == [1, 0, 0]
    assert nest.sets == MOST


def test_rings_that_have_grown_are_kept_up_to_a_limit():
    nest, every = Nest(), [Parts(k, room=MOST_ROOM // 2) for k in range(4)]
    for k, parts in enumerate(every):
        nest.put((k,), parts)
        assert nest.room <= MOST_ROOM
    assert [parts.ended for parts in every] == [1, 1, 0, 0]
    large = Parts(4, room=2 * MOST_ROOM)
    nest.put((4,), large)
    assert (len(nest), large.ended) == (1, 0)
