"""Values that the ranks exchange in set-up steps: of any size, and of different ones."""

import pytest
from _support import WORLD

from han.ranks.meeting import ROOM, Meeting


@pytest.mark.mpi(ranks=[1, 2, 3], timeout=40, unit="s")
def test_values_larger_than_a_slot_arrive_whole(mpi_ranks):
    meeting = Meeting(WORLD.Dup(), 30)
    steps = 0
    for size in (0, 1, ROOM - 40, *range(ROOM - 30, ROOM + 2), 5000):
        for large in (WORLD.rank == WORLD.size - 1, True):
            value = bytes([WORLD.rank]) * (size if large else 3)
            everyone = meeting.allgather(value, "a test")
            assert everyone == WORLD.allgather(value)
            steps += 1
    assert meeting.steps == steps
    meeting.comm.Free()
