"""Comparisons of strategies: order, budget, interruption, continuation; summaries and texts."""

import json
from dataclasses import replace

import pytest
from commands import call, refuse
from typer.testing import CliRunner

from han.cli.main import app
from han.cli.tune_quality import Lines, text_of
from han.measure.tune import quality
from han.measure.tune.quality import (
    PredictedCandidate,
    QualityRow,
    errors,
    expected,
    row_by_row,
    spread,
    summaries,
    trend,
)
from han.measure.tune.tuner import Input, Plans
from han.plots.tuning import quality as draw

SIZES = (8, 1024, 1 << 17, 1 << 24)
INPUTS = tuple(Input(name, n) for name in ("bcast", "allreduce") for n in SIZES)
SEARCH = ["tune", "quality", "bcast,reduce", "8,64", "--strategy",
          "task"]  # fmt: skip


def row(one, spent=1.0):
    names = ("exhaustive", "task")
    return QualityRow(
        one.collective, one.nbytes, 9, dict.fromkeys(names, "sm flat"), dict.fromkeys(names, 1.0),
        dict.fromkeys(names, 0.5), dict.fromkeys(names, 4),
        (PredictedCandidate("a", 1.0, 2.0, "b"),), spent,
    )  # fmt: skip


class Clock:
    """Measures inputs that take as many seconds as they are told to, on a clock of its own."""

    def __init__(self, seconds):
        self.now, self.seconds, self.done = 100.0, seconds, []

    def __call__(self):
        return self.now

    def measure(self, one):
        spent = self.seconds(one)
        self.now += spent
        self.done.append(one)
        return row(one, spent)

    def compare(self, budget, **more):
        return row_by_row(Plans(INPUTS, budget=budget), self.measure, clock=self, **more)


def test_collectives_take_turns_and_sizes_far_apart_come_first():
    found = spread(INPUTS)
    assert sorted(found, key=INPUTS.index) == list(INPUTS)
    assert [one.collective for one in found] == ["bcast", "allreduce"] * 4
    assert {one.nbytes for one in found[:6]} == {8, 1 << 17, 1 << 24}
    assert spread([]) == []


def test_times_of_other_sizes_and_collectives_tell_what_an_input_takes():
    known = {1024: 2.0, 4096: 4.0}
    assert trend(known, 8) == pytest.approx(2.0), "a smaller size takes no longer"
    assert trend(known, 2048) == pytest.approx(2 * 2**0.5)
    assert trend(known, 16384) == pytest.approx(8.0), "grows as between the known ones"
    assert trend({1024: 1.0, 2048: 8.0}, 4096) == pytest.approx(16.0), "at most as the bytes"
    assert trend({8: 1.0, 16: 1.0}, 64) == pytest.approx(2.0), "at least as the root"
    spent = {Input("bcast", 8): 1.0, Input("reduce", 8): 3.0}
    assert expected(Input("bcast", 8), spent) == pytest.approx(1.0)
    assert expected(Input("allreduce", 8), spent) == pytest.approx(3.0)
    assert expected(Input("allreduce", 8), {}) == 0.0


def test_the_first_input_runs_and_later_ones_if_they_fit():
    clock = Clock(lambda one: 10.0)
    assert len(clock.compare(5.0).rows) == 1


def test_a_budget_leaves_out_what_is_long_and_keeps_all_collectives():
    clock = Clock(lambda one: 1e-3 + one.nbytes * 1e-5)
    found = clock.compare(20.0)
    assert clock.now <= 120.0
    assert set(found.left) == {Input("bcast", 1 << 24), Input("allreduce", 1 << 24)}
    assert [one.input for one in found.rows] == [one for one in INPUTS if one not in found.left]
    everything = Clock(lambda one: 1.0).compare(None)
    assert (len(everything.rows), everything.left) == (8, ())


