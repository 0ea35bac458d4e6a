"""What several rounds of a calibration say together: the profile, and why it is of no use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median, quantiles

from han.tuning.measured import DISTURBED, FEWEST_ROUNDS, SLOW
from han.tuning.profile import NETWORK, TELLING, TIMES, Profile

TOGETHER = ("injection", "memory")  # each rank tells its own share
AT_ONCE = ("injection", "copy", "reduce")  # by all ranks of a node, so their number counts
MEASURED = Profile._fields[1:]
Rounds = Sequence[Sequence[Profile]]  # of each round, of each rank


@dataclass(frozen=True)
class Combined:
    """A profile, how far apart its values were, and what speaks against it.

    A spread is the ratio of the upper to the lower quartile of the rounds.
    """

    profile: Profile
    spreads: Mapping[str, float]
    problems: tuple[str, ...] = ()


def combined(
    rounds: Rounds, nodes: Sequence[Sequence[int]], cores: int, crowded: bool = False
) -> Combined:
    """Combine what the ranks of some nodes measured in each round.

    `crowded`: ranks outnumber processors, so times depend on where the system lets ranks run.
    """
    values, spreads, problems = {}, {}, list[str]()
    if len(rounds) < FEWEST_ROUNDS:
        problems.append(f"only {len(rounds)} of at least {FEWEST_ROUNDS} rounds fit into the time")
    for name in MEASURED:
        series = {k: _series(rounds, ranks, name) for k, ranks in enumerate(nodes)}
        series = {k: some for k, some in series.items() if some}
        if not series:
            continue
        each = _each_round(rounds, nodes, name)
        values[name], spreads[name] = median(each), _spread(each)
        if name in TELLING and not (crowded and name in TIMES):
            problems += [*_disturbed(name, each), *_slow(name, series, nodes)]
    profile = Profile(cores=cores, **values) if values else Profile()
    return Combined(profile, spreads, tuple(problems))


def _of_node(row: Sequence[Profile], ranks: Sequence[int], name: str) -> float:
    """Return the value of a node in a round; 0: its ranks did not measure it."""
    found: list[float] = [value for rank in ranks if (value := getattr(row[rank], name))]
    if not found:
        return 0.0
    return len(found) * min(found) if name in TOGETHER else median(found)


def _series(rounds: Rounds, ranks: Sequence[int], name: str) -> list[float]:
    return [value for row in rounds if (value := _of_node(row, ranks, name))]


def _each_round(rounds: Rounds, nodes: Sequence[Sequence[int]], name: str) -> list[float]:
    """Return the median of the nodes in each round in which some measured a value."""
    every = ([v for ranks in nodes if (v := _of_node(row, ranks, name))] for row in rounds)
    return [median(found) for found in every if found]


def _spread(values: Sequence[float]) -> float:
    if len(values) < 2:
        return 1.0
    low, _, high = quantiles(values, n=4, method="inclusive")
    return high / low


def _disturbed(name: str, values: Sequence[float]) -> Iterator[str]:
    if _spread(values) > DISTURBED:
        ends = f"{min(values):.4g} to {max(values):.4g} {unit_of(name)}"
        yield f"disturbed: {name} was {ends} in {len(values)} rounds"


def _slow(
    name: str, series: Mapping[int, Sequence[float]], nodes: Sequence[Sequence[int]]
) -> Iterator[str]:
    """Yield the nodes that were slower than others in all rounds.

    Between two nodes nobody knows whose link is slow.
    """
    if name in AT_ONCE:
        most = max(len(nodes[k]) for k in series)
        series = {k: some for k, some in series.items() if len(nodes[k]) == most}
    if len(series) < (3 if name in NETWORK else 2):
        return
    better = min if name in TIMES else max
    best = {k: better(some) for k, some in series.items()}
    usual = median(best.values()) if len(best) > 2 else better(best.values())
    for k, value in best.items():
        ratio = value / usual if name in TIMES else usual / value
        if ratio > SLOW:
            told = f"{value:.4g} {unit_of(name)}, {usual:.4g} elsewhere"
            yield f"the node of rank {nodes[k][0]} is slow: {name} {told}"


def unit_of(name: str) -> str:
    """Return the unit of a value."""
    return "us" if name in TIMES else "MB/s"
