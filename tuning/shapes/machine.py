"""A machine model for the costs of tasks: its values are those that explain the costs best.

Costs on few ranks may leave some values open, so several first models are fitted, and all that
explain the costs are returned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from han.config.config import Config
from han.config.machine import MachineModel, load_machine
from han.submodules.registry import plan_of_choice
from han.tasks.call import call_signature
from han.tasks.lower import lower
from han.tuning import fit
from han.tuning.built_in.choosing import NodeTraits
from han.tuning.prediction import Where
from han.tuning.rules import RuleTable
from han.tuning.search.portfolio import calls_in_a_row
from han.tuning.shapes.costs import chosen_costs, usable
from han.tuning.tuned.tasks import TaskCost

FIRST: Mapping[str, Mapping[str, str]] = {  # the networks with which the fit begins, by name
    "ethernet": {"latency": "20us", "overhead": "5us", "eager": "1MiB"},
    "fabric": {"latency": "2us", "overhead": "500ns", "eager": "64KiB"},
}
INSIDE = {
    "name": "node", "latency": "500ns", "bandwidth": "8GB/s", "overhead": "200ns", "flag": "150ns",
}  # fmt: skip
NODE = {
    "level": "node", "copy": "10GB/s", "reduce": "8GB/s", "memory": "30GB/s", "operation": "30ns",
    "call": "500ns",
}  # fmt: skip
RATE, LEAST = 1000.0, 3000.0  # MB/s of an adapter of unknown rate; least bandwidth of a pair
SWITCH = "5us"  # from rank to rank of a processor that ranks share
AS_GOOD = 1.25, 0.02  # times the error of the best fit, and added: such a model explains costs too


@dataclass(frozen=True)
class Fitted:
    """A machine model that explains costs; `error` is the mean of ``|log(simulated / measured)|``.

    `in_a_row`: the costs are of calls back to back, and so are those of predictions.
    """

    name: str
    machine: MachineModel
    error: float
    in_a_row: bool = False


def fitted(
    costs: Sequence[TaskCost], cores: int, link: float, tell: Callable[[], None] = lambda: None
) -> list[Fitted]:
    """Return the machine models that explain some costs about as well as the best one, this first.

    `cores` and `link`, the adapter's rate in Mbit/s, are those of the fingerprint; 0 is unknown.
    `tell` is called before each of ``fit.ROUNDS`` rounds of each of the first models. No model is
    returned if there are no costs.
    """
    some = chosen_costs(usable(costs))
    found = []
    for name, network in FIRST.items():
        first = _first(network, cores, link, any(one.together for one in some))
        cases = _cases(some, first)
        if cases:
            machine, error = fit.fitted(first, cases, tell)
            found.append(Fitted(name, machine, error, any(one.in_a_row for one in some)))
    found.sort(key=lambda one: one.error)
    times, more = AS_GOOD
    return [one for one in found if one.error <= times * found[0].error + more]


def _first(network: Mapping[str, str], cores: int, link: float, together: bool) -> MachineModel:
    """Return the model with which a fit begins."""
    rate = link / 8 or RATE
    bandwidth = f"{max(LEAST, rate):.6f}MB/s"
    node: dict[str, Any] = {**NODE, "injection": f"{rate:.6f}MB/s", "together": together}
    node |= {"switch": SWITCH} if together else {}
    node |= {"cores": cores} if cores else {}
    between = {"name": "network", "copying": "5GB/s", "bandwidth": bandwidth, **network}
    return load_machine({
        "about": "fitted to costs of tasks", "nodes": 2, "ppn": 1, "levels": [INSIDE, between],
        "node": node,
    })  # fmt: skip


def _cases(costs: Iterable[TaskCost], machine: MachineModel) -> list[fit.Case]:
    """Return the programs of the calls of some costs, without those that cannot be planned."""

    @cache
    def place(nodes: int, ppn: int) -> tuple[Where, RuleTable]:
        where = Where(machine, nodes, ppn)
        return where, RuleTable(None, where.imagined().topology(Config()), NodeTraits())

    found = []
    for one in costs:
        where, rules = place(*one.shape)
        call = call_signature(one.collective, one.nbytes)
        choice = rules.made(one.use, "", call)
        if rules.objection(call, choice, blocking=False) is None:
            plan = plan_of_choice(rules.topology, call, choice, Config().memory)
            programs = [lower(plan, rank) for rank in range(where.size)]
            runs = calls_in_a_row(one.nbytes) if one.in_a_row else 1
            found.append(fit.Case(plan, programs, where, one.seconds, runs))
    return found
