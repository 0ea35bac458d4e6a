"""The board on which ranks agree on slots: here all ranks are in one process."""

import random

import pytest

from han import _native
from han.model.channel_layout import LINE, RING_MIN
from han.runtime.slots import MOST_SLOTS

AHEAD = 64  # choices that the leader may publish before the slowest rank has read them


def boards(size):
    memory = bytearray(size * RING_MIN)
    return [_native.Board(memory, RING_MIN, size, me, 0) for me in range(size)]


def test_ranks_read_the_choices_in_order_and_the_leader_waits_for_the_slowest():
    leader, quick, slow = boards(3)
    for k in range(AHEAD):
        assert quick.read() is None
        assert leader.publish(k % 7, 1000 + k)
        assert quick.read() == (k % 7, 1000 + k)
    assert not leader.publish(0, 0)
    for k in range(2 * AHEAD):
        assert slow.read() == (k % 7, 1000 + k)
        assert leader.publish((AHEAD + k) % 7, 1000 + AHEAD + k)
        assert quick.read() == ((AHEAD + k) % 7, 1000 + AHEAD + k)


def test_the_leader_knows_when_all_ranks_have_come_to_a_request():
    leader, *others = boards(3)
    for k in range(5):
        assert not leader.gathered()
        for other in others:
            assert other.read() is None
        assert leader.gathered()
        assert leader.publish(k, 0)
        assert all(other.read() == (k, 0) for other in others)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_a_slot_is_reclaimed_when_all_ranks_have_left_it(size):
    ranks, dice = boards(size), random.Random(size)
    taken = {slot: set(range(size)) for slot in range(9)}  # by slot: the ranks that use it
    free = set()
    for _ in range(3 * MOST_SLOTS):
        users = [(slot, rank) for slot, ranks in taken.items() for rank in ranks]
        if users:
            slot, rank = dice.choice(users)
            taken[slot].remove(rank)
            ranks[rank].leave(slot)
        while (slot := ranks[0].reclaim()) >= 0:
            assert not taken[slot]
            assert slot not in free
            free.add(slot)
        assert free == {slot for slot, ranks in taken.items() if not ranks}
        if free and dice.random() < 0.3:
            taken[free.pop()] = set(range(size))


def test_wrong_memory_and_slots_are_refused():
    for memory, stride, size, me in (
        (bytearray(RING_MIN), RING_MIN, 2, 0),
        (bytearray(RING_MIN), LINE, 1, 0),
        (bytearray(RING_MIN), RING_MIN - 1, 1, 0),
        (bytearray(RING_MIN), RING_MIN, 1, 1),
    ):
        with pytest.raises(ValueError, match="does not hold the notes of all ranks"):
            _native.Board(memory, stride, size, me, 0)
    (board,) = boards(1)
    with pytest.raises(ValueError, match=f"slot {MOST_SLOTS}, at most {MOST_SLOTS - 1}"):
        board.leave(MOST_SLOTS)
    with pytest.raises(RuntimeError, match="exists already"):
        board.__init__(bytearray(RING_MIN), RING_MIN, 1, 0, 0)
