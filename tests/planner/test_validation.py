"""Predictions against measurements, closed forms, and the commands that show them."""

import json
from dataclasses import replace
from functools import partial

import pytest
from commands import call, refuse
from machines import slow_links

from han.common.errors import ArgumentError, ConfigError, HanError
from han.config.config import load_config
from han.config.machine import load_machine
from han.model.measurements import Report
from han.tasks.signature import Signature
from han.tuning.fit import fitted
from han.tuning.formulas import FORMULAS, MaxRate, crossover
from han.tuning.prediction import Where
from han.tuning.validation import (
    Compared,
    Comparison,
    Measured,
    case_of,
    compared,
    measured_of,
)

MACHINE = slow_links()
WHERE = Where(MACHINE, 4, 2)
SIZES = (8, 4096, 65536, 1 << 18)


def cases(machine, sizes=SIZES):
    """Return cases whose measured times are the predictions for a machine model."""
    made = []
    for nbytes in sizes:
        for signature in (Signature("bcast", nbytes), Signature("allreduce", nbytes // 8, 8, "sum",
                                                                "float64")):  # fmt: skip
            case = Measured(signature, "whole", load_config({}), 1.0, 10)
            us = compared(case, case_of(WHERE, case), machine).predicted
            made.append(replace(case, microseconds=us))
    return made


def segment(size):
    return size, load_config({"rules": [{"use": {"segment": size}}]})


def comparison(machine, measured):
    return Comparison(tuple(compared(one, case_of(WHERE, one), machine) for one in measured))


def test_a_machine_predicts_what_it_predicts():
    found = comparison(MACHINE, cases(MACHINE))
    assert found.error_of(1) == 0
    assert {row.case.key for row in found.rows} == {
        (c, n) for c in ("bcast", "allreduce") for n in SIZES
    }


@pytest.mark.slow
def test_fitting_finds_a_value_that_was_changed():
    record = MACHINE.to_mapping()
    record["levels"][1]["latency"] = "150us"
    changed = load_machine(record)
    measured, others = cases(changed), cases(changed, (512, 32768, 1 << 20))
    assert comparison(MACHINE, measured).error_of(0.5) > 0.15
    found, error = fitted(MACHINE, [case_of(WHERE, one) for one in measured])
    assert error < 0.02
    assert comparison(found, others).error_of(1) < 0.15, "of sizes that were not fitted"
    assert found.levels[1].latency > 3 * MACHINE.levels[1].latency
    assert found.node.copy_rate == pytest.approx(MACHINE.node.copy_rate, rel=0.1)


def test_what_a_machine_leaves_out_stays_out():
    plain = load_machine("thor").to_mapping()
    assert "copying" not in plain["levels"][1]
    assert load_machine(plain).levels == load_machine("thor").levels
    written = MACHINE.to_mapping()
    assert written["node"]["injection"] == "119.5MB/s", "without zeros behind it"


def test_pairs_are_counted_where_plans_differ():
    config = load_config({})
    signature = Signature("bcast", 8)

    def row(measured, predicted, plan, nbytes=8):
        case = Measured(replace(signature, count=nbytes), plan, config, measured, 1)
        return Compared(case, predicted, plan)

    assert Comparison((row(10, 11, "a"), row(10, 7, "a"))).error_of(0.5) == pytest.approx(0.2)
    rows = (
        row(10, 10, "a"), row(20, 15, "b"), row(10.2, 30, "c"), row(5, 1, "a", 16),
        row(50, 1, "a", 16),
    )  # fmt: skip
    assert Comparison(rows).pairs() == (1, 2, 1)


def run_of(**more):
    times = {"median": 90.0, "low": 80.0, "high": 100.0, "calls": 5}
    data = {
        "settings": {"mode": "blocking", "op": "sum", "dtype": "float64", "root": 0},
        "machine": {"library": "A 1", "nodes": 4, "ranks": 8},
        "rows": [{"collective": "bcast", "nbytes": 8, "han": times}],
        "format": "han-bench", "version": 1, **more,
    }  # fmt: skip
    return Report("run.json", data)


