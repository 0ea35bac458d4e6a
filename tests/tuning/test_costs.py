"""Estimates, costs of stages, and the cost model against examples computed by hand."""

from dataclasses import replace

import pytest
from schedules import stage_times

from han.config.machine import load_machine
from han.model.timeline import TaskTime
from han.model.topology import virtual
from han.submodules.registry import plan_of_choice
from han.tasks.call import call_signature
from han.tasks.choice import Choice, level_choice
from han.tasks.simulate import simulate
from han.tuning.costs.estimates import estimate, of_series
from han.tuning.costs.model import Costs, basis, missing, predict
from han.tuning.costs.stages import Operands, Stage, costs_of, pipeline_of, stage_seconds

KiB = 1024


def plan(collective, nbytes, levels=None, segment=32 * KiB, topology=None, schedule="dataflow"):
    topology = topology or virtual(8, 2)
    levels = levels or (level_choice("sm", "flat"), level_choice("adapt", "chain"))
    choice = Choice(tuple(levels), segment, schedule)
    return plan_of_choice(topology, call_signature(collective, nbytes), choice, 1 << 24)


def test_the_interval_of_a_median_is_that_of_order_statistics():
    found = estimate([k / 10 for k in range(1, 101)])
    assert found.median == pytest.approx(5.05)
    # ranks 50 +- 0.98 * sqrt(100) of 100 observations
    assert (found.low, found.high) == (4.1, 6.1)
    assert found.half_width == pytest.approx(1 / 5.05)
    assert found.is_narrow(0.2)
    assert not found.is_narrow(0.19)


def test_outliers_do_not_move_the_median():
    calm = [1.0, 1.01, 1.02, 0.99, 1.0, 1.03, 0.98]
    found = estimate([*calm, 40.0, 90.0])
    assert found.count == len(calm), "without two outliers"
    assert found.median == estimate(calm).median
    assert estimate([2.0]).median == 2.0
    assert not estimate([2.0] * 5).is_narrow(0.5), "five observations have no interval of 95 %"


@pytest.mark.parametrize(("series", "count", "expected"), [
    ([[1.0] * 4] * 5, 2, 1.0),  # four observations have no interval, eight agree
    ([[1.0, 1.01, 0.99, 1.0] * 2] * 5, 1, 1.0),
    ([[1.0] * 4, [2.0] * 4, [3.0] * 4], 3, 2.0),  # wide to the end
    ([[5.0]] * 3, 3, 5.0),
])  # fmt: skip
def test_series_end_when_their_interval_is_narrow(series, count, expected):
    left = iter(series)
    made = []
    found = of_series(lambda: made.append(next(left)) or made[-1], 3)
    assert len(made) == count
    assert found == expected


def test_stages_have_the_names_of_the_paper():
    names = {
        "bcast": ["ib", "sbib", "sb"],
        "reduce": ["sr", "irsr", "ir"],
        "allreduce": ["sr", "irsr", "ibirsr", "sbibirsr", "sbibir", "sbib", "sb"],
    }
    for collective, wanted in names.items():
        pipeline = pipeline_of(plan(collective, 1 << 20))
        found = [stage.name for stage, _ in pipeline.stages()]
        assert list(dict.fromkeys(found)) == wanted
        assert {stage.segment for stage, _ in pipeline.stages()} == {32 * KiB}
        assert sum(times for _, times in pipeline.stages()) == 32 + pipeline.depth - 1
        assert pipeline.steady.name == wanted[pipeline.depth - 1]
        short = plan(collective, pipeline.short * 32 * KiB)
        assert found[:-1] == short.tasks.stage_names()


def test_equation_3_of_bcast_by_hand():
    pipeline = pipeline_of(plan("bcast", 1 << 20))  # u = 32 segments
    costs = Costs()
    for stage, _ in pipeline.stages():
        # leaders 0 and 2; leader 2 is slower in the first task, leader 0 in the steady ones
        costs.add(stage, {"ib": (3.0, 9.0), "sbib": (2.0, 1.5), "sb": (1.0, 1.0)}[stage.name])
    by_hand = max(3 + 31 * 2 + 1, 9 + 31 * 1.5 + 1)
    assert predict(pipeline, costs) == pytest.approx(by_hand)


def test_equation_4_of_allreduce_by_hand():
    pipeline = pipeline_of(plan("allreduce", 1 << 20))
    each = {
        "sr": 1.0, "irsr": 2.0, "ibirsr": 3.0, "sbibirsr": 4.0, "sbibir": 5.0, "sbib": 6.0,
        "sb": 7.0,
    }  # fmt: skip
    costs = Costs({stage: (each[stage.name],) for stage, _ in pipeline.stages()})
    assert predict(pipeline, costs) == pytest.approx(1 + 2 + 3 + (32 - 3) * 4 + 5 + 6 + 7)


