"""Files of calibrations: what is wrong with them, two writers, and other machines."""

import json
import multiprocessing
from dataclasses import replace

import pytest
from test_tuned import HERE

from han.config.arrange import Facts
from han.config.environment import unknown_variables
from han.ranks import calibration
from han.tuning.profile import UNKNOWN, Profile
from han.tuning.tuned.calibrated import (
    Calibration,
    CalibrationError,
    Kept,
    file_of,
    find,
    read,
    write,
)

INSIDE = Profile(cores=8, flag=0.1, copy=8000.0, reduce=5000.0, memory=6e4)
BETWEEN = Profile(latency=2.0, overhead=0.5, bandwidth=9000.0, injection=1e4)
DAY = "2026-01-01"


def kept(profile=INSIDE, machine=HERE):
    return write(file_of(HERE), Calibration(machine, profile, DAY))


def test_a_calibration_is_found_again(home):
    assert find(HERE) == Kept()
    made = kept()
    found = find(HERE)
    assert found.found == made
    assert found.profile == INSIDE
    assert found.about == f"{home}/han/calibrated/mpich-8-a-processor.json, {DAY}"
    assert found.problem == ""


def test_what_is_not_measured_again_stays(home):
    kept(INSIDE.over(BETWEEN))
    kept(INSIDE._replace(flag=0.2))
    assert find(HERE).profile == INSIDE._replace(flag=0.2).over(BETWEEN)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "damaged, not JSON"),
        ("[]", "not a calibration"),
        ('{"format": "han-choices", "version": 1}', "not a calibration"),
        ('{"format": "han-calibration", "version": 2}', "version 2, this han reads version 1"),
        ('{"format": "han-calibration", "version": 1}', "'machine' is missing"),
        ('{"format": "han-calibration", "version": 1, "machine": 3, "profile": {}}', "machines"),
    ],
)
def test_a_file_that_cannot_be_used_is_told_of(home, text, said):
    kept()
    file_of(HERE).write_text(text)
    found = find(HERE)
    assert found.found is None
    assert said in found.problem
    assert "what the system tells says" in found.problem
    assert found.profile == UNKNOWN
    kept()
    assert find(HERE).profile == INSIDE, "a new calibration replaces it"


def test_wrong_values_are_named(home):
    made = kept()
    record = made.document()
    record["profile"]["flag"] = -1
    file_of(HERE).write_text(json.dumps(record))
    with pytest.raises(CalibrationError, match=r"8-a-processor.json: profile.flag: expected"):
        read(file_of(HERE))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"cpu": "another"}, "measured on another machine: cpu: a processor here, another there"),
        ({"transport": "ch4:ofi"}, "measured in other conditions: transport"),
        ({"quota": 2.0}, "measured in other conditions: quota"),
        ({"library_version": "4.0"}, ""),
        ({"wait": "sleep"}, ""),
    ],
)
def test_calibrations_of_other_machines_are_not_used(home, change, said):
    kept(machine=replace(HERE, **change))
    found = find(HERE)
    assert said in found.problem
    assert (found.found is None) == bool(said)
    kept(BETWEEN)
    assert find(HERE).profile == (BETWEEN if said else BETWEEN.over(INSIDE)), "nothing is mixed"


def test_two_writers_lose_nothing(home):
    context = multiprocessing.get_context("fork")
    jobs = [context.Process(target=kept, args=(one,)) for one in (INSIDE, BETWEEN) * 4]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join(30)
        assert job.exitcode == 0
    assert find(HERE).profile == INSIDE.over(BETWEEN)
    assert [path.name for path in file_of(HERE).parent.iterdir()] == [file_of(HERE).name]


def test_a_folder_that_cannot_be_written_is_told(home):
    (home / "han").write_text("a file")
    with pytest.raises(CalibrationError, match="cannot be written"):
        kept()


# ---- the environment ----------------------------------------------------------------------------


def test_the_environment_says_whether_calibrations_are_used_and_made(home, monkeypatch):
    monkeypatch.setattr(calibration, "fingerprint", lambda: HERE)
    monkeypatch.setattr(calibration, "_tried", [])
    kept()
    assert calibration.kept({}).profile == INSIDE
    assert calibration.kept({"HAN_CALIBRATE": "off"}) == Kept(about="off")
    for said, asks in (("first", True), ("off", False), ("frist", False), ("", False)):
        assert calibration.asks_first({"HAN_CALIBRATE": said}) == asks
    calibration.begin()
    assert not calibration.asks_first({"HAN_CALIBRATE": "first"}), "not twice"
    assert unknown_variables({"HAN_CALIBRATE": "first"}) == []
    (told,) = unknown_variables({"HAN_CALIBRATE": "frist"})
    assert told.endswith("'frist' is neither 'first' nor 'off'; not used")


@pytest.mark.parametrize(
    ("memories", "known", "lacks"),
    [
        ([0], UNKNOWN, False),
        ([0, 0], UNKNOWN, True),
        ([0, 0], INSIDE, False),
        ([0, 1], INSIDE, True),
        ([0, 1], Profile(latency=1.0), False),
        ([0, 1, 0], Profile(latency=1.0), True),
    ],
)
def test_ranks_calibrate_where_they_lack_what_they_can_measure(memories, known, lacks):
    facts = [Facts(one, "a", frozenset(), {}, calibrates=True) for one in memories]
    facts[0] = replace(facts[0], profile=tuple(known))
    assert calibration.is_uncalibrated(facts) == lacks
    assert not calibration.is_uncalibrated([replace(facts[0], calibrates=False), *facts[1:]])


def test_a_link_is_known_without_a_calibration(home, monkeypatch):
    monkeypatch.setattr(calibration, "fingerprint", lambda: replace(HERE, link=1000.0))
    assert calibration.known_profile() == Profile(injection=125.0)


def test_a_problem_is_told_once(home, monkeypatch, recwarn):
    monkeypatch.setattr(calibration, "fingerprint", lambda: HERE)
    kept()
    file_of(HERE).write_text("{")
    assert calibration.known_profile() == UNKNOWN
    calibration.known_profile()
    calibration.tell_problems()
    calibration.tell_problems()
    (warning,) = recwarn.list
    assert str(warning.message).startswith("calibration: ")
