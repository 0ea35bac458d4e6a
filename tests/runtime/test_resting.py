"""What a parent keeps of children that were freed."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest
from threaded import run_in_threads, switching

from han.model.channel_layout import RING_MAX
from han.runtime.measured import MOST_LEFT, MOST_RESTED, MOST_ROOM
from han.runtime.resting import Nest


@dataclass
class Parts:
    token: int
    sound: bool = True
    room: int = 0
    nest: Nest = field(default_factory=Nest)
    ended: int = 0
    error: str = ""

    def drop(self):
        self.ended += 1
        if self.error:
            raise OSError(self.error)


def keep(nest, ranks, parts):
    for one in nest.put(ranks, parts):
        one.drop()


def test_the_oldest_set_of_ranks_is_dropped_first():
    nest, every = Nest(), [Parts(k) for k in range(MOST_RESTED + 3)]
    for k, parts in enumerate(every):
        keep(nest, (k,), parts)
    assert [parts.ended for parts in every] == [1] * 3 + [0] * MOST_RESTED
    assert nest.take((0,)) is None
    assert nest.take((3,)) is every[3]
    assert nest.take((3,)) is None
    assert every[3].ended == 0


def test_later_parts_of_the_same_ranks_replace_earlier_ones():
    nest, first, second = Nest(), Parts(1), Parts(2)
    keep(nest, (0, 1), first)
    keep(nest, (0, 1), second)
    assert (first.ended, second.ended, len(nest)) == (1, 0, 1)


def test_a_thread_takes_what_it_left_itself_if_there_is_any():
    nest, mine, others = Nest(), Parts(1), Parts(2)
    with ThreadPoolExecutor(1) as pool:
        keep(nest, (0, 1), mine)
        pool.submit(keep, nest, (0, 1), others).result()
        assert (mine.ended, len(nest)) == (0, 2)
        assert pool.submit(nest.take, (0, 1)).result() is others
        assert pool.submit(nest.take, (1, 0)).result() is None
        assert pool.submit(nest.take, (0, 1)).result() is mine


def test_parts_after_an_error_are_given_back():
    nest, parts = Nest(), Parts(1)
    keep(nest, (0, 1), parts)
    parts.sound = False
    assert nest.take((0, 1)) is None
    assert parts.ended == 1


def test_a_nest_that_is_closed_has_given_all_back():
    nest, every = Nest(), [Parts(k) for k in range(4)]
    for k, parts in enumerate(every):
        keep(nest, (k,), parts)
    nest.close()
    assert [parts.ended for parts in every] == [1] * 4
    assert not nest.open
    assert not len(nest)
    assert nest.put((0, 1), every[0]) == every[:1]
    assert nest.take((0, 1)) is None


def test_all_parts_end_if_some_cannot_be_given_back():
    nest, every = Nest(), [Parts(k, error="" if k % 2 else f"error {k}") for k in range(4)]
    for k, parts in enumerate(every):
        keep(nest, (k,), parts)
    with pytest.raises(OSError, match="error 2"):  # the latest is given back first
        nest.close()
    assert [parts.ended for parts in every] == [1] * 4


def test_what_children_of_a_freed_child_left_counts_too():
    nest, every = Nest(), [Parts(k) for k in range(3)]
    for parts in every:
        for k in range(MOST_RESTED // 2 - 1):
            keep(parts.nest, (k,), Parts(k))
    for k, parts in enumerate(every):
        keep(nest, (k,), parts)
    assert [parts.ended for parts in every] == [1, 0, 0]
    assert (len(nest), nest.sets) == (2, MOST_RESTED)


def test_children_that_outlive_a_freed_child_count_when_they_are_freed():
    nest, every = Nest(), [Parts(k) for k in range(MOST_RESTED)]
    for k, parts in enumerate(every):
        keep(nest, (k,), parts)
    last = every[-1].nest
    keep(last, (0,), Parts(0))
    keep(last, (1,), Parts(1, room=2 * MOST_ROOM))
    assert nest.sets <= MOST_RESTED
    assert [parts.ended for parts in every] == [1] * (MOST_RESTED - 1) + [0]
    taken = nest.take((MOST_RESTED - 1,))
    other = Parts(0)
    keep(nest, (0,), other)
    keep(taken.nest, (2,), Parts(2))
    assert other.ended == 0, "the parts that were taken are not the nest's any more"


def test_rings_that_have_grown_are_kept_up_to_a_limit():
    nest, every = Nest(), [Parts(k, room=MOST_ROOM // 2) for k in range(4)]
    for k, parts in enumerate(every):
        keep(nest, (k,), parts)
        assert nest.room <= MOST_ROOM
    assert [parts.ended for parts in every] == [1, 1, 0, 0]
    large = Parts(4, room=2 * MOST_ROOM)
    keep(nest, (4,), large)
    assert (len(nest), large.ended) == (1, 0)


def test_scratch_memory_beside_two_large_rings_drops_nread():
    nest, every = Nest(), [Parts(k, room=RING_MAX // 2 + 16 * 1024) for k in range(2)]
    for k, parts in enumerate(every):
        keep(nest, (k,), parts)
    assert [parts.ended for parts in every] == [0, 0]


def test_threads_use_nests_at_the_same_time():
    outer, inner = Nest(), Parts(0)
    keep(outer, (99,), inner)

    def use(thread):
        for turn in range(2000):
            nest = (outer, inner.nest)[turn % 2]
            keep(nest, (thread, turn % 5), Parts(turn))
            nest.take((1 - thread, turn % 5))

    with switching():
        run_in_threads(use, (0,), (1,))
    assert outer.sets <= MOST_RESTED


def test_a_child_with_many_calls_of_objects_is_to_be_set_up():
    nest = Nest()
    assert [nest.used_often(5) for _ in range(MOST_LEFT + 1)] == [
        *[False] * MOST_LEFT, True,
    ]  # fmt: skip
    assert not nest.used_often(6)
    nest.forget(5)  # it is set up; a later child may have its handle
    assert not nest.used_often(5)
    for _ in range(MOST_LEFT):
        nest.used_often(6)
    nest.forget(6)
    assert not nest.used_often(6)
    nest.never_set_up(7)
    assert not any(nest.used_often(7) for _ in range(20 * MOST_LEFT))
