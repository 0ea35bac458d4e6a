"""Costs of HAN's tasks: figures 2, 3 and 6 of Luo et al.

A task alone, or two tasks that begin at the same time, are calls of one segment whose tasks do not
wait for each other. Tasks one after the other are stages in lockstep, as in the paper.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product

from han.common.grouped import grouped
from han.common.units import format_size
from han.model.series import Panel
from han.model.timeline import TaskTime
from han.tasks.graph import Task, Tasks
from han.tasks.plan import Plan
from han.tasks.signature import Signature
from han.tuning.costs.stages import Ranks, stage_seconds
from han.tuning.papers.figure import Claim, Computed, Figure, Series, Setting, Way, call
from han.tuning.prediction import Where, plan_of
from han.tuning.prediction import predict as simulated

PAPER = "Luo et al.: HAN"
KiB = 1 << 10
NBC = "Libnbc"
ALGORITHMS = ("chain", "binary", "binomial", NBC)
INNER = {"SM": "sm", "SOLO": "solo"}
COMPARED = 8  # stages of figure 3
SHOWN = 2  # the node leader of figure 3
WARM = 3  # stages until a pipeline is full


def between(name: str, segment: int) -> str:
    """Spell an algorithm between nodes with one message a segment, and one segment at a time.

    Libnbc has one collective in flight: HAN's tasks come one after the other.
    """
    return "network=libnbc:window=1" if name == NBC else f"network=adapt.{name}:segment={segment}"


def way(name: str, inner: str, segment: int) -> Way:
    """Return HAN with an algorithm between nodes and a submodule inside them."""
    algorithms = (between(name, segment), f"node={INNER[inner]}")
    return Way(f"{name}, {inner}", algorithms, format_size(segment), "tree")


def signature_of(collective: str, nbytes: int, inner: str) -> Signature:
    """Return a call. SOLO reads arrays that all ranks of a node map; others are ordinary."""
    return replace(call(collective, nbytes), mapped=INNER[inner] == "solo")


class Apart(Tasks):
    """Tasks that do not wait for each other's data."""

    def sources_of(self, task: Task) -> Sequence[Task]:
        """Return no tasks."""
        return ()


def _where(setting: Setting) -> Where:
    return Where(setting.machine, setting.nodes, setting.ppn)


def _by_leader(where: Where, plan: Plan) -> list[list[TaskTime]]:
    """Simulate a plan; return the times of tasks of each node's leader."""
    spans = simulated(where, plan, spans=True).simulation.spans
    times = grouped((one.rank, one) for one in spans)
    return [times.get(rank, []) for rank in range(0, where.size, where.ppn)]


def at_once(where: Where, plan: Plan, names: Sequence[str]) -> Ranks:
    """Return the seconds until each node's leader has done some tasks that begin together."""
    passed = tuple(step for step in plan.tasks.passed if step[0] in names)
    apart = replace(plan, tasks=Apart(passed, plan.tasks.cut))
    start = where.machine.node.call
    return tuple(
        max((one.end for one in times), default=start) - start for times in _by_leader(where, apart)
    )


def in_turn(where: Where, plan: Plan) -> list[Ranks]:
    """Return the seconds of each stage in lockstep, by node."""
    lockstep = replace(plan, choice=replace(plan.choice, schedule="lockstep"))
    stage_of = {str(task): k for task, k in lockstep.stages.items()}
    start = where.machine.node.call
    return [stage_seconds(times, stage_of, start) for times in _by_leader(where, lockstep)]


# ---- figure 2: ib, sb, both, and sbib -----------------------------------------------------------


IB, SB, BOTH, AFTER = "ib(0)", "sb(0)", "ib(0) and sb(0) at once", "sbib(1) after ib(0)"


def tasks_of_bcast(setting: Setting) -> Computed:
    """Figure 2: the costs of ib, sb, both at once and sbib on each node's leader."""
    setting.expect(nodes=2, ppn=2)
    panels = []
    for name, inner in product(ALGORITHMS, INNER):
        setting.tell(f"{name}, {inner}")
        series = _bars(setting, name, inner)
        panels.append(Panel(f"{name}, {inner}", "node", series, "time (us)"))
    overlaps = [o for panel in panels for o in _overlaps(panel.series, IB, SB, BOTH)]
    moved = [p.series[AFTER][x] / p.series[BOTH][x] for p in panels for x in p.series[BOTH]]
    return Computed(
        tuple(panels),
        (
            _ends(panels),
            _overlap("ib and sb", overlaps),
            Claim(
                "sbib(1) after ib(0) takes another time than ib(0) and sb(0) at once",
                f"{min(moved):.2f} to {max(moved):.2f} times",
                max(abs(m - 1) for m in moved) > 0.1,
            ),
        ),
    )


def _ends(panels: Sequence[Panel]) -> Claim:
    """Return the claim that leaders end ib(0) at different times."""
    ends = {panel.title: sorted(panel.series[IB].values()) for panel in panels}
    same = [title for title, times in ends.items() if len(set(times)) == 1]
    least = min(times[-1] / times[0] for title, times in ends.items() if title not in same)
    return Claim(
        "every node leader finishes ib(0) at a different time",
        f"the last one after {least:.0f} times the first one's time or more; all at the same time: "
        f"{' and '.join(same) or 'none'}",
        not same,
    )


