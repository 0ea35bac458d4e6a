"""What trials find, as points of a tuned table: who decides, what stays, where it is written."""

from __future__ import annotations

import multiprocessing
from dataclasses import replace
from types import SimpleNamespace

import pytest

from han.common.atomic import alone_in
from han.config import load_config
from han.config.rules import LevelUse, Use
from han.model.topology import virtual
from han.ranks.machine import fingerprint
from han.runtime import learning
from han.runtime.learning import Learner
from han.runtime.tuned import tuned_table
from han.tasks.call import call_signature
from han.tasks.signature import Signature
from han.tuning.built_in.traits import NodeTraits
from han.tuning.heuristics import BUILT_IN
from han.tuning.planner import Planner
from han.tuning.rules import TUNED
from han.tuning.tuned import places
from han.tuning.tuned.files import TunedError, read, write
from han.tuning.tuned.learnt import STRATEGY, Learnt, joined
from han.tuning.tuned.places import Search
from han.tuning.tuned.points import Candidate, Timing
from han.tuning.tuned.table import of_points, with_points

MiB = 1 << 20
NODE = replace(virtual(2), attach=True)
HERE = fingerprint()


def planned(table=None, nbytes=MiB):
    found = Planner(NODE, load_config({}), NodeTraits(), 0, True, table)
    return found.planned(call_signature("bcast", nbytes))


def timing(us):
    return Timing(us * 1e-6, us * 0.9e-6, us * 1.1e-6, 14)


def point(us=10.0, rival_us=5.0, rival_used=True, table=None, nbytes=MiB):
    call = planned(table, nbytes)
    times = timing(us), timing(rival_us)
    decided = call.decision.choice
    return Learnt(call.plan, decided, call.rival.choice, times, rival_used).point("today")


def test_a_rival_that_won_decides_and_the_built_in_choice_is_its_rival_then():
    won = point()
    assert not won.keeps
    assert (won.default, won.best) == (timing(10.0), timing(5.0))
    table = of_points((won,), HERE)
    again = planned(table)
    assert again.decision.choice.rule == TUNED
    assert again.decision.choice.levels[-1].submodule == "solo"
    assert again.rival.choice.rule == BUILT_IN
    assert again.decision.tuned.measured[0].strategy == STRATEGY


@pytest.mark.parametrize("rival_used", [False, True])
def test_later_trials_of_a_tuned_choice_say_the_same_of_both(rival_used):
    table = of_points((point(),), HERE)
    later = point(6.0, 9.0, rival_used, table)
    assert later.candidates[0].use == table.points[0].use, "the choice that is not built in"
    assert (later.candidates[0].timing, later.default) == (timing(6.0), timing(9.0))
    assert later.keeps == rival_used


def test_a_rival_that_lost_keeps_the_built_in_choice():
    lost = point(5.0, 10.0, rival_used=False)
    assert lost.keeps
    assert planned(of_points((lost,), HERE)).decision.choice.rule == BUILT_IN


def test_trials_decide_where_they_differ_and_nothing_measured_is_lost():
    other = Candidate(Use("whole", "dataflow", {"network": LevelUse("sm", "kary")}), timing(7.0))
    won = point()
    tuned = replace(won, strategy="task", keeps=True, tried=9, library=timing(50.0))
    tuned = replace(tuned, candidates=(other, *tuned.candidates))
    (found,) = joined(of_points((tuned,), HERE), of_points((won,), HERE)).points
    assert found.use == won.use
    assert [c.use for c in found.candidates] == [won.use, other.use]
    assert (found.library, found.tried) == (timing(50.0), 9)
    lost = point(rival_used=False)
    assert joined(of_points((tuned,), HERE), of_points((lost,), HERE)).points == (tuned,)
    assert joined(of_points((won,), HERE), of_points((lost,), HERE)).points == (lost,)
    with pytest.raises(TunedError, match="another machine"):
        joined(of_points((tuned,), replace(HERE, cores=999)), of_points((won,), HERE))


# ---- files ----------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr(places, "SHIPPED", tmp_path / "shipped")
    monkeypatch.setattr(learning, "SHIPPED", tmp_path / "shipped")
    return tmp_path


def state(told=(1, 2, (9000, 8000, 9500), (5000, 4000, 6000)), nbytes=MiB, search=None, **config):
    call = planned(nbytes=nbytes)
    signature = call.plan.signature
    one = SimpleNamespace(native=SimpleNamespace(learnt=told), planned=call, signature=signature)
    binder = SimpleNamespace(living={1: one})
    settings = load_config({"learn": True, **config})
    return SimpleNamespace(config=settings, binder=binder, tuned=search or Search())


def learn(*states):
    learner = Learner()
    for one in states:
        learner.take(one)
    learner.write()
    learner.write()  # a job that ends twice


