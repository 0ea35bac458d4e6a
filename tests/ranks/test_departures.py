"""Which waits a rank that has left makes hopeless."""

import time

from han.ranks.measured import IN_FLIGHT
from han.ranks.notices import Departure, lost_call, lost_run, lost_step

FAR = Departure(3, "why", steps=5, calls=70, runs=((0, 10), (2, 4)))
NEAR = Departure(4, "why", steps=5, calls=70)  # its control record tells its runs
LONG_AGO = time.monotonic() - 2 * IN_FLIGHT


def test_a_run_is_lost_after_those_that_the_rank_has_finished():
    assert [lost_run([NEAR, FAR], 0, done) for done in (8, 9, 10, 11)] == [None, None, FAR, FAR]
    assert [lost_run([FAR], 2, done) for done in (3, 4)] == [None, FAR]
    assert lost_run([FAR], 1, 0) == FAR  # no run of this engine
    assert lost_run([NEAR], 0, 10) is None


def test_a_call_of_the_mpi_library_is_lost_if_the_rank_has_not_made_it():
    assert [lost_call([NEAR], call) for call in (69, 70)] == [None, NEAR]


def test_a_step_is_lost_if_the_rank_has_not_finished_it():
    assert [lost_step([FAR], steps, None) for steps in (4, 5)] == [None, FAR]


def test_a_step_of_some_ranks_is_lost_when_no_message_can_be_on_its_way():
    old = Departure(3, "why", 5, 70, heard=LONG_AGO)
    now = Departure(3, "why", 5, 70, heard=time.monotonic() + 1)
    assert lost_step([old], 5, (1, 3)) == old
    assert lost_step([now], 5, (1, 3)) is None
    assert lost_step([old], 5, (0, 1)) is None  # the step does without it


def test_the_error_names_the_rank_the_reason_and_the_wait():
    assert str(FAR.error(1, "barrier")) == "rank 3 left: why; rank 1 was in barrier"
