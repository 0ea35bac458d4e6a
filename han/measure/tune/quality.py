"""Strategies compared with exhaustive search: the quality of their choices, and their cost.

Source: Luo et al., HAN, section IV-B, figures 7 to 9.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import zip_longest
from typing import Any

import numpy as np
from mpi4py import MPI

from han.common.grouped import grouped
from han.common.units import format_size
from han.measure.bench_calls import Case
from han.measure.measured import LEAST_POWER, MOST_POWER
from han.measure.tune.distinct import Memory
from han.measure.tune.lab import Lab
from han.measure.tune.session import tuned_config
from han.measure.tune.tuner import Input, Plans, served, sparse_first
from han.tasks.choice import Choice
from han.tasks.compositions import TREE
from han.tasks.signature import Signature
from han.tuning.costs.model import basis
from han.tuning.search import task
from han.tuning.search.results import Found
from han.tuning.search.space import space_of
from han.tuning.search.strategies import STRATEGIES, run

YARDSTICK = "exhaustive"
USUAL = ("task", "task+heuristic")  # compared with it, if a user names no other
ENOUGH = 1e9  # seconds: no limit


@dataclass(frozen=True)
class PredictedCandidate:
    """A candidate with its measured and its predicted seconds, and what the prediction is from."""

    choice: str
    measured: float
    predicted: float
    basis: str = ""

    @property
    def error(self) -> float:
        """The error of the prediction as a share of the measured time."""
        return abs(self.predicted - self.measured) / self.measured


@dataclass(frozen=True)
class QualityRow:
    """One input: by strategy, its choice, how many times as long that takes, and what it cost.

    `ratio` compares with the choice of exhaustive search. Both were measured again, in turns, so it
    does not matter that the fastest of many measurements is one of the lucky ones. `seconds` are
    those of the search, `measured` the candidates that it measured as whole collectives. `spent`
    are the seconds of all of this. `limited` are the strategies whose search ran out of time.
    """

    collective: str
    nbytes: int
    candidates: int
    choice: dict[str, str]
    ratio: dict[str, float]
    seconds: dict[str, float]
    measured: dict[str, int]
    predictions: tuple[PredictedCandidate, ...] = ()
    spent: float = 0.0
    limited: tuple[str, ...] = ()

    @property
    def input(self) -> Input:
        """The collective and its size."""
        return Input(self.collective, self.nbytes)

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> QualityRow:
        """Return the row of plain data."""
        predictions = tuple(PredictedCandidate(**one) for one in record["predictions"])
        limited = tuple(record.get("limited", ()))
        return cls(**{**record, "predictions": predictions, "limited": limited})

    def record(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self)


@dataclass(frozen=True)
class QualityRows:
    """The rows of a comparison in the order of its inputs, and the inputs that were left out."""

    rows: tuple[QualityRow, ...]
    left: tuple[Input, ...]


Keep = Callable[[QualityRow, QualityRows], None]


def compare(
    comm: MPI.Intracomm, config: Any, plans: Plans, strategies: Sequence[str] = USUAL,
    fresh: bool = False, known: Sequence[QualityRow] = (),
    step: Callable[[str], None] | None = None, keep: Keep | None = None,
    warn: Callable[[str], None] = lambda text: None,
) -> QualityRows:  # fmt: skip
    """Search inputs exhaustively and by each strategy within the budget; collective.

    A strategy begins without measurements, and knows later what it has measured for earlier inputs.
    `known` are the rows of an interrupted run. `step` is called before each search, `keep` with
    each new row and all rows so far, `warn` with what cannot be compared.
    """
    case = partial(Case, dtype=plans.dtype, op=plans.op)
    with Lab(comm, tuned_config(config), case, fresh, plans.shared) as lab:
        plans, _ = served(lab, plans, warn)
        memories = {name: lab.memory() for name in compared(strategies)}
        measure = partial(_measured, lab, plans, memories, step)
        return row_by_row(plans, measure, known, keep, lab.control.bcast)


def row_by_row(
    plans: Plans, measure: Callable[[Input], QualityRow], known: Sequence[QualityRow] = (),
    keep: Keep | None = None, agreed: Callable[[Any], Any] = lambda mine: mine,
    clock: Callable[[], float] = time.monotonic,
) -> QualityRows:  # fmt: skip
    """Measure inputs as long as they fit into the budget; `agreed` returns rank 0's value.

    The first input is measured in any case. One that does not fit is asked about again after
    others: they tell more about its time.
    """
    rows = {row.input: row for row in known}
    todo = [one for one in spread(plans.inputs) if one not in rows]
    end, left = math.inf if plans.budget is None else clock() + plans.budget, math.inf
    while todo:
        spent = {one: row.spent for one, row in rows.items()}
        one = agreed(next((one for one in todo if expected(one, spent) <= left), None))
        if one is None:
            break
        todo.remove(one)
        rows[one] = measure(one)
        if keep is not None:
            keep(rows[one], in_order(plans, rows.values()))
        left = end - clock()
    return in_order(plans, rows.values())


def in_order(plans: Plans, rows: Iterable[QualityRow]) -> QualityRows:
    """Return rows sorted by collective, in the order of the inputs, and by size."""
    names = [one.collective for one in plans.inputs]
    place = {name: k for k, name in enumerate(dict.fromkeys(names))}
    ordered = sorted(rows, key=lambda row: (place.get(row.collective, len(place)), row.nbytes))
    done = {row.input for row in ordered}
    return QualityRows(tuple(ordered), tuple(one for one in plans.inputs if one not in done))


def compared(strategies: Sequence[str]) -> tuple[str, ...]:
    """Return exhaustive search and other strategies, each of them once."""
    return tuple(dict.fromkeys([YARDSTICK, *strategies]))


@dataclass(frozen=True)
class Searched:
    """What one strategy found for one input, the seconds it took, and what predictions are from."""

    found: Found
    seconds: float
    bases: Mapping[Choice, str]

    @property
    def best(self) -> Choice:
        """The choice."""
        return self.found.measured[0].choice


def _measured(
    lab: Lab, plans: Plans, memories: Mapping[str, Memory],
    step: Callable[[str], None] | None, one: Input,
) -> QualityRow:  # fmt: skip
    began = time.monotonic()
    signature, searched = plans.signature(one), {}
    for name, memory in memories.items():
        if step is not None:
            step(f"{name}: {one}")
        lab.recall(memory)
        searched[name] = _search(lab, signature, name, plans)
    row = _row(lab, signature, searched)
    return replace(row, spent=lab.control.bcast(time.monotonic() - began))


def _search(lab: Lab, signature: Signature, name: str, plans: Plans) -> Searched:
    began = time.monotonic()
    lab.limit(ENOUGH if plans.limit is None else plans.limit)
    space = space_of(lab.rules, signature, plans.limits, lab.grouping(signature))
    found = run(STRATEGIES[name], lab, signature, space, plans.machine)
    seconds = lab.control.bcast(time.monotonic() - began)
    modelled = STRATEGIES[name].search is task.search
    bases = {
        one.choice: basis(lab.pipeline(signature, one.choice), lab.costs)
        for one in found.results
        if modelled and one.predicted is not None
    }
    return Searched(found, seconds, bases)


def _row(lab: Lab, signature: Signature, searched: Mapping[str, Searched]) -> QualityRow:
    """Measure the choices of all strategies in turns."""
    best = {name: one.best for name, one in searched.items()}
    names = {choice: name for name, choice in reversed(best.items())}
    ordered = {names[choice]: choice for choice in dict.fromkeys(best.values())}
    lab.give(ENOUGH)
    times = lab.duel(signature, ordered)
    medians = {name: times[names[choice]].median for name, choice in best.items()}
    everything = searched[YARDSTICK].found
    return QualityRow(
        signature.collective,
        signature.nbytes,
        len(everything.results),
        {name: named(choice) for name, choice in best.items()},
        {name: median / medians[YARDSTICK] for name, median in medians.items()},
        {name: one.seconds for name, one in searched.items()},
        {name: len(one.found.measured) for name, one in searched.items()},
        tuple(_predictions(everything, searched)),
        limited=tuple(name for name, one in searched.items() if not one.found.complete),
    )


def _predictions(
    everything: Found, searched: Mapping[str, Searched]
) -> Iterator[PredictedCandidate]:
    """Yield the candidates that exhaustive search measured, and the first other one predicted."""
    told = next((one for one in searched.values() if one.bases), None)
    if told is None:
        return
    predicted = {one.choice: one.predicted for one in told.found.results}
    for one in everything.measured:
        seconds = predicted.get(one.choice)
        if seconds is not None and one.measured is not None:
            yield PredictedCandidate(
                named(one.choice), one.measured.median, seconds, told.bases[one.choice]
            )


def named(choice: Choice) -> str:
    """Return ``sm flat (chunk 16KiB) < adapt chain; segment 64KiB``, other compositions first."""
    levels = "" if choice.composition == TREE else f"{choice.composition}: "
    levels += " < ".join(level.describe() for level in choice.levels)
    segment = "" if choice.segment is None else f"; segment {format_size(choice.segment)}"
    return levels + segment + ("; lockstep" if choice.schedule == "lockstep" else "")


# ---- all inputs together --------------------------------------------------------------------


@dataclass(frozen=True)
class Summary:
    """What a strategy is worth: shares of inputs, the worst ratio, and its share of the time."""

    strategy: str
    within_5: float
    within_15: float
    worst: float
    seconds: float
    cost: float  # as a share of the time of exhaustive search


def summaries(rows: Sequence[QualityRow]) -> list[Summary]:
    """Return the summary of each strategy.

    Where exhaustive search measured a sample of the candidates, all of them would have taken as
    many times longer as there are more.
    """
    whole = sum(map(_exhaustive_seconds, rows))
    found = []
    for name in rows[0].ratio:
        ratios = [row.ratio[name] for row in rows]
        seconds = sum(row.seconds[name] for row in rows)
        near, far = (sum(r <= most for r in ratios) / len(ratios) for most in (1.05, 1.15))
        found.append(Summary(name, near, far, max(ratios), seconds, seconds / whole))
    return found


def _exhaustive_seconds(row: QualityRow) -> float:
    seconds = row.seconds[YARDSTICK]
    if YARDSTICK not in row.limited:
        return seconds
    return seconds * row.candidates / row.measured[YARDSTICK]


def errors(rows: Iterable[QualityRow]) -> list[tuple[QualityRow, PredictedCandidate]]:
    """Return all predictions with their rows, the worst first."""
    every = [(row, one) for row in rows for one in row.predictions]
    return sorted(every, key=lambda pair: -pair[1].error)


def spread(inputs: Sequence[Input]) -> list[Input]:
    """Return inputs in turns of their collectives, of each one sizes far apart before others."""
    ordered = sparse_first(inputs)
    each = grouped((one.collective, one) for one in ordered)
    return [one for turn in zip_longest(*each.values()) for one in turn if one is not None]


def expected(one: Input, spent: Mapping[Input, float]) -> float:
    """Return about how many seconds an input takes, from those that are done; 0.0: unknown.

    A collective of which no size is known takes as long as the slowest of the others.
    """
    sizes: dict[str, dict[int, float]] = {}
    for known, seconds in spent.items():
        sizes.setdefault(known.collective, {})[known.nbytes] = seconds
    mine = sizes.get(one.collective)
    asked = sizes.values() if mine is None else [mine]
    return max((trend(known, one.nbytes) for known in asked), default=0.0)


def trend(known: Mapping[int, float], nbytes: int) -> float:
    """Return the seconds of a size from those of other sizes; between two of them by powers."""
    sizes = np.log(sorted(known))
    seconds = np.log([known[size] for size in sorted(known)])
    beyond = max(0.0, math.log(nbytes) - sizes[-1])
    power = (seconds[-1] - seconds[-2]) / (sizes[-1] - sizes[-2]) if len(sizes) > 1 else LEAST_POWER
    more = beyond * min(MOST_POWER, max(LEAST_POWER, power))
    return math.exp(np.interp(math.log(nbytes), sizes, seconds) + more)