def test_a_cost_above_that_of_more_bytes_was_disturbed_and_becomes_as_low():
    pipeline = pipeline_of(plan("bcast", 8, segment=None, topology=virtual(2, 2)))
    ((stage, _),) = pipeline.stages()
    sizes = [replace(stage, segment=n) for n in (8, 32, 512, 2048)]
    costs = Costs()
    for one, seconds in zip(sizes, (145e-6, 4e-3, 1e-6, 2e-6), strict=True):
        costs.add(one, (seconds, seconds / 2))
    assert [costs.find(one)[0] for one in sizes] == [1e-6, 1e-6, 1e-6, 2e-6]
    costs.add(replace(stage, segment=4096), (0.0, 0.0))
    assert costs.find(sizes[0])[0] == 1e-6, "a cost of zero is an error of measurement"
    steady = [replace(one, steady=True) for one in sizes[:2]]
    for one, seconds in zip(steady, (2e-6, 1e-6), strict=True):
        costs.add(one, (seconds,))
    assert costs.find(steady[0]) == (2e-6,), "a difference of two times may err in both directions"
    shared = [replace(one, alone=True) for one in sizes[:2]]
    for one, seconds in zip(shared, (2e-6, 1e-6), strict=True):
        costs.add(one, (seconds,))
    assert costs.find(shared[0]) == (2e-6,), "what others leave over is not measured"


def test_a_cost_that_is_not_known_gives_no_prediction():
    pipeline = pipeline_of(plan("bcast", 1 << 20))
    costs = Costs()
    assert predict(pipeline, costs) is None
    stages = [stage for stage, _ in pipeline.stages()]
    assert missing(pipeline, costs) == stages
    for stage in stages[:-1]:
        costs.add(stage, (1.0,))
    assert missing(pipeline, costs) == stages[-1:]


def test_costs_are_used_again_for_other_sizes_and_collectives():
    costs = Costs()
    for stage, _ in pipeline_of(plan("allreduce", 32 * KiB)).stages():
        costs.add(stage, (1.0, 2.0))
    for collective, steps in {"bcast": 2, "reduce": 2}.items():
        assert predict(pipeline_of(plan(collective, 32 * KiB)), costs) == 2.0 * steps
    long = pipeline_of(plan("bcast", 1 << 20))
    for stage, _ in long.stages():
        costs.add(stage, (1.0, 2.0))
    for nbytes in (512 * KiB, 4 << 20, 64 << 20):
        segments = nbytes // (32 * KiB)
        found = predict(pipeline_of(plan("bcast", nbytes)), costs)
        assert found == pytest.approx(2.0 * (segments + 1))


def test_costs_between_measured_segments_follow_a_log_scale():
    small, large = (Stage((), n, Operands()) for n in (1024, 4096))
    costs = Costs({small: (1.0, 4.0), large: (4.0, 4.0)})
    assert costs.find(Stage((), 2048, Operands())) == pytest.approx((2.0, 4.0))
    for outside in (512, 8192):
        assert costs.find(Stage((), outside, Operands())) is None
    costs.add(Stage((), 4096 * 17, Operands()), (9.0, 9.0))
    assert costs.find(Stage((), 4096 * 9, Operands())) == pytest.approx((6.5, 6.5)), "a line"
    far = Costs({Stage((), 8, Operands()): (1.0,), Stage((), 8 * 513, Operands()): (2.0,)})
    assert far.find(Stage((), 64, Operands())) is None, "too far from both"


def test_the_seconds_of_stages_add_up_to_those_of_the_call():
    def task(name, end):
        return TaskTime(0, 1, "bcast", "bcast@node", name, 0.0, end)

    stage_of = {"ib(0)": 0, "ib(1)": 1, "sb(0)": 1, "sb(1)": 2}
    times = [task("ib(0)", 12.0), task("ib(1)", 13.0), task("sb(0)", 15.0), task("sb(1)", 14.5)]
    found = stage_seconds(times, stage_of, start=10.0)
    assert found == (2.0, 3.0, 0.0), "a task that ends before the stage before it costs nothing"
    assert sum(found) == 15.0 - 10.0


MACHINES = {(8, 2): "emulated-1gbit", (12, 3): "thor"}


def simulated(one, machine, place):
    """Return the time of a plan by simulation, and the seconds of its stages by rank."""
    found = simulate(one, machine, place, spans=True)
    return found.seconds, stage_times(one, found.spans)


