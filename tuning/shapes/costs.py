"""Which costs of tasks tell of other numbers of nodes and ranks: few that differ much."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b

from han.common.grouped import grouped
from han.tuning.search.portfolio import OWN
from han.tuning.tuned.tasks import TaskCost

LEVELS = ("node", "network")  # of the default configuration, for which there are models
UNIT = 8  # bytes of an element of the calls that are simulated
MOST = 180  # costs of a run that are kept, and costs that are simulated
LARGEST = 512 << 10  # bytes of them


def usable(costs: Iterable[TaskCost]) -> list[TaskCost]:
    """Return the costs that a model can explain: between nodes, on the levels that models have.

    What the MPI library carries out has no model that was measured.
    """
    return [
        one for one in costs
        if one.nodes > 1 and one.levels == LEVELS and not one.nbytes % UNIT
        and all(level.submodule in OWN for level in one.use.levels.values())
    ]  # fmt: skip


def chosen_costs(costs: Sequence[TaskCost], most: int = MOST) -> list[TaskCost]:
    """Return so many costs that differ as much as possible: each call and way in turn."""
    some = sorted((c for c in costs if c.nbytes <= LARGEST), key=_digest)
    kinds = grouped((_kind(one), one) for one in some).values()
    rounds = [(k, kind[k]) for kind in kinds for k in range(len(kind))]
    return [one for _, one in sorted(rounds, key=lambda pair: pair[0])[:most]]


def _kind(one: TaskCost) -> tuple[object, ...]:
    outermost = one.use.levels.get(one.levels[-1])
    algorithm = None if outermost is None else outermost.algorithm
    return one.shape, one.collective, one.nbytes, one.use.composition, algorithm


def _digest(one: TaskCost) -> bytes:
    return blake2b(repr(one.call).encode(), digest_size=8).digest()