def test_rank_0_decides_and_known_rows_are_not_measured_again():
    clock, told = Clock(lambda one: 1.0), []

    def agreed(mine):
        told.append(mine)
        return None if len(told) > 2 else mine

    known = [row(INPUTS[0]), row(INPUTS[4])]
    found = clock.compare(None, known=known, agreed=agreed)
    assert clock.done == told[:2]
    assert not {INPUTS[0], INPUTS[4]} & set(clock.done)
    assert len(found.rows) == len(found.left) == 4


def test_lines_are_aligned_below_their_heads():
    lines = Lines(INPUTS, ["exhaustive", "task"])
    long = replace(row(INPUTS[-1]), ratio={"exhaustive": 1.0, "task": 12.5}, spent=1234.5)
    texts = [lines.head(), *map(lines.line, [row(INPUTS[0]), long])]
    begins = [texts[0].index("best"), *(text.index("sm") for text in texts[1:])]
    assert len(set(begins)) == 1
    assert texts[0].index("task") + 4 == texts[2].index("12.500") + 6
    assert texts[0].index(" s  ") + 1 == texts[2].index("5  sm")
    assert QualityRow.of(json.loads(json.dumps(long.record()))) == long


@pytest.fixture
def measured(monkeypatch):
    """Replace the measurements of an input; return those made. The third one is interrupted."""
    done = []

    def measure(lab, plans, memories, step, one):
        if len(done) == 2:
            done.append(None)
            raise KeyboardInterrupt
        done.append(one)
        return row(one)

    monkeypatch.setattr(quality, "_measured", measure)
    return done


def test_an_interrupted_run_keeps_its_rows_and_is_continued(measured, tmp_path):
    file = tmp_path / "quality.json"
    done = CliRunner().invoke(app, [*SEARCH, "--json", str(file)])
    assert done.exit_code, "interrupted"
    assert "# stopped: 2 inputs of 4 in" in done.stdout
    assert "within 5 %" in done.stdout
    record = json.loads(file.read_text())
    assert (record["complete"], len(record["rows"]), len(record["left"])) == (False, 2, 2)
    said = refuse(*SEARCH[:-1], "heuristic", "--json", file)
    assert 'unfinished comparison with strategies ["exhaustive", "task"]' in said
    assert "begin anew with --restart" in said
    text = call(*SEARCH, "--json", file)
    assert "# resumed: 2 known inputs in" in text
    assert measured == [Input("bcast", 8), Input("reduce", 8), None, *measured[3:]]
    assert [one.nbytes for one in measured[3:]] == [64, 64]
    record = json.loads(file.read_text())
    assert record["complete"]
    found = [(one["collective"], one["nbytes"]) for one in record["rows"]]
    assert found == [("bcast", 8), ("bcast", 64), ("reduce", 8), ("reduce", 64)]


def test_a_damaged_file_is_an_error_and_stays(measured, tmp_path):
    file = tmp_path / "quality.json"
    CliRunner().invoke(app, [*SEARCH, "--json", str(file)])
    record = json.loads(file.read_text())
    for wrong in (None, 3, [3], [{}], [{**record["rows"][0], "more": 1}]):
        text = json.dumps({**record, "rows": wrong})
        file.write_text(text)
        said = refuse(*SEARCH, "--json", file)
        assert "holds a damaged comparison" in said
        assert "--restart" in said
        assert file.read_text() == text


def test_standard_output_holds_json_alone(measured):
    done = CliRunner().invoke(app, [*SEARCH, "--json", "-"])
    assert len(json.loads(done.stdout)["rows"]) == 2, "also of a run that was interrupted"
    assert len(json.loads(call(*SEARCH, "--json", "-"))["rows"]) == 4


def test_a_restart_forgets_and_a_device_is_not_replaced(measured, tmp_path):
    file, device = tmp_path / "quality.json", tmp_path / "device"
    CliRunner().invoke(app, [*SEARCH, "--json", str(file)])
    text = call(*SEARCH, "--restart", "--json", file)
    assert "resumed" not in text
    assert len(measured) == 3 + 4
    device.symlink_to("/dev/null")
    call(*SEARCH, "--json", device)
    assert device.is_symlink()


