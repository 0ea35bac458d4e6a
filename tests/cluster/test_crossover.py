"""The comparison of compositions by size: what it reads, predicts and prints."""

import json

import crossover
import pytest

from han.config.machine import load_machine
from han.tuning.prediction import Where

pytestmark = pytest.mark.any_library


def test_the_table_shows_medians_beside_predictions(tmp_path):
    path = tmp_path / "measured.json"
    row = {"tree": [3.0, 1.0, 2.0], "MPI library": [4.0]}
    path.write_text(json.dumps({"8": row, "1024": row}))
    real = crossover.measured(path)
    assert real == {"tree": {8: 2.0, 1024: 2.0}, "MPI library": {8: 4.0, 1024: 4.0}}
    lines = crossover.table(real, {"tree": {8: 2.6, 1024: 5.0}}).splitlines()
    assert lines[0] == "| size | tree | MPI library |"
    assert lines[2:] == ["| 8B | 2 / 3 | 4 |", "| 1KiB | 2 / 5 | 4 |"]


def test_fewer_steps_win_where_only_latency_counts(monkeypatch):
    monkeypatch.setattr(crossover, "SIZES", (8,))
    found = crossover.predicted(Where(load_machine("emulated-50ms"), 16, 4))
    steps = {name: round(of[8] / 50) for name, of in found.items()}
    assert steps == {"tree": 4, "nap": 2, "lanes": 4, "flat": 4}
