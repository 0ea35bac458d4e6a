"""The validation of the simulator: its machines, its choices and its table."""

import pytest
import validate

from han.config.config import load_config
from han.config.machine import load_machine
from han.tasks.call import call_signature
from han.tuning.prediction import Where
from han.tuning.validation import Comparison, Measured, case_of, compared

pytestmark = pytest.mark.any_library


@pytest.mark.parametrize("name", validate.PLACES)
def test_every_choice_serves_every_place(name):
    place = validate.PLACES[name]
    where = Where(load_machine(place.model()), place.nodes, place.ppn)
    for rule in (validate.BETWEEN if place.links else validate.ON_NODE).values():
        config = load_config({"tuned": "off", "rules": [rule]})
        for collective in ("bcast", "reduce", "allreduce"):
            one = Measured(call_signature(collective, 65536), name, config, 1.0, 2)
            assert compared(one, case_of(where, one), where.machine).predicted > 0


def test_the_table_shows_errors_and_winners():
    place = validate.PLACES["2-ranks"]
    where = Where(load_machine(place.model()), 1, 2)
    found = []
    for segment, factor in (("32KiB", 0.5), ("whole", 2.0)):
        config = load_config({"rules": [{"use": {"segment": segment}}]})
        one = Measured(call_signature("bcast", 1 << 20), segment, config, 1.0, 1)
        case = case_of(where, one)
        real = factor * case.predicted(where.machine) * 1e6
        measured = Measured(one.signature, segment, config, real, 1)
        found.append(compared(measured, case, where.machine))
    faster, slower = sorted(found, key=lambda one: one.case.microseconds)
    right = int(faster.predicted < slower.predicted)
    expected = f"| 2-ranks | 2 | 75% | 95% | {right} of 1 ({right:.0%}) | 0 |"
    assert validate.row("2-ranks", Comparison(tuple(found))) == expected
