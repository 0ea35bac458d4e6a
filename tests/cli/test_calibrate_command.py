"""``han calibrate``: what it prints, keeps, writes and refuses."""

import json
import math

import pytest
from commands import call, refuse
from typer.testing import CliRunner

from han.cli.main import app
from han.common.errors import ArgumentError
from han.config.machine import load_machine
from han.ranks.machine import fingerprint
from han.runtime import calibrating
from han.tuning.tuned.calibrated import file_of, find


@pytest.fixture(autouse=True)
def few_rounds(home, monkeypatch):
    monkeypatch.setattr(calibrating, "ROUNDS", 3)
    for name in ("DISTURBED", "SLOW"):
        monkeypatch.setattr(f"han.tuning.tuned.combined.{name}", math.inf)


def test_a_calibration_is_printed_and_kept(tmp_path):
    text = call("calibrate", "--out", tmp_path / "here.yaml")
    assert f"# kept in {file_of(fingerprint())}; later jobs use it" in text
    assert "nearest machine" in text
    model = load_machine(tmp_path / "here.yaml")
    profile = find(fingerprint()).profile
    assert model.node.memory == pytest.approx(1e6 * profile.memory, rel=1e-3)
    assert model.node.cores == profile.cores
    assert call("simulate", "--machine", tmp_path / "here.yaml", "8")
    shown = call("info")
    assert f"calibrated {file_of(fingerprint())}, " in shown
    record = json.loads(call("info", "--json"))
    assert record["calibration"]["profile"]["memory"] == profile.memory
    assert record["class"]["by"]


def test_json_says_what_was_kept():
    record = json.loads(call("calibrate", "--json"))
    assert record["format"] == "han-calibration"
    assert record["kept"] == str(file_of(fingerprint()))
    assert record["problems"] == []
    assert set(record["spread"]) == set(record["profile"]) - {"cores"}


def test_what_was_disturbed_is_kept_by_force_only(monkeypatch):
    monkeypatch.setattr("han.tuning.tuned.combined.DISTURBED", 0.0)
    monkeypatch.setattr("han.tuning.tuned.combined.TELLING", ("memory",))
    done = CliRunner().invoke(app, ["calibrate"])
    assert done.exit_code == 1
    assert "# disturbed: memory was " in done.stdout
    assert "# not kept" in done.stdout
    assert find(fingerprint()).found is None
    assert "# kept in" in call("calibrate", "--force")
    assert find(fingerprint()).found is not None


def test_too_few_rounds_are_kept_by_force_and_none_never(monkeypatch):
    for rounds, kept in ((1, True), (0, False)):
        monkeypatch.setattr(calibrating, "ROUNDS", rounds)
        done = CliRunner().invoke(app, ["calibrate", "--force"])
        assert f"# only {rounds} of at least 3 rounds" in done.stdout
        assert ("# kept in" in done.stdout, done.exit_code) == (kept, int(not kept))


def test_options_that_do_not_fit_are_refused(tmp_path, home):
    report = tmp_path / "report.json"
    for wrong in (
        ("--machine", "two-cores"),
        (report,),
        (report, "--machine", "two-cores", "--force"),
    ):
        assert "'han validate --machine MACHINE FILE...'" in refuse("calibrate", *wrong)
    assert "report.json: " in refuse("calibrate", report, "--machine", "two-cores"), "as validate"
    assert "no folder" in refuse("calibrate", "--out", "/nowhere/here.yaml")
    (home / "han").write_text("a file")
    assert "cannot be written" in refuse("calibrate", kind=ArgumentError)
