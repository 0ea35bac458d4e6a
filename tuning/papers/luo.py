"""Figures of Luo et al.: HAN, a hierarchical autotuned collective communication framework.

The paper compares HAN with libraries. A simulator cannot run these, so what stands for them is what
their collectives do: Open MPI's default algorithms among all ranks on one level, and for the
libraries of vendors the same levels as HAN, one after the other without overlap. HAN is tuned in
the paper; here the fastest of a few choices counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product

from han.common.grouped import grouped
from han.common.units import format_size
from han.model.series import Panel
from han.tasks.choice import Choice
from han.tasks.outline import Outline
from han.tasks.plan import Plan
from han.tasks.signature import Signature
from han.tuning.costs.model import Costs, predict
from han.tuning.costs.stages import Pipeline, Ranks, costs_of, pipeline_of_choice, stage_seconds
from han.tuning.papers import luo_tasks
from han.tuning.papers.figure import (
    Claim,
    Computed,
    Figure,
    Printed,
    Series,
    Setting,
    Way,
    call,
    gains,
)
from han.tuning.papers.luo_tasks import ALGORITHMS, INNER, NBC, PAPER, KiB, signature_of, way
from han.tuning.prediction import Where, plan_of
from han.tuning.prediction import predict as simulated

MiB = 1 << 20
HAN, ONE, APART = "HAN", "one level (Open MPI)", "levels apart (vendors)"
SMALL = 128 * KiB  # the paper's bound between small and large messages
DECIDED = 370 * 1000  # bytes from which Open MPI's default broadcast is a chain
BCASTS = (
    Way(HAN),
    Way(HAN, ("network=adapt.binary",), "128KiB", least=2 * SMALL),
    Way(HAN, ("network=adapt.chain",), "512KiB", least=4 * MiB),
    Way(ONE, ("network=adapt.binomial",), "whole", "flat", most=2 * KiB),
    Way(ONE, ("network=adapt.binary:segment=8KiB",), "whole", "flat", least=2 * KiB + 1,
        most=DECIDED),
    Way(ONE, ("network=adapt.chain:segment=128KiB",), "whole", "flat", least=DECIDED + 1),
    Way(APART, ("network=adapt.binomial:segment=64KiB",), "whole", "tree"),
    Way(APART, ("network=exchange.scatter",), "whole", "tree", least=2 * SMALL),
)  # fmt: skip
ALLREDUCES = (
    Way(HAN),
    Way(HAN, ("network=adapt.binary:segment=64KiB",), "1MiB", least=4 * MiB),
    Way(HAN, ("network=exchange.halving",), "1MiB", least=4 * MiB),
    Way(ONE, ("network=exchange.recursive_doubling",), "whole", "flat", most=10 * KiB),
    Way(ONE, ("network=exchange.halving",), "whole", "flat", least=10 * KiB + 1),
    Way(APART, ("network=exchange.recursive_doubling",), "whole", "tree", most=2 * KiB),
    Way(APART, ("network=exchange.halving",), "whole", "tree", least=2 * KiB + 1),
)
SEGMENT_OF_BCAST, SEGMENT_OF_ALLREDUCE = 128 * KiB, MiB  # of the best choices, by the paper
SEGMENTS = (64 * KiB, 128 * KiB, 256 * KiB, 512 * KiB, 1024 * KiB)


# ---- figures 4 and 7: segments and algorithms ---------------------------------------------------


def bcast_over_segments(setting: Setting) -> Computed:
    """Figure 4: a broadcast over segment sizes, by submodules, estimated and simulated."""
    return _over_segments(setting, "bcast", SEGMENT_OF_BCAST)


def allreduce_over_segments(setting: Setting) -> Computed:
    """Figure 7: an allreduce over segment sizes, by submodules, estimated and simulated."""
    return _over_segments(setting, "allreduce", SEGMENT_OF_ALLREDUCE)


def _over_segments(setting: Setting, collective: str, best: int) -> Computed:
    setting.expect(nbytes=SEGMENTS[0])
    nbytes, series, estimates = max(setting.sizes), Series(), Series()
    segments = [s for s in SEGMENTS if s <= nbytes]
    for algorithm, inner, segment in product(ALGORITHMS, INNER, segments):
        each = way(algorithm, inner, segment)
        signature = signature_of(collective, nbytes, inner)
        series.setdefault(each.name, {})[segment] = 1e6 * setting.seconds(each, signature)
        told = 1e6 * estimated(setting, each, signature)
        estimates.setdefault(each.name, {})[segment] = told
    where = f"{setting.nodes} nodes of {setting.ppn}"
    return Computed(
        (
            Panel(f"{where}, simulated", "bytes of a segment", series),
            Panel(f"{where}, estimated", "bytes of a segment", estimates),
        ),
        (_best_claim(series, best), _model_claim(series, estimates)),
    )


def _best(series: Series) -> tuple[float, str, int]:
    return min((us, name, x) for name, points in series.items() for x, us in points.items())


def _best_claim(series: Series, segment: int) -> Claim:
    adapt = {name: points for name, points in series.items() if not name.startswith(NBC)}
    (us, name, found), (longer, tree, cut) = _best(series), _best(adapt)
    of_adapt = f"; of ADAPT {format_size(cut)}, {tree}: {longer:.0f} us" if tree != name else ""
    return Claim(
        f"the best is {format_size(segment)} with binary trees of ADAPT, and SOLO",
        f"{format_size(found)}, {name}: {us:.0f} us{of_adapt}",
        (name, found) == ("binary, SOLO", segment),
        (Printed("segment of the best choice", segment / KiB, found / KiB, "KiB"),),
    )


def _model_claim(series: Series, estimates: Series) -> Claim:
    _, name, segment = _best(estimates)
    chosen, least = series[name][segment], _best(series)[0]
    errors = sorted(
        abs(estimates[n][x] / us - 1) for n, points in series.items() for x, us in points.items()
    )
    return Claim(
        "the model's best choice is the best one",
        f"its choice, {format_size(segment)}, {name}, takes {chosen / least:.2f} of the least "
        f"time; median error {errors[len(errors) // 2]:.1%}, largest {errors[-1]:.0%}",
        chosen <= 1.02 * least,
    )


# ---- figures 10 and 12 to 14: HAN beside libraries ----------------------------------------------


def _beside(
    collective: str, ways: tuple[Way, ...], *claims: Callable[[Series], Claim]
) -> Callable[[Setting], Computed]:
    """Return what makes a figure of a collective in several ways, and claims about HAN's gains."""

    def made(setting: Setting) -> Computed:
        series = setting.over_sizes(ways, call(collective))
        found = {other: gains(series, HAN, other) for other in (ONE, APART)}
        where = f"{setting.nodes} nodes of {setting.ppn}"
        panel = Panel(f"{collective}, {where}, simulated", "bytes", series)
        return Computed((panel,), tuple(claim(found) for claim in claims))

    return made