def test_runs_say_how_han_was_configured():
    (case,) = measured_of(run_of(config=segment("32KiB")[1].to_yaml()))
    assert case.microseconds == 90
    assert case.config.rules[0].use.segment == 32 << 10
    with pytest.raises(ArgumentError, match="measure it again"):
        measured_of(run_of())


# ---- closed forms -------------------------------------------------------------------------------


def test_nap_wins_for_few_bytes_and_smp_for_many():
    """Bienz et al., figures 10 and 11: up to about 2 KiB on 32768 ranks, 16 a node."""
    costs = MaxRate.of(load_machine("blue-waters"), 16)
    limit = crossover(costs, "NAP", "SMP", 2048, 16)
    assert 1024 < limit < 4096
    for ranks in (512, 4096, 32768):
        times = {n: f(costs, 8, ranks // 16, 16) for n, f in FORMULAS.items()}
        assert times["NAP"] < times["SMP"] <= times["recursive doubling"]
    gain = [
        FORMULAS["SMP"](costs, 8, n, 16) / FORMULAS["NAP"](costs, 8, n, 16) for n in (16, 256, 4096)
    ]
    assert gain == sorted(gain), "at powers of ppn: more ranks, more gain"
    assert crossover(costs, "SMP", "NAP", 2048, 16) == 0, "never for the fewest bytes"


def test_equations_by_hand():
    costs = MaxRate(1.0, 2.0, 10.0, 0.5, 1.0, 0.1)
    assert FORMULAS["recursive doubling"](costs, 3, 4, 4) == pytest.approx(7 * 2 + 22 * 2 + 1.2)
    assert FORMULAS["SMP"](costs, 3, 4, 4) == pytest.approx(7 * 2 + 16 * 2 + 1.2)
    assert FORMULAS["NAP"](costs, 3, 4, 4) == pytest.approx(7 * 4 + 22 * 1 + 1.5)


def test_nap_takes_whole_steps():
    """Bienz et al., section III-A: as many steps as the next power of `ppn` nodes takes."""
    costs = MaxRate.of(load_machine("blue-waters"), 16)
    times = [FORMULAS["NAP"](costs, 8, n, 16) for n in (1, 2, 16, 17, 256, 257, 4096)]
    none, *steps = times
    assert steps == [steps[0]] * 2 + [steps[2]] * 2 + [steps[4]] * 2
    assert 1e6 * steps[0] == pytest.approx(6.96, abs=0.01), "two nodes: one whole step"
    each = costs.max_rate(8, 16) + 4 * costs.local(8) + 5 * 8 * costs.gamma
    assert [b - a for a, b in zip((none, *steps[::2]), steps[::2], strict=False)] == (
        pytest.approx([each] * 3)
    )
    with pytest.raises(ArgumentError, match="1 rank a node"):
        FORMULAS["NAP"](costs, 8, 2, 1)


def test_doubling_takes_whole_steps():
    costs = MaxRate(1.0, 2.0, 10.0, 0.5, 1.0, 0.1)
    for name in ("recursive doubling", "SMP"):
        assert FORMULAS[name](costs, 8, 5, 4) == FORMULAS[name](costs, 8, 8, 4)
    assert FORMULAS["SMP"](costs, 8, 8, 3) == FORMULAS["SMP"](costs, 8, 8, 4)


refused = partial(refuse, kind=ArgumentError | ConfigError)


# ---- commands -----------------------------------------------------------------------------------


SIMULATE = ("simulate", "--machine", "emulated-1gbit")


def test_simulate_prints_times_and_what_they_are_made_of():
    text = call(*SIMULATE, "64KiB")
    assert "8 ranks on 4 nodes of 2" in text
    assert "adapt chain" in text
    assert "waiting" in text


def test_simulate_compares_segments_over_sizes(tmp_path):
    plot = tmp_path / "sizes.png"
    text = call(*SIMULATE, "8:256KiB:64", "--segment", "32KiB,whole", "--plot", plot)
    assert text.count("*") >= 3, "the faster one of each size is marked"
    assert plot.read_bytes().startswith(b"\x89PNG")
    record = json.loads(call(*SIMULATE, "256KiB", "--segment", "32KiB,whole", "--json"))
    assert [p["choice"] for p in record["predictions"]] == ["32KiB", "whole"]
    assert all(p["seconds"] > (1 << 18) / 119.5e6 for p in record["predictions"])


def test_simulate_tells_what_it_cannot_do():
    assert "did you mean 'emulated-1gbit'" in refused("simulate", "--machine", "emulted-1gbit")
    assert "did you mean 'bcast'" in refused(*SIMULATE, "bcst")
    assert "root 8 is not in 0..7" in refused(*SIMULATE, "--root", 8)
    assert "is not a size" in refused(*SIMULATE, "8much")
    assert "whole number" in refused(*SIMULATE, 9, "reduce")
    assert "unknown operation 'plus'" in refused(*SIMULATE, "--op", "plus")
    assert "'nope' is not a NumPy type" in refused(*SIMULATE, "--dtype", "nope")
    for text in (",", "32KiB,", ",whole"):
        assert "write 32KiB,128KiB,whole" in refused(*SIMULATE, "--segment", text)
    chain = "network=adapt.chain:segment="
    assert "segment" in refused(*SIMULATE, "--algorithm", f"{chain}\N{SUPERSCRIPT TWO}")
    assert "no folder" in refused(*SIMULATE, "--plot", "/nowhere/x.png")


def test_simulate_tells_of_programs_that_do_not_end(tmp_path):
    path = tmp_path / "edited.json"
    call("plan", "bcast", "64KiB", "--nodes", 4, "--ppn", 2, "--save", path)
    path.write_text(path.read_text().replace('"POST"', '"COPY"'))
    said = refuse(*SIMULATE, "--plan", path, kind=HanError)
    assert "edited.json: the programs do not end: ranks [" in said


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (["machine"], {"library": "A 1", "ranks": 8}, "machine.nodes: Field required"),
        (["machine", "ranks"], 0, "machine.ranks: Input should be greater"),
        (["rows"], [], "rows: List should have at least 1 item"),
        (["rows", 0, "han", "median"], 0, "rows.0.han.median: Input should be greater"),
        (["rows", 0, "han"], None, "no times of han"),
        (["rows", 0, "collective"], "bcst", "unknown collective 'bcst'; did you mean 'bcast'"),
        (["settings"], {}, "settings.mode: Field required"),
        (["settings", "op"], "plus", "unknown operation 'plus'"),
        (["settings", "dtype"], "nope", "'nope' is not a NumPy type"),
        (["settings", "root"], 8, "settings.root: 8 is not in 0..7"),
        (["config"], "levels: [", "config: "),
    ],
)
def test_what_is_missing_in_a_run_is_named(tmp_path, path, value, said):
    data = record = json.loads(json.dumps(run_of(config="{}").data))
    for key in path[:-1]:
        record = record[key]
    record[path[-1]] = value
    file = tmp_path / "run.json"
    file.write_text(json.dumps(data))
    text = refused("validate", "--machine", "emulated-1gbit", file)
    assert text.startswith(f"{file}: ")
    assert said in text


def test_validate_holds_runs_against_predictions(tmp_path):
    files = []
    for size, config in (segment("32KiB"), segment("128KiB")):
        file = tmp_path / f"{size}.json"
        file.write_text(json.dumps(run_of(config=config.to_yaml()).data))
        files.append(file)
    text = call("validate", "--machine", "emulated-1gbit", *files)
    assert "median error" in text
    assert text.count("bcast") == 2
    record = json.loads(call("validate", "--machine", "emulated-1gbit", *files, "--json"))
    assert record["pairs"] == {"same_winner": 0, "clear": 0, "too_close": 0}, "one plan"
    fitted = tmp_path / "fitted.yaml"
    plot = tmp_path / "fitted.svg"
    call("validate", "--machine", "emulated-1gbit", files[0], "--fit", fitted, "--plot", plot)
    assert load_machine(fitted).nodes == 4
    assert "<svg" in plot.read_text()
    other = tmp_path / "other.json"
    other.write_text(
        json.dumps(
            run_of(config="{}", machine={**run_of().data["machine"], "nodes": 2, "ranks": 4}).data
        )
    )
    assert "differ" in refused("validate", "--machine", "emulated-1gbit", *files, other)
