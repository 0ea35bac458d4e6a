"""Allreduce in closed form, on the max-rate model: recursive doubling, SMP, NAP, and exchanges.

Source: Bienz, Olson, Gropp, Node-aware improvements to allreduce, section IV, equations 1 to 6.
Exchanges: the steps of Jocksch et al., sections 2.1.2 and 2.1.3, which state no times, on the same
model.
The start-up cost of a message is its latency plus the overhead on both sides. Inside a node, the
distance of messages doubles with each step, and a step costs as much as a message on the level that
it crosses. Numbers of steps are whole: a count between two powers takes as many steps as the higher
one (section III-A). Times are in seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from han.common.errors import ArgumentError
from han.config.machine import Link, MachineModel, ranks_on_a_rail
from han.submodules.exchange.factors import Phases


@dataclass(frozen=True)
class Costs:
    """The equations' parameters.

    Alphas are in seconds, betas and `gamma` in seconds a byte, rates in bytes a second.
    """

    alpha_local: float
    beta_local: float
    alpha: float
    pair: float  # R_b
    injection: float  # R_N, of one rail
    gamma: float
    rails: int = 1

    @classmethod
    def of(cls, machine: MachineModel, ppn: int) -> Costs:
        """Take the parameters of a machine with `ppn` ranks on a node."""
        steps = [_crossed(machine, 1 << k) for k in range(max(1, steps_of(ppn, 2)))]
        network = machine.levels[-1]
        return cls(
            sum(map(_start, steps)) / len(steps),
            sum(1 / link.bandwidth for link in steps) / len(steps),
            _start(network),
            network.bandwidth,
            machine.node.injection,
            1 / machine.node.reduce_rate,
            machine.node.rails,
        )

    def local(self, nbytes: int) -> float:
        """Return the time of a step inside a node."""
        return self.alpha_local + self.beta_local * nbytes

    def ports(self, nbytes: float, factor: int, ppn: int) -> float:
        """Return the time of a step in which each of `ppn` ranks sends to `factor` - 1 others."""
        return self.max_rate(nbytes * (factor - 1), ppn)

    def max_rate(self, nbytes: float, ppn: int) -> float:
        """Return the time of a step between nodes in which `ppn` ranks of each node send.

        It is equation 3 for the ranks that share the busiest rail.
        """
        sharing = ranks_on_a_rail(ppn, self.rails)
        return self.alpha + sharing * nbytes / min(self.injection, sharing * self.pair)


def max_rate(
    costs: Costs, local: tuple[int, float], across: tuple[int, float], combined: float, ppn: int
) -> float:
    """Return the time of equation 3 for a rank of a node whose `ppn` ranks do the same.

    `local` and `across` are the numbers of its messages inside the node and to other nodes, and
    their bytes together; `combined` are the bytes that it reduces. Without the limit of adapters it
    is equation 2, and equation 1 if both kinds of messages cost the same.
    """
    messages, nbytes = across
    return (
        costs.alpha_local * local[0]
        + costs.beta_local * local[1]
        + costs.alpha * (messages - 1 if messages else 0)
        + (costs.max_rate(nbytes, ppn) if messages else 0.0)
        + costs.gamma * combined
    )


def message(machine: MachineModel, link: Link, nbytes: int, ppn: int) -> float:
    """Return the time of one message on a level; between nodes `ppn` ranks of each node send one.

    Bienz et al., figure 5.
    """
    if link == machine.levels[-1]:
        return Costs.of(machine, ppn).max_rate(nbytes, ppn)
    return _start(link) + nbytes / link.bandwidth


def _crossed(machine: MachineModel, distance: int) -> Link:
    """Return the level inside a node that a step over `distance` ranks crosses."""
    for link in machine.levels[: machine.node_level]:
        if link.ranks is not None and 2 * distance <= link.ranks:
            return link
    return machine.levels[machine.node_level]


def _start(link: Link) -> float:
    return link.latency + 2 * link.overhead


def steps_of(count: int, base: int) -> int:
    """Return the least number of steps with ``base ** steps >= count``."""
    steps, held = 0, 1
    while held < count:
        steps, held = steps + 1, held * base
    return steps


def recursive_doubling(costs: Costs, nbytes: int, nodes: int, ppn: int) -> float:
    """Return the time of equation 4: every rank sends the whole message in every step."""
    local, across = steps_of(ppn, 2), steps_of(nodes, 2)
    return (
        costs.local(nbytes) * local
        + costs.max_rate(nbytes, ppn) * across
        + costs.gamma * nbytes * (local + across)
    )


def smp(costs: Costs, nbytes: int, nodes: int, ppn: int) -> float:
    """Return the time of equation 5: one rank of each node sends to other nodes, over one rail."""
    local, across = steps_of(ppn, 2), steps_of(nodes, 2)
    return (
        costs.local(nbytes) * local
        + costs.max_rate(nbytes, 1) * across
        + costs.gamma * nbytes * (local + across)
    )


def nap(costs: Costs, nbytes: int, nodes: int, ppn: int) -> float:
    """Return the time of equation 6: in log_ppn(nodes) steps every rank sends to another node.

    There is an allreduce inside the node before the first of these steps and after each of them:
    log2(nodes * ppn) local steps if `nodes` is a power of `ppn`. Raises ArgumentError for 1 rank
    a node on several nodes.
    """
    if ppn == 1 < nodes:
        raise ArgumentError(f"NAP with 1 rank a node on {nodes} nodes: 2 or more a node expected")
    across = steps_of(nodes, ppn)
    local = steps_of(ppn, 2) * (1 + across)
    return (
        costs.local(nbytes) * local
        + costs.max_rate(nbytes, ppn) * across
        + costs.gamma * nbytes * (local + across)
    )


def exchange(costs: Costs, nbytes: int, ppn: int, phases: Phases) -> float:
    """Return the time of an exchange between nodes in which `ppn` ranks of each node take part.

    A step of factor f sends f - 1 messages at the same time (Jocksch et al., section 2.1.3: ports),
    which share the adapter. Each step of the reduce-scatter leaves one part in f of the message;
    the steps of the middle send that part as it is, and the allgather's parts grow by f.
    """
    seconds, part = 0.0, float(nbytes)
    for factor in phases.scatter:
        part /= factor
        seconds += costs.ports(part, factor, ppn) + costs.gamma * part * (factor - 1)
    for factor in phases.middle:
        seconds += costs.ports(part, factor, ppn) + costs.gamma * part * (factor - 1)
    for factor in phases.gather:
        seconds += costs.ports(part, factor, ppn)
        part *= factor
    return seconds


FORMULAS: dict[str, Callable[[Costs, int, int, int], float]] = {
    "recursive doubling": recursive_doubling,
    "SMP": smp,
    "NAP": nap,
}


def crossover(
    costs: Costs, first: str, second: str, nodes: int, ppn: int, most: int = 1 << 24
) -> int:
    """Return the most bytes, up to `most`, at which `first` is not slower; 0 if there are none.

    Bisection: it assumes that `first` is the faster one below a single crossover.
    """

    def quicker(nbytes: int) -> bool:
        times = (FORMULAS[name](costs, nbytes, nodes, ppn) for name in (first, second))
        return next(times) <= next(times)

    low, high = 0, most if quicker(1) else 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if quicker(middle) else (low, middle)
    return low
