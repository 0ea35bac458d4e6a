"""Communicators that a program makes apart: they descend from an earlier one of their ranks."""

from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
from _support import TWO_LEVELS, WORLD, check_works, new_comm, opened, run_in_threads
from mpi4py import MPI

import han
from han.memory.arena import process_arena
from han.memory.loans import take_back
from han.runtime.measured import MOST_ROOTS
from han.runtime.roots import ROOTS
from han.tuning.tuned.find import Search

usual = pytest.mark.mpi(ranks=[2, 3], timeout=60, unit="s")


@pytest.fixture(autouse=True)
def roots(monkeypatch):
    monkeypatch.setattr(ROOTS, "room", MOST_ROOTS)


def mail_of(comm):
    check_works(comm)
    return comm._han.parts.health.notices.mail


def made_and_freed(**more):
    """Make a communicator, use it and free it; return its parts and its mail."""
    with opened(new_comm(**more)) as comm:
        return comm._han.parts, mail_of(comm)


def test_a_communicator_made_apart_takes_over_what_an_earlier_one_left(mpi_ranks):
    root, mail = made_and_freed()
    first, others = made_and_freed()
    assert mail is others
    assert first is not root
    for _ in range(3):
        assert made_and_freed() == (first, mail)
    with opened(new_comm()) as one, opened(new_comm()) as other:
        assert one._han.parts is first
        assert mail_of(one) is mail_of(other) is mail
        assert other._han.parts is not first
        with opened(one.Split(0, -one.rank)) as child:
            assert mail_of(child) is mail


def test_memory_does_not_grow(mpi_ranks):
    arena, taken = process_arena(), []
    for _ in range(6):
        made_and_freed()
        WORLD.Barrier()
        take_back()
        taken.append(arena.usage().taken)
    assert len({*taken[1:]}) == 1


def test_a_live_root_has_descendants_too(mpi_ranks):
    with opened(new_comm()) as root:
        mail = mail_of(root)
        half = MPI.COMM_WORLD.Split(MPI.COMM_WORLD.rank > 0)
        with opened(han.Comm(half, config=root._han.parts.config)) as part:
            assert mail_of(part) is mail
    assert made_and_freed()[1] is mail


def test_other_settings_make_another_root(mpi_ranks):
    mails = [made_and_freed(**more)[1] for more in ({}, {"plans": 5}, {"timeout": 19.0})]
    with opened(new_comm(TWO_LEVELS)) as apart:
        mails.append(mail_of(apart))
    assert len({id(mail) for mail in mails}) == len(mails)


def test_a_root_needs_all_ranks(mpi_ranks):
    """A rank may have none: it has lost it, or is bound to other processors."""
    _, mail = made_and_freed()
    moved = mock.patch("os.sched_getaffinity", return_value={0, 1, 2, 3})
    if WORLD.rank == 1:
        with moved:
            assert made_and_freed()[1] is not mail
    else:
        assert made_and_freed()[1] is not mail
    assert len(ROOTS.kept) == 1, "the later one takes its place"
    found = made_and_freed()[1]
    assert made_and_freed()[1] is found
    if WORLD.rank == 0:
        ROOTS.forget()
    assert made_and_freed()[1] is not found


def test_nothing_descends_from_a_communicator_with_an_error(mpi_ranks):
    with opened(new_comm()) as root:
        mail = mail_of(root)
        root._han.health.give_up(RuntimeError("enough"))
        WORLD.Barrier()
    assert made_and_freed()[1] is not mail


def test_a_process_has_few_roots(mpi_ranks):
    for plans in range(1, MOST_ROOTS + 4):
        made_and_freed(plans=plans)
    assert len(ROOTS.kept) == MOST_ROOTS
    _, mail = made_and_freed(plans=1)
    assert mail is ROOTS.kept[0].mail
    last = [made_and_freed(plans=MOST_ROOTS + 3)[1] for _ in range(2)]
    assert last[0] is not last[1]


def test_threads_make_communicators_at_the_same_time(mpi_ranks):
    """Of one root, whose parts each thread finds again."""
    made_and_freed()
    config = ROOTS.kept[0].given.config
    plain = [MPI.COMM_WORLD.Dup() for _ in range(4)]

    def work(one):
        out = np.empty(1)
        for turn in range(15):
            with opened(han.Comm(one.Split(0, one.rank), config)) as part:
                part.Allreduce(np.full(1, float(part.rank + turn)), out)
                assert out[0] == sum(range(turn, turn + part.size))

    run_in_threads(work, *((one,) for one in plain))
    assert len(ROOTS.kept) == 1
    for one in plain:
        one.Free()


def test_a_rank_with_a_tuned_table_of_its_own_finds_the_root_again(mpi_ranks, monkeypatch):
    """The ranks use no table then; later communicators descend from the first one all the same."""
    if WORLD.rank:
        own = Search(SimpleNamespace(digest="of this rank"))
        monkeypatch.setattr("han.runtime.given.tuned_table", lambda config: own)
    first = made_and_freed(plans=7, tuned="off")
    kept = len(ROOTS.kept)
    for _ in range(3):
        parts, mail = made_and_freed(plans=7, tuned="off")
        assert mail is first[1]
        assert parts.given.tuned.table is None
    assert len(ROOTS.kept) == kept
