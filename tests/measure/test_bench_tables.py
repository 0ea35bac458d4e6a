"""The tables of ``han bench``."""

import pytest

from han.measure.bench import BenchRow, Settings, head, table_head, table_row
from han.measure.bench_machine import Machine
from han.model.measurements import Times
from han.tuning.costs.estimates import Estimate

WIDE = Times(13_540.1, 11_246.5, 18_530.9, 3)
MACHINE = Machine("AMD EPYC", 2, "0-1 allowed", "Intel MPI 2021.18.1", "", "4", "3.11", 2, 1)


@pytest.mark.parametrize("settings", [Settings(), Settings(tuned=True), Settings(only="han")])
def test_tables_fit_lines_of_80_letters(settings):
    gain = Estimate(1.0, 0.91, 1.13, 9) if settings.tuned else None
    times = dict.fromkeys(settings.sides, WIDE)
    interval = (10.15, 12.25) if settings.only is None else None
    row = BenchRow("bcast", 512 << 10, times, ("mpi: a note",), gain, interval)
    lines = f"{head(MACHINE, settings)}\n{table_head('bcast', MACHINE, settings)}\n{table_row(row)}"
    assert max(map(len, lines.splitlines())) <= 80
    title, values = lines.splitlines()[-3:-1]
    assert len(title) == len(values) or settings.only
    assert lines.endswith("#         mpi: a note")
