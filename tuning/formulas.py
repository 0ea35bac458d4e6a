"""Allreduce in closed form, on the max-rate model: recursive doubling, SMP and NAP.

Source: Bienz, Olson, Gropp, Node-aware improvements to allreduce, section IV, equations 3 to 6.
The start-up cost of a message is its latency plus the overhead on both sides. Inside a node, the
distance of messages doubles with each step, and a step costs as much as a message on the level that
it crosses. Numbers of steps are whole: a count between two powers takes as many steps as the higher
one (section III-A). Times are in seconds.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from han.common.errors import ArgumentError
from han.config.machine import Link, MachineModel, ranks_on_a_rail
from han.tasks.nap import steps_of


@dataclass(frozen=True)
class MaxRate:
    """The parameters of the max-rate model.

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
    def of(cls, machine: MachineModel, ppn: int) -> MaxRate:
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

    def max_rate(self, nbytes: float, ppn: int) -> float:
        """Return the time of a step between nodes in which `ppn` ranks of each node send.

        It is equation 3 for the ranks that share the busiest rail.
        """
        sharing = ranks_on_a_rail(ppn, self.rails)
        return self.alpha + sharing * nbytes / min(self.injection, sharing * self.pair)


def message(machine: MachineModel, link: Link, nbytes: int, ppn: int) -> float:
    """Return the time of one message on a level; between nodes `ppn` ranks of each node send one.

    Bienz et al., figure 5.
    """
    if link == machine.levels[-1]:
        return MaxRate.of(machine, ppn).max_rate(nbytes, ppn)
    return _start(link) + nbytes / link.bandwidth


def _crossed(machine: MachineModel, distance: int) -> Link:
    """Return the level inside a node that a step over `distance` ranks crosses."""
    for link in machine.levels[: machine.node_level]:
        if link.ranks is not None and 2 * distance <= link.ranks:
            return link
    return machine.levels[machine.node_level]


def _start(link: Link) -> float:
    return link.latency + 2 * link.overhead


def recursive_doubling(costs: MaxRate, nbytes: int, nodes: int, ppn: int) -> float:
    """Return the time of equation 4: every rank sends the whole message in every step."""
    return _in_steps(costs, nbytes, steps_of(ppn, 2), steps_of(nodes, 2), ppn)


def smp(costs: MaxRate, nbytes: int, nodes: int, ppn: int) -> float:
    """Return the time of equation 5: one rank of each node sends to other nodes, over one rail."""
    return _in_steps(costs, nbytes, steps_of(ppn, 2), steps_of(nodes, 2), 1)


def nap(costs: MaxRate, nbytes: int, nodes: int, ppn: int) -> float:
    """Return the time of equation 6: in log_ppn(nodes) steps every rank sends to another node.

    There is an allreduce inside the node before the first of these steps and after each of them:
    log2(nodes * ppn) local steps if `nodes` is a power of `ppn`. Raises ArgumentError for 1 rank
    a node on several nodes.
    """
    if ppn == 1 < nodes:
        raise ArgumentError(f"NAP with 1 rank a node on {nodes} nodes: 2 or more a node expected")
    across = steps_of(nodes, ppn)
    return _in_steps(costs, nbytes, steps_of(ppn, 2) * (1 + across), across, ppn)


def _in_steps(costs: MaxRate, nbytes: int, local: int, across: int, senders: int) -> float:
    """Return the time of steps in which a rank sends the message and combines another one.

    Between nodes, so many ranks of each node send.
    """
    combined = costs.gamma * nbytes * (local + across)
    return costs.local(nbytes) * local + costs.max_rate(nbytes, senders) * across + combined


FORMULAS: dict[str, Callable[[MaxRate, int, int, int], float]] = {
    "recursive doubling": recursive_doubling,
    "SMP": smp,
    "NAP": nap,
}


def crossover(costs: MaxRate, first: str, second: str, nodes: int, ppn: int) -> int:
    """Return the most bytes, up to 16 MiB, at which `first` is faster; 0 if there are none."""

    def seconds(name: str, nbytes: int) -> float:
        return FORMULAS[name](costs, nbytes, nodes, ppn)

    return faster_up_to(partial(seconds, first), partial(seconds, second))


def faster_up_to(
    first: Callable[[int], float], second: Callable[[int], float], most: int = 1 << 24
) -> int:
    """Return the most bytes, up to `most`, at which `first` takes less time; 0 if there are none.

    Bisection: it assumes that `first` is the faster one below a single crossover.
    """

    def slower(nbytes: int) -> bool:
        return first(nbytes) >= second(nbytes)

    return 0 if slower(1) else bisect_left(range(1, most + 1), True, key=slower)
