"""Processors that other programs use during a measurement."""

import time

import pytest
from commands import call
from mpi4py import MPI

from han.measure import session as other_load
from han.measure.session import OtherLoad, Used, note, others


def test_what_the_ranks_of_a_machine_use_is_not_of_others():
    one = [Used("a", 10.0, 25.0, 9.0), Used("a", 10.0, 25.0, 8.0)]
    assert others(one) == pytest.approx(0.8)
    assert others([*one, Used("b", 10.0, 30.0, 10.0)]) == pytest.approx(2.0)
    assert others([Used("a", 10.0, 9.0, 10.0)]) == 0.0  # the kernel counts in steps
    assert others([Used("a", 0.1, 9.0, 0.1)]) == 0.0  # too short to tell


def test_only_a_load_that_is_worth_it_is_told():
    assert note(0.0) == note(0.19) == ""
    assert note(1.26).startswith("# others    other programs used 1.3 of ")


def test_this_process_is_seen(monkeypatch, tmp_path):
    load = OtherLoad()
    begun = time.process_time()
    while time.process_time() - begun < 0.05:
        pass
    found = load.used()
    assert found.own >= 0.03
    assert found.elapsed > 0
    assert load.processors(MPI.COMM_SELF) >= 0.0

    monkeypatch.setattr(other_load, "STAT", tmp_path / "none")
    monkeypatch.setattr(other_load, "BOOT", tmp_path / "none")
    found = OtherLoad().used()
    assert (found.busy, found.kernel) == (0.0, MPI.Get_processor_name())


def test_a_bench_tells_of_other_programs(monkeypatch):
    monkeypatch.setattr(OtherLoad, "processors", lambda self, comm: 1.5)
    small = ("--sizes", "8", "--rounds", "1", "--time", "0")
    assert "other programs used 1.5 of " in call("bench", "barrier", *small)
    assert '"others": 1.5' in call("bench", "barrier", *small, "--json", "-")
    assert '"others": 1.5' in call("bench", "--programs", "solver", "--rounds", "1", "--time", "0",
                                   "--json", "-")  # fmt: skip
