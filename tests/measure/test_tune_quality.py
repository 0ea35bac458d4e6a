"""Comparisons of strategies: summaries, texts and the picture; the order of a search."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from commands import call

from han.cli.tune_quality import text_of
from han.measure.tune.quality import PredictedCandidate, QualityRow, errors, summaries
from han.measure.tune.tuner import Input, sparse_first
from han.measure.tune.windows import Series, durations, joined
from han.plots.tuning import quality


def row(nbytes=1024, ratio=1.0, predicted=11e-6):
    names = ("exhaustive", "task", "task+heuristic")
    return QualityRow(
        "bcast", nbytes, 9, dict.fromkeys(names, "sm flat"),
        dict(zip(names, (1.0, ratio, 1.0), strict=True)),
        dict(zip(names, (10.0, 2.0, 0.5), strict=True)),
        dict.fromkeys(names, 4), (PredictedCandidate("sm flat", 10e-6, predicted),),
    )  # fmt: skip


ROWS = [row(), row(2048, 1.04, 9e-6), row(4096, 1.1), row(8192, 1.2, 20e-6)]


def test_a_summary_counts_inputs_near_the_best_and_the_time():
    everything, task, pruned = summaries(ROWS)
    assert (everything.within_5, everything.worst, everything.cost) == (1.0, 1.0, 1.0)
    assert (task.within_5, task.within_15, task.worst) == (0.5, 0.75, 1.2)
    assert (task.seconds, task.cost) == (8.0, pytest.approx(0.2))
    assert pruned.cost == pytest.approx(0.05)
    assert [one.error for _, one in errors(ROWS)] == pytest.approx([1.0, 0.1, 0.1, 0.1])


def test_a_search_that_the_limit_ended_is_told_and_its_time_estimated():
    rows = [*ROWS, replace(row(16384), limited=("exhaustive", "task"))]
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
    quality(ROWS, path)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_a_late_rank_does_not_make_an_observation_short():
    first, last, end = np.array([0.0, 0.0]), np.array([0.1, 5.0]), np.array([1.1, 5.01])
    found = durations(first, last, end, np.array([True, False]))
    assert found == pytest.approx([1.0, 5.01])
    alone = [Series(found, np.array(good), first) for good in ([True, False], [False, False])]
    assert [one.usable for one in alone] == [pytest.approx([1.0]), pytest.approx([1.0])]
    assert [one.is_disturbed for one in alone] == [False, True]
    assert joined(alone).usable == pytest.approx([1.0])
    assert len(joined(alone).seconds) == 4


def test_sizes_far_apart_come_first():
    inputs = [Input("bcast", 1 << k) for k in range(7)] + [Input("reduce", 8)]
    found = sparse_first(inputs)
    assert sorted(found, key=inputs.index) == inputs
    assert [one.nbytes for one in found[:7]] == [1, 4, 64, 8, 2, 16, 32], "64 follows from 4"
    few = [one.nbytes for one in sparse_first([Input("bcast", 8**k) for k in range(1, 8)])]
    assert few[:4] == [8, 8**6, 8**7, 8**4], "the largest follows from the one before"
    many = [one.nbytes for one in sparse_first([Input("bcast", 2**k) for k in range(3, 22)])]
    assert many[:3] == [8, 1 << 17, 1 << 21], "the largest follows from a sixteenth"
    assert found[7] == Input("reduce", 8)
    assert sparse_first([]) == []


def test_strategies_are_compared_on_one_rank(tmp_path):
    file, space = tmp_path / "quality.json", tmp_path / "space.yaml"
    picture = tmp_path / "quality.png"
    space.write_text("submodules: [sm]\nalgorithms: [flat]\nparameters: {}\n")
    text = call("tune", "quality", picture, "--collectives", "bcast", "--sizes", "64,256",
                "--space", space, "--strategy", "task,heuristic", "--json", file)  # fmt: skip
    assert "task+heuristic" not in text
    rows = json.loads(file.read_text())["rows"]
    assert [one["nbytes"] for one in rows] == [64, 256]
    assert all([*one["ratio"]] == ["exhaustive", "task", "heuristic"] for one in rows)
    assert all(one["ratio"]["exhaustive"] == 1.0 for one in rows)
    assert all(told["basis"] for one in rows for told in one["predictions"])
    assert picture.read_bytes().startswith(b"\x89PNG")
