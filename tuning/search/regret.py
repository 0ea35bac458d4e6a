"""Regret: how many times as long as the best choice of the simulator takes what han chooses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import geometric_mean
from typing import Any

from han.common.tables import shown_table
from han.common.units import format_size, format_us
from han.tuning.built_in.machine_classes import class_rows
from han.tuning.search.limits import Limits
from han.tuning.search.portfolio import Case, Laboratory, composed, improved

SHARE = 0.95  # of all cases: below the percentile that is told


@dataclass(frozen=True)
class Regret:
    """Predicted seconds: of the choice, of the built-in one without a class, and of the best."""

    machine: str
    case: Case
    chosen: float
    built_in: float
    best: float
    winner: str  # the composition of the best

    @property
    def now(self) -> float:
        """The regret of the choice."""
        return self.chosen / self.best

    @property
    def before(self) -> float:
        """The regret of the built-in choice."""
        return self.built_in / self.best

    def record(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {**asdict(self), "case": self.case._asdict(), "now": self.now, "before": self.before}


def regret_of(lab: Laboratory, case: Case, limits: Limits | None = None) -> Regret:
    """Return the regret of a case.

    The best is that of the compositions and of all rows of the class; with `limits`, of what a
    search finds, too.
    """
    rules, call = lab.rules(case), lab.call(case)
    rows = class_rows(rules.topology, lab.traits(case))
    uses = [row.use for row in rows if case.collective in row.when.collective and row.use]
    others = [rules.made(use, "", call) for use in uses]
    usual, choice = lab.built_in(case), lab.choice(case)
    known = [(lab.seconds(case, one), one.composition) for one in (usual, choice, *others)]
    built_in, chosen = known[0][0], known[1][0]
    assert built_in is not None
    assert chosen is not None
    ranked = composed(lab, case) if limits is None else improved(lab, case, limits)
    seconds, winner = min(
        [(s, one.composition) for s, one in ranked] + [(s, name) for s, name in known if s]
    )
    return Regret(lab.machine.about, case, chosen, built_in, seconds, winner)


def summary(found: Sequence[Regret]) -> str:
    """Return a table of all cases, and geometric mean, percentile and worst."""
    rows = [
        (
            one.case.collective, f"{one.case.nodes} x {one.case.ppn}",
            format_size(one.case.nbytes), format_us(one.chosen * 1e6), format_us(one.best * 1e6),
            one.winner, f"{one.before:.2f}", f"{one.now:.2f}",
        )
        for one in found
    ]  # fmt: skip
    heads = ["call", "nodes x ppn", "size", "us", "best us", "best is a", "built-in", "regret"]
    lines = [shown_table("", heads, rows, left=["call", "best is a"])]
    for name in ("before", "now"):
        values = sorted(getattr(one, name) for one in found)
        mean = geometric_mean(values)
        high = values[min(len(values) - 1, int(SHARE * len(values)))]
        told = "built-in choices" if name == "before" else "with classes of machines"
        lines.append(
            f"# {told}: geometric mean {mean:.2f}, 95th percentile {high:.2f}, "
            f"worst {values[-1]:.2f} of {len(values)}"
        )
    return "\n".join(lines)