def _up_to(other: str, large: bool, said: Mapping[str, float], found: Series) -> Claim:
    """Return the claim that HAN is up to so many times faster for small or large messages.

    `said` are the paper's numbers by library. It holds if HAN is faster for one of the sizes, and
    slower for none.
    """
    chosen = [g for n, g in found[other].items() if (n > SMALL) == large] or [0.0]
    kind = "large" if large else "small"
    told = ", ".join(f"{times} times {library}" for library, times in said.items())
    return Claim(
        f"{kind} messages: up to {told}",
        f"{min(chosen):.2f} to {max(chosen):.2f} times {other}",
        min(chosen) >= 1 and max(chosen) > 1,
        tuple(
            Printed(f"{kind} messages: at most, {library}", times, max(chosen))
            for library, times in said.items()
        ),
    )


def _always(
    others: Sequence[str], least: int, paper: str, found: Series, library: str = "", most: float = 0
) -> Claim:
    """Return the claim that HAN is faster than some others for all messages of `least` bytes.

    `most` is how many times faster it is than a library, at most, by the paper.
    """
    chosen = [
        min(found[other][n] for other in others if n in found[other])
        for n in found[ONE] if n >= least
    ]  # fmt: skip
    low, high = (pick(chosen, default=0.0) for pick in (min, max))
    numbers = (Printed(f"large messages: at most, {library}", most, high),) if library else ()
    return Claim(paper, f"{low:.2f} to {high:.2f} times", low > 0.99, numbers)


