"""The table of strategies: a new one is a function and a row here."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import NamedTuple

from han.config.machine import MachineModel
from han.tasks.choice import Choice
from han.tasks.signature import Signature
from han.tasks.simulate import simulate
from han.tuning.search import task
from han.tuning.search.heuristics import prune
from han.tuning.search.race import among_winners, by_prediction, race
from han.tuning.search.results import Found, Lab
from han.tuning.search.space import ALIKE, Space

Search = Callable[[Lab, Signature, Space], Found]


class Strategy(NamedTuple):
    """A strategy; `prunes`: heuristics prune the space. `models`: it needs a machine model.

    `remembers`: between two sizes only what won at both of them is measured.
    """

    search: Search | None
    prunes: bool = False
    models: bool = False
    remembers: bool = False


def exhaustive(lab: Lab, signature: Signature, space: Space) -> Found:
    """Measure whole collectives with all candidates: the yardstick of the other strategies."""
    results, complete = race(lab, signature, space.candidates)
    return Found(tuple(results), space.pruned, complete)


STRATEGIES = {
    "exhaustive": Strategy(exhaustive),  # measure every candidate of every input
    "heuristic": Strategy(exhaustive, prunes=True),  # measure what heuristics leave over
    # Predict from the costs of tasks, measure the best; the same for what heuristics leave over.
    "task": Strategy(task.search, remembers=True),
    "task+heuristic": Strategy(task.search, prunes=True, remembers=True),
    # Predict on a machine model, measure the best.
    "simulate": Strategy(None, prunes=True, models=True),
}


def run(
    strategy: Strategy, lab: Lab, signature: Signature, space: Space,
    machine: MachineModel | None = None,
) -> Found:  # fmt: skip
    """Search the space of a call by a strategy."""
    if strategy.prunes:
        topology = lab.plan(signature, space.candidates[0]).topology
        space = prune(space, signature, topology)
    if not strategy.remembers:
        return _search(strategy, lab, signature, space, machine)
    found = among_winners(lab, signature, space)
    found = found or _search(strategy, lab, signature, space, machine)
    if found.complete:
        times = {r.choice: r.measured.median for r in found.results if r.measured is not None}
        lab.winners.add(signature, times)
    return found


def _search(
    strategy: Strategy, lab: Lab, signature: Signature, space: Space, machine: MachineModel | None
) -> Found:
    """Search a space among all candidates that run programs of their own."""
    space = mixed(_distinct(lab, signature, space))
    if strategy.search is not None:
        return strategy.search(lab, signature, space)
    assert machine is not None, "a strategy without a search needs a machine model"
    return _modelled(lab, signature, space, machine)


def _modelled(lab: Lab, signature: Signature, space: Space, machine: MachineModel) -> Found:
    """Predict all candidates on a described machine, and measure only the best ones.

    A candidate whose programs the simulator cannot run has no prediction.
    """
    predicted: dict[Choice, float | None] = {}
    topology = lab.plan(signature, space.candidates[0]).topology  # a flat one's has no nodes
    place = machine.place(topology.nodes, topology.ppn)
    for choice in space.candidates:
        plan = lab.plan(signature, choice)
        try:
            predicted[choice] = simulate(plan, machine, place).seconds
        except (RuntimeError, ValueError, KeyError):
            predicted[choice] = None
    results, complete = by_prediction(lab, signature, predicted, space.candidates[0])
    return Found(tuple(results), space.pruned, complete)


def _distinct(lab: Lab, signature: Signature, space: Space) -> Space:
    kept = tuple(lab.distinct(signature, space.candidates))
    if len(kept) == len(space.candidates):
        return space
    return Space(kept, tuple(dict.fromkeys([*space.pruned, ALIKE])))


def mixed(space: Space) -> Space:
    """Return the candidates behind the built-in one in an order that has nothing to do with them.

    Those that a limited time suffices for are then a random sample. The order of two candidates is
    the same for all sizes and collectives, so costs of tasks are used again for them.
    """
    first, *others = space.candidates
    return Space((first, *sorted(others, key=_digest)), space.pruned)


def _digest(choice: Choice) -> bytes:
    return blake2b(repr(choice).encode(), digest_size=8).digest()