@pytest.mark.parametrize("schedule", ["dataflow", "lockstep"])
@pytest.mark.parametrize("ranks", MACHINES, ids=str)
@pytest.mark.parametrize("collective", ["bcast", "reduce", "allreduce"])
def test_short_pipelines_predict_long_ones_on_the_simulators_machine(collective, ranks, schedule):
    machine = load_machine(MACHINES[ranks])
    size, ppn = ranks
    place, topology = machine.place(size // ppn, ppn), virtual(size, ppn)
    networks = (
        level_choice("adapt", "chain", segment=16 * KiB),
        level_choice("adapt", "binomial", segment=32 * KiB),
    )
    for network in networks:
        levels = (level_choice("sm", "flat"), network)

        def make(nbytes, levels=levels):
            return plan(collective, nbytes, levels, 64 * KiB, topology, schedule)

        costs = Costs()
        long = pipeline_of(make(4 << 20))
        measured = [
            simulated(make(count * 64 * KiB), machine, place)[1]
            for count in (long.short, long.longer)
        ]
        for stage, seconds in costs_of(long, *measured).items():
            costs.add(stage, seconds)
        for nbytes in (1 << 20, 4 << 20):
            wanted, _ = simulated(make(nbytes), machine, place)
            found = predict(pipeline_of(make(nbytes)), costs)
            assert found == pytest.approx(wanted, rel=0.2), (network, nbytes)


@pytest.mark.parametrize("segments", [5, 6, 7.5])
def test_a_message_between_both_short_pipelines_is_predicted_exactly(segments):
    """The longer pipeline has no more segments than the message, and its costs are per segment."""
    machine, topology = load_machine("emulated-1gbit"), virtual(8, 2)
    place, levels = (
        machine.place(4, 2),
        (level_choice("sm", "flat"), level_choice("adapt", "chain")),
    )

    def make(nbytes):
        return plan("bcast", nbytes, levels, 64 * KiB, topology)

    nbytes = int(segments * 64 * KiB)
    pipeline = pipeline_of(make(nbytes))
    assert pipeline.short < pipeline.longer == segments
    assert pipeline.nbytes(pipeline.longer) == nbytes
    measured = [
        simulated(make(pipeline.nbytes(count)), machine, place)[1]
        for count in (pipeline.short, pipeline.longer)
    ]
    wanted, _ = simulated(make(nbytes), machine, place)
    assert predict(pipeline, Costs(costs_of(pipeline, *measured))) == pytest.approx(wanted)


def test_a_prediction_tells_what_it_is_made_from():
    costs, flat = Costs(), (level_choice("sm", "flat"), level_choice("adapt", "chain"))
    small, middle, large = (
        pipeline_of(plan("bcast", n * KiB, flat, None, virtual(4, 4))) for n in (4, 16, 64)
    )
    for one in (small, large):
        costs.add(one.stages()[0][0], (1e-6 * one.segment,) * 4)
    assert basis(small, costs) == "all stages measured alone"
    assert basis(middle, costs) == "interpolated between 4KiB and 64KiB"
    largest = pipeline_of(plan("bcast", 1 << 20, flat, None, virtual(4, 4)))
    assert basis(largest, costs) == "in proportion to 64KiB"


def test_a_cost_beyond_large_segments_is_in_proportion():
    flat = (level_choice("sm", "flat"), level_choice("adapt", "chain"))

    def stage(nbytes):
        return pipeline_of(plan("bcast", nbytes, flat, None, virtual(4, 4))).stages()[0][0]

    for measured, wanted, found in (
        (64 * KiB, 256 * KiB, (4e-6, 8e-6)),
        (64 * KiB, 1 << 20, (16e-6, 32e-6)),
        (64 * KiB, 2 << 20, None),  # too far away
        (32 * KiB, 64 * KiB, None),  # small ones may have a constant cost
        (64 * KiB, 32 * KiB, None),
    ):
        costs = Costs({stage(measured): (1e-6, 2e-6)})
        assert costs.find(stage(measured)) == (1e-6, 2e-6)
        assert costs.find(stage(wanted)) == (found and pytest.approx(found))
    costs = Costs({stage(64 * KiB): (1e-6,), stage(512 * KiB): (5e-6,)})
    assert costs.find(stage(1 << 20)) == pytest.approx((10e-6,)), "from the largest one"


def test_a_prediction_of_a_long_pipeline_tells_its_short_forms():
    assert (
        basis(pipeline_of(plan("bcast", 1 << 20)), Costs()) == "from pipelines of 4 and 8 segments"
    )


def test_a_cost_that_is_measured_again_keeps_the_smaller_one_of_each_rank():
    stage = Stage((), 64, Operands())
    costs = Costs()
    assert not costs.knows(stage)
    costs.improve(stage, (3.0, 1.0, 0.0))
    costs.improve(stage, (2.0, 4.0, 5.0))
    assert costs.find(stage) == (2.0, 1.0, 5.0)
    costs.improve(stage, (0.0, 0.0, 0.0))
    assert costs.find(stage) == (2.0, 1.0, 5.0)
    assert costs.knows(stage)