BCAST_ON_SHAHEEN = _beside(
    "bcast", BCASTS,
    partial(_up_to, ONE, False, {"Open MPI": 4.72}),
    partial(_up_to, ONE, True, {"Open MPI": 7.35}),
    partial(_up_to, APART, True, {"Cray MPI": 2.32}),
)  # fmt: skip
BCAST_ON_STAMPEDE = _beside(
    "bcast", BCASTS,
    partial(_up_to, ONE, False, {"Open MPI": 5.35}),
    partial(_up_to, ONE, True, {"Open MPI": 1.73}),
    partial(_up_to, APART, False, {"Intel MPI": 1.15, "MVAPICH2": 2.28}),
    partial(_up_to, APART, True, {"Intel MPI": 1.39, "MVAPICH2": 3.83}),
)  # fmt: skip
ALLREDUCE_ON_SHAHEEN = _beside(
    "allreduce", ALLREDUCES,
    partial(_always, (ONE,), 0, "faster than Open MPI in all cases"),
    partial(_always, (APART,), 2 * MiB + 1, "faster than Cray MPI above 2 MB, up to 1.12 times",
            library="Cray MPI", most=1.12),
)  # fmt: skip
ALLREDUCE_ON_STAMPEDE = _beside(
    "allreduce", ALLREDUCES,
    partial(_always, (ONE,), 0, "faster than Open MPI in all cases"),
    partial(_always, (ONE, APART), 4 * MiB, "the fastest between 4 MB and 64 MB"),
    partial(_always, (APART,), 4 * MiB, "faster than MVAPICH2 and Intel MPI from 4 MB on"),
)  # fmt: skip
SCALES = (8, 4 * KiB, SMALL, MiB, 4 * MiB, 16 * MiB)
STANDS = (
    "What stands for a library is its kind of algorithm, not the library: no software overhead, no "
    "tuning, and for Open MPI's ring of an allreduce Rabenseifner's algorithm. All lines have the "
    "same bandwidth between two ranks; in the paper (figure 11) Open MPI's is lower from 16 to 512 "
    "KB. The paper has 4096 processes on Shaheen II (--nodes 128), and goes on to 128 MB."
)
FIGURES = {
    **luo_tasks.FIGURES,
    "han-4": Figure(
        PAPER, "bcast of 4 MiB over segments: the cost model and the time", bcast_over_segments,
        "stampede2", 64, 12, (4 * MiB,),
        "The paper has no costs of its machine. A segment costs little here, so smaller ones win. "
        "Libnbc is the postal model of the whole collective, with one collective at a time.", True,
    ),
    "han-7": Figure(
        PAPER, "allreduce of 4 MiB over segments: the cost model and the time",
        allreduce_over_segments, "stampede2", 64, 12, (4 * MiB,),
        "In han, segments of a message go on between nodes while others are reduced inside nodes, "
        "and a segment costs little, so smaller ones win. Libnbc is the postal model of the whole "
        "collective, with one collective at a time.", True,
    ),
    "han-10": Figure(PAPER, "bcast on Shaheen II", BCAST_ON_SHAHEEN, "shaheen2", 32, 32, SCALES,
                     STANDS, True),
    "han-12": Figure(PAPER, "bcast on Stampede2", BCAST_ON_STAMPEDE, "stampede2", 32, 48, SCALES,
                     STANDS, True),
    "han-13": Figure(PAPER, "allreduce on Shaheen II", ALLREDUCE_ON_SHAHEEN, "shaheen2", 32, 32,
                     SCALES, STANDS, True),
    "han-14": Figure(PAPER, "allreduce on Stampede2", ALLREDUCE_ON_STAMPEDE, "stampede2", 32, 48,
                     SCALES, STANDS),
}  # fmt: skip


def estimated(setting: Setting, way: Way, signature: Signature) -> float:
    """Return the seconds of a call by the cost model."""
    where = Where(setting.machine, setting.nodes, setting.ppn)

    def plan(asked: Signature, _: Choice) -> Outline:
        return plan_of(where, way.rules, asked)

    choice = plan_of(where, way.rules, signature).choice
    pipeline = pipeline_of_choice(signature, choice, plan)
    counts = (pipeline.short, *([pipeline.longer] if pipeline.is_long else []))
    setting.tell(f"{way.name}: the model's short pipelines")
    rows = [_measured(where, way, _of(pipeline, signature, count)) for count in counts]
    found = predict(pipeline, Costs(costs_of(pipeline, *rows)))
    assert found is not None, "all stages have been measured"
    return found


def _of(pipeline: Pipeline, signature: Signature, count: float) -> Signature:
    return replace(signature, count=pipeline.nbytes(count) // signature.element)


def _measured(where: Where, way: Way, signature: Signature) -> list[Ranks]:
    plan: Plan = plan_of(where, way.rules, signature)
    spans = simulated(where, plan, spans=True).simulation.spans
    stage_of = {str(task): k for task, k in plan.stages.items()}
    times = grouped((one.rank, one) for one in spans)
    ranks = [stage_seconds(times.get(r, []), stage_of, 0.0) for r in range(where.size)]
    return list(zip(*ranks, strict=True))
