"""Strategies of ``han tune`` beside exhaustive search, on the simulator's machine.

The machine is `emulated-1gbit` with 2 nodes of 2 ranks. A visit of a call or of a short pipeline
counts as so many calls as on real ranks, the first one as some more. The numbers do not depend
on the load of the machine that computes them.

    python tests/tuning/bench_strategies.py [PICTURE.png [COLLECTIVE ...]]
"""

import sys
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

from plans import rules_of
from test_search import SimulatedLab

from han.cli.tune_quality import text_of
from han.measure.measured import CLEAR, TIMED
from han.measure.tune.quality import USUAL, PredictedCandidate, QualityRow, compared, named
from han.measure.tune.tuner import Input, sparse_first
from han.measure.tune.windows import observations
from han.model.topology import Topology
from han.submodules.registry import plan_of_choice
from han.tasks.call import call_signature
from han.tuning.search.limits import Limits
from han.tuning.search.space import space_of
from han.tuning.search.strategies import STRATEGIES, run

KiB = 1024
TOPOLOGY = Topology(("node", "network"), ("s", "i"), ((0, 0, 1, 1), (0, 0, 0, 0)), (0, 0, 1, 1))
RULES = rules_of(TOPOLOGY)
COLLECTIVES = ("bcast", "reduce")
SIZES = tuple(8 << 2 * k for k in range(11))  # 8 B to 8 MiB
NONE = dict.fromkeys(
    ("window", "radix", "chunk", "cells", "skew", "leaders", "socket_tree", "socket_radix",
     "inline", "read_parent_flag", "in_recv", "trailing"), (),
)  # fmt: skip
LIMITS = Limits(
    submodules=("sm", "adapt"), algorithms=("flat", "chain", "binomial", "linear"),
    segments=tuple(KiB << k for k in range(4, 9)), schedules=("dataflow",),
    parameters={"adapt.segment": (8 * KiB, 16 * KiB, 32 * KiB), **NONE},
)  # fmt: skip


class CountingLab(SimulatedLab):
    """Counts the seconds of measurements; labs share what is simulated."""

    simulations: dict[object, object] = {}

    def __init__(self):
        super().__init__()
        self.seconds = self._last = 0.0

    def plan(self, signature, choice):
        """Plan a call with a choice."""
        return plan_of_choice(TOPOLOGY, signature, choice, 1 << 24)

    def _simulate(self, signature, choice, spans=False):
        key = signature, choice, spans
        if key not in self.simulations:
            self.simulations[key] = super()._simulate(signature, choice, spans)
        plan, found = self.simulations[key]
        self._last = found.seconds
        return plan, found

    def observe(self, signature, choice, limit):
        """Measure a call, and count its time."""
        new = self._new() if (signature, choice) not in self.observed else 0
        found = super().observe(signature, choice, limit)
        self.seconds += (new + observations(self._last)) * self._last
        return found

    def _new(self):
        """Calls before a choice is measured first."""
        return 1 if self._last > CLEAR else 1 + TIMED

    def _stages(self, plan, found):
        self.seconds += (self._new() + observations(found.seconds)) * found.seconds
        return super()._stages(plan, found)


def row(signature, labs):
    """Search one input by all strategies."""
    space, found, spent = space_of(RULES, signature, LIMITS), {}, {}
    for name, lab in labs.items():
        before = lab.seconds
        found[name] = run(STRATEGIES[name], lab, signature, space)
        spent[name] = lab.seconds - before
    best = {name: one.measured[0] for name, one in found.items()}
    times = {r.choice: r.measured.median for r in found["exhaustive"].measured}
    fastest = min(times.values())
    predictions = [
        PredictedCandidate(named(r.choice), times[r.choice], r.predicted)
        for r in found["task"].results if r.predicted is not None and r.choice.segment is not None
    ]  # fmt: skip
    return QualityRow(
        signature.collective, signature.nbytes, len(times),
        {name: named(r.choice) for name, r in best.items()},
        {name: r.measured.median / fastest for name, r in best.items()},
        spent, {name: len(one.measured) for name, one in found.items()}, tuple(predictions),
    )  # fmt: skip


def main():
    """Print the tables of each collective and of all together, and draw them."""
    every = []
    for collective in sys.argv[2:] or COLLECTIVES:
        labs = {name: CountingLab() for name in compared(USUAL)}
        inputs = sparse_first([Input(collective, nbytes) for nbytes in SIZES])
        rows = [row(call_signature(collective, one.nbytes), labs) for one in inputs]
        every += sorted(rows, key=lambda one: one.nbytes)
        CountingLab.simulations.clear()
        print(text_of(every[-len(SIZES) :]), flush=True)
    print(text_of(every))
    far = [one.error for r in every for one in r.predictions]
    print(f"# {len(far)} candidates in segments, median error {100 * median(far):.1f} %")
    if len(sys.argv) > 1:
        from han.plots.tuning import quality

        quality(every, Path(sys.argv[1]))


if __name__ == "__main__":
    main()
