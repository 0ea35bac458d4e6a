"""Messages of any number, and exchanges with any factors, on the max-rate model.

Source: Bienz, Olson, Gropp, Node-aware improvements to allreduce, section IV, equations 1 to 3.
Exchanges: the steps of Jocksch et al., sections 2.1.2 and 2.1.3, which state no times.
"""

from han.submodules.parts.factors import Phases
from han.tuning.formulas import MaxRate


def max_rate(
    costs: MaxRate, local: tuple[int, float], across: tuple[int, float], combined: float, ppn: int
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


def ports(costs: MaxRate, nbytes: float, factor: int, ppn: int) -> float:
    """Return the time of a step in which each of `ppn` ranks sends to `factor` - 1 others."""
    return costs.max_rate(nbytes * (factor - 1), ppn)


def exchange(costs: MaxRate, nbytes: int, ppn: int, phases: Phases) -> float:
    """Return the time of an exchange between nodes in which `ppn` ranks of each node take part.

    A step of factor f sends f - 1 messages at the same time (Jocksch et al., section 2.1.3: ports),
    which share the adapter. Each step of the reduce-scatter leaves one part in f of the message;
    the steps of the middle send that part as it is, and the allgather's parts grow by f.
    """
    seconds, part = 0.0, float(nbytes)
    for factor in phases.scatter:
        part /= factor
        seconds += ports(costs, part, factor, ppn) + costs.gamma * part * (factor - 1)
    for factor in phases.middle:
        seconds += ports(costs, part, factor, ppn) + costs.gamma * part * (factor - 1)
    for factor in phases.gather:
        seconds += ports(costs, part, factor, ppn)
        part *= factor
    return seconds