def test_what_the_budget_left_out_is_told(measured):
    measured += [None] * 3
    text = call(*SEARCH, "--budget", "0.5s")
    assert "# left out for the budget: bcast of 64B, reduce of 8B, reduce of 64B" in text


# ---- summaries, texts, the picture ---------------------------------------------------------------


def timed(nbytes=1024, ratio=1.0, predicted=11e-6):
    names = ("exhaustive", "task", "task+heuristic")
    return QualityRow(
        "bcast", nbytes, 9, dict.fromkeys(names, "sm flat"),
        dict(zip(names, (1.0, ratio, 1.0), strict=True)),
        dict(zip(names, (10.0, 2.0, 0.5), strict=True)),
        dict.fromkeys(names, 4), (PredictedCandidate("sm flat", 10e-6, predicted),),
    )  # fmt: skip


ROWS = [timed(), timed(2048, 1.04, 9e-6), timed(4096, 1.1), timed(8192, 1.2, 20e-6)]


def test_a_summary_counts_inputs_near_the_best_and_the_time():
    everything, task, pruned = summaries(ROWS)
    assert (everything.within_5, everything.worst, everything.cost) == (1.0, 1.0, 1.0)
    assert (task.within_5, task.within_15, task.worst) == (0.5, 0.75, 1.2)
    assert (task.seconds, task.cost) == (8.0, pytest.approx(0.2))
    assert pruned.cost == pytest.approx(0.05)
    assert [one.error for _, one in errors(ROWS)] == pytest.approx([1.0, 0.1, 0.1, 0.1])


def test_a_search_that_the_limit_ended_is_told_and_its_time_estimated():
    rows = [*ROWS, replace(timed(16384), limited=("exhaustive", "task"))]
    everything, task, _ = summaries(rows)
    assert everything.seconds == 50.0
    assert task.cost == pytest.approx(10.0 / (40.0 + 10.0 * 9 / 4))
    text = text_of(rows)
    assert "# task: the limit ended its search of 1 of 5 inputs" in text
    assert "exhaustive: the limit ended its search of 1 of 5 inputs" in text
    assert "which measured a random sample of 4 of 9 candidates" in text
    assert "limit" not in text_of(ROWS)
    assert QualityRow.of(json.loads(json.dumps(rows[-1].record()))) == rows[-1]


def test_the_text_has_inputs_strategies_and_the_worst_predictions():
    text = text_of(ROWS)
    for part in ("1.200", "75 %", "20.0 %", "4 predictions: median 10.0 %", "100 %"):
        assert part in text
    assert "predictions" not in text_of([replace(one, predictions=()) for one in ROWS])


def test_the_picture_is_drawn(tmp_path):
    path = tmp_path / "quality.png"
    draw(ROWS, path)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_strategies_are_compared_on_one_rank(tmp_path):
    file, space = tmp_path / "quality.json", tmp_path / "space.yaml"
    picture = tmp_path / "quality.png"
    space.write_text("submodules: [sm]\nalgorithms: [flat]\nparameters: {}\n")
    text = call("tune", "quality", picture, "bcast", "64,256",
                "--space", space, "--strategy", "task,heuristic", "--json", file)  # fmt: skip
    assert "task+heuristic" not in text
    rows = json.loads(file.read_text())["rows"]
    assert [one["nbytes"] for one in rows] == [64, 256]
    assert all([*one["ratio"]] == ["exhaustive", "task", "heuristic"] for one in rows)
    assert all(one["ratio"]["exhaustive"] == 1.0 for one in rows)
    assert all(told["basis"] for one in rows for told in one["predictions"])
    assert picture.read_bytes().startswith(b"\x89PNG")