def _bars(setting: Setting, name: str, inner: str) -> Series:
    where, segment = _where(setting), max(setting.sizes)
    rules = way(name, inner, segment).rules
    one = plan_of(where, rules, signature_of("bcast", segment, inner))
    two = plan_of(where, rules, signature_of("bcast", 2 * segment, inner))
    bars = {
        IB: at_once(where, one, ("ib",)),
        SB: at_once(where, one, ("sb",)),
        BOTH: at_once(where, one, ("ib", "sb")),
        AFTER: tuple(stages[1] for stages in in_turn(where, two)),
    }
    return {key: _microseconds(seconds) for key, seconds in bars.items()}


def _microseconds(seconds: Sequence[float]) -> dict[int, float]:
    return {node: 1e6 * each for node, each in enumerate(seconds)}


def _overlaps(
    series: Mapping[str, Mapping[int, float]], first: str, second: str, both: str
) -> Iterator[float]:
    """Yield which part of the shorter of two tasks both together save, on all but the root."""
    for x, together in series[both].items():
        a, b = series[first][x], series[second][x]
        if x:
            yield (a + b - together) / min(a, b)


def _overlap(about: str, found: Sequence[float]) -> Claim:
    """Return the claim of an overlap that is significant, but not perfect everywhere."""
    low, high = min(found), max(found)
    perfect = sum(each > 0.99 for each in found)
    return Claim(
        f"the overlap of {about} is significant, but usually not perfect",
        f"{low:.0%} to {high:.0%} of the shorter one; {perfect} of {len(found)} are perfect",
        low > 0.5 and 2 * perfect < len(found),
    )


# ---- figure 3: the stages of a pipeline ---------------------------------------------------------


def stages_of_bcast(setting: Setting) -> Computed:
    """Figure 3: the costs of sbib(1) to sbib(8) on one node leader."""
    where, segment = _where(setting), max(setting.sizes)
    node = min(SHOWN, setting.nodes - 1)
    series: Series = {}
    for name, inner in product(ALGORITHMS, INNER):
        each = way(name, inner, segment)
        setting.tell(each.name)
        signature = signature_of("bcast", (COMPARED + 1) * segment, inner)
        stages = in_turn(where, plan_of(where, each.rules, signature))[node]
        series[each.name] = {k: 1e6 * stages[k] for k in range(1, COMPARED + 1)}
    spreads = {name: _spread(list(points.values())[WARM:]) for name, points in series.items()}
    worst = max(spreads, key=spreads.__getitem__)
    return Computed(
        (Panel(f"sbib(i) on the leader of node {node}", "i", series, "time (us)"),),
        (
            Claim(
                "after the first few tasks, the cost of sbib is stable",
                f"from sbib({WARM + 1}) on, costs differ by {spreads[worst]:.1%} at most ({worst})",
                spreads[worst] <= 0.05,
            ),
        ),
    )  # fmt: skip


def _spread(values: Sequence[float]) -> float:
    return max(values) / min(values) - 1


# ---- figure 6: ib and ir ------------------------------------------------------------------------


IR, IBIR = "ir(0)", "ib(0) and ir(0) at once"


def both_ways(setting: Setting) -> Computed:
    """Figure 6: ib, ir, and both at once on each node's leader."""
    setting.expect(nodes=2)
    where, segment = _where(setting), max(setting.sizes)
    panels = []
    for name in ALGORITHMS:
        setting.tell(name)
        signature = signature_of("allreduce", segment, "SM")
        plan = plan_of(where, way(name, "SM", segment).rules, signature)
        parts = {IB: ("ib",), IR: ("ir",), IBIR: ("ib", "ir")}
        every = {key: at_once(where, plan, names) for key, names in parts.items()}
        series = {key: _microseconds(seconds) for key, seconds in every.items()}
        panels.append(Panel(name, "node", series, "time (us)"))
    last = [_last(panel) for panel in panels]
    found = [(a + b - together) / min(a, b) for a, b, together in last]
    told = ", ".join(f"{p.title} {o:.0%}" for p, o in zip(panels, found, strict=True))
    return Computed(
        tuple(panels),
        (Claim("ib and ir overlap to a high degree", f"of the shorter one: {told}",
               min(found) > 0.5),),
    )  # fmt: skip


def _last(panel: Panel) -> tuple[float, float, float]:
    """Return when the last leader has done ib, ir, and both."""
    ib, ir, both = (max(panel.series[key].values()) for key in (IB, IR, IBIR))
    return ib, ir, both


WHY = (
    "The paper names neither the machine of these figures nor the segments of figures 3 and 6; "
    "here they are those of figures 4 and 2. A leader that waits for a message has its processor "
    "for the other task, so that tasks overlap more than in the paper. Libnbc is the postal model "
    "of the whole collective, with one collective at a time."
)
FIGURES = {
    "han-2": Figure(PAPER, "tasks of a bcast on 6 nodes: ib, sb, both at once, sbib",
                    tasks_of_bcast, "stampede2", 6, 12, (64 * KiB,), WHY),
    "han-3": Figure(PAPER, "sbib(1) to sbib(8) of a bcast on one node leader", stages_of_bcast,
                    "stampede2", 6, 12, (64 * KiB,), WHY),
    "han-6": Figure(PAPER, "ib, ir, and both at once on 6 nodes", both_ways, "stampede2", 6, 12,
                    (64 * KiB,), WHY),
}  # fmt: skip