def test_what_was_learnt_is_in_the_users_table(home):
    learn(state(), state(nbytes=4 * MiB))
    found = read(places.default_file(HERE)).points
    assert [(p.nbytes, p.keeps, p.strategy) for p in found] == [
        (MiB, False, STRATEGY), (4 * MiB, False, STRATEGY)
    ]  # fmt: skip
    assert found[0].best.median == pytest.approx(5e-6)
    assert (found[0].default.low, found[0].default.count) == (pytest.approx(8e-6), 14)


@pytest.mark.parametrize(
    "one",
    [
        state(told=None),
        state(told=(1, 1, (9, 9, 9), (5, 5, 5))),
        state(learn=False),
        state(tuned="off"),
    ],
    ids=["no trial", "one trial", "not wanted", "no table"],
)
def test_nothing_is_written_where_nothing_is_learnt(home, one):
    learn(one)
    assert not places.user_folder().exists()


def test_reproducible_calls_teach_nothing_about_ordinary_ones(home):
    one = state()
    (found,) = one.binder.living.values()
    found.signature = replace(found.signature, canonical=True)
    learn(one)
    assert not places.user_folder().exists()


def test_a_named_table_is_the_users_and_one_that_comes_with_han_stays(home):
    learn(state(tuned=str(home / "mine.json")))
    assert len(read(home / "mine.json").points) == 1
    write(places.SHIPPED / "ours.json", of_points((point(nbytes=2 * MiB),), HERE))
    shipped = (places.SHIPPED / "ours.json").read_text()
    learn(state(search=places.find_table("auto", lambda: HERE)))
    assert [p.nbytes for p in read(places.default_file(HERE)).points] == [MiB]
    assert (places.SHIPPED / "ours.json").read_text() == shipped


@pytest.mark.parametrize("name", ["~nobody-here/tuned.json", "a\0b.json"])
def test_a_name_of_no_file_is_told_of_and_nothing_is_made(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    for learns in (False, True):
        one = state(tuned=name, learn=learns)
        found = tuned_table(one.config)
        assert found.table is None
        assert found.problem.startswith(f"{name}: ")
        assert found.problem.endswith("the built-in choices are used")
        learn(one)
        assert not [*tmp_path.iterdir()]


def test_a_damaged_table_is_told_of_and_stays(home, capfd):
    path = places.default_file(HERE)
    path.parent.mkdir(parents=True)
    path.write_text("{")
    learn(state())
    assert "han: HAN_LEARN: " in capfd.readouterr().err
    assert path.read_text() == "{"


def test_jobs_that_end_at_once_lose_nothing(home):
    sizes = [k * MiB for k in range(1, 7)]
    context = multiprocessing.get_context("fork")
    jobs = [context.Process(target=learn, args=(state(nbytes=n),)) for n in sizes]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    classes = {planned(nbytes=n).signature.nbytes for n in sizes}
    assert {p.nbytes for p in read(places.default_file(HERE)).points} == classes


def test_points_of_other_conditions_are_not_joined():
    """Which way is faster depends on the transport, on a quota and on a mesh."""
    new = of_points((point(),), HERE)
    old = replace(new, source="table.json")
    other = replace(new, machine=replace(HERE, transport="elsewhere", quota=0.5))
    with pytest.raises(TunedError, match="measured in other conditions: transport elsewhere here"):
        joined(old, other)
    later = replace(new, machine=replace(HERE, han="99"))
    assert joined(old, later).machine == HERE
    assert joined(old, later).points[0].machine == later.machine
    far = with_points(later, [point(nbytes=4 * MiB)])
    assert [p.machine for p in joined(old, far).points] == [None, later.machine]


def test_blocks_that_differ_have_neither_trials_nor_tuned_choices():
    alike = Signature("allgather", MiB)
    uneven = replace(alike, counts=(MiB, 0))
    planner = Planner(NODE, load_config({}), NodeTraits(), 0, True)
    call = planner.planned(alike)
    assert call.rival is not None
    assert planner.planned(uneven).rival is None
    times = timing(10.0), timing(5.0)
    won = Learnt(call.plan, call.decision.choice, call.rival.choice, times, True).point("today")
    planner = Planner(NODE, load_config({}), NodeTraits(), 0, True, of_points((won,), HERE))
    assert planner.planned(alike).decision.choice.rule == TUNED
    assert planner.planned(uneven).decision.choice.rule == BUILT_IN


def test_a_lock_is_not_waited_for_for_ever(tmp_path):
    with (
        alone_in(tmp_path),
        pytest.raises(TimeoutError, match="another process holds the lock"),
        alone_in(tmp_path, limit=0.0),
    ):
        pass
    with alone_in(tmp_path, limit=0.0):
        pass
