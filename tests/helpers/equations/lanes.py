"""Lanes in closed form, on the max-rate model: all ranks of a node send to other nodes.

Inside a node a message is cut into a share for each rank, by halving. Each share goes between nodes
in a lane of its own. Then the shares are gathered, by doubling. Lanes share their node's rails.

Source: Jocksch et al., section 2 (nested reduce-scatter and allgather), and Träff, which state no
times for rails; the costs of a step are those of Bienz et al., equation 3. Times are in seconds.
"""

from equations.max_rate import exchange
from han.submodules.parts.factors import both_ways, phases_of, recursive_factors
from han.tuning.formulas import MaxRate, steps_of


def cut(costs: MaxRate, nbytes: float, ppn: int) -> float:
    """Return the time of a scatter or an allgather inside a node: each step halves what is sent."""
    return steps_of(ppn, 2) * costs.alpha_local + costs.beta_local * nbytes * (ppn - 1) / ppn


def combined(costs: MaxRate, nbytes: float, ppn: int) -> float:
    """Return the time of a reduce-scatter inside a node."""
    return cut(costs, nbytes, ppn) + costs.gamma * nbytes * (ppn - 1) / ppn


def allreduce(costs: MaxRate, nbytes: int, nodes: int, ppn: int) -> float:
    """Return the time of an allreduce, with the factors of `nodes` in each lane."""
    phases = phases_of("recursive", both_ways(recursive_factors(nodes)) if nodes > 1 else ())
    across = exchange(costs, nbytes // ppn, ppn, phases)
    return combined(costs, nbytes, ppn) + across + cut(costs, nbytes, ppn)


def bcast(costs: MaxRate, nbytes: int, nodes: int, ppn: int) -> float:
    """Return the time of a broadcast, with a binomial tree in each lane."""
    across = steps_of(nodes, 2) * costs.max_rate(nbytes / ppn, ppn)
    return cut(costs, nbytes, ppn) + across + cut(costs, nbytes, ppn)


def bound(costs: MaxRate, nbytes: int, nodes: int, ppn: int) -> float:
    """Return the least time in which rails move an allreduce's bytes in and out of a node."""
    rate = min(costs.rails * costs.injection, ppn * costs.pair)
    return 2 * (nodes - 1) / nodes * nbytes / rate
