"""The sides of a benchmark: tuned and built-in choices are compared in batches of one length."""

from __future__ import annotations

from han.measure.bench import alike


def test_batches_of_tuned_and_built_in_choices_have_as_many_calls():
    assert alike({"han": 50, "default": 20, "mpi": 5}) == {"han": 50, "default": 50, "mpi": 5}
    assert alike({"han": 7, "mpi": 9}) == {"han": 7, "mpi": 9}
    assert alike({"mpi": 9}) == {"mpi": 9}
