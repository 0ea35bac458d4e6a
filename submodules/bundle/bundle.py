"""``bundle``: between nodes, blocks that travel together, in messages.

A member gives its bundle, the blocks for which it stands, to all others. Blocks go from and to the
places where they belong in the receive buffers; blocks of consecutive ranks are one message. Other
streams of the rank may hand a block on as soon as it has arrived.

Source: Tran et al., section 2 (ring, recursive doubling); Bruck et al. (any number of members);
Jocksch et al., section 2.1 (factors).
"""

from __future__ import annotations

from collections.abc import Mapping

from han.model.collectives import BUNDLED
from han.submodules.bundle.exchange import Exchange, Reduction
from han.submodules.bundle.passing import Passing, Sums
from han.submodules.bundle.rounds import PASSING
from han.submodules.bundle.singly import Singly
from han.submodules.bundle.tree import Tree
from han.submodules.parts.factors import (
    Factors,
    misfit_one_way,
    never_one_way,
    one_way_lists,
)
from han.submodules.parts.mail import MOST, misfit
from han.tasks.choice import Value
from han.tasks.context import Context
from han.tasks.contract import Algorithm, Parameter, Question, Submodule, order_kept

FAMILIES = ("leaders", "blocks")


class Bundle(Submodule):
    """Sends blocks that travel together."""

    name = "bundle"
    about = "between nodes: the blocks of a node, or of a lane, in messages"
    algorithms = {
        "ring": Algorithm(
            "bundles go round all members; sums of them in a reduce-scatter",
            ("allgather", "reduce_scatter"),
            "never",
            takes=("segment", "window"),
            families=FAMILIES,
        ),
        "doubling": Algorithm(
            "log2(n) rounds in which members give all that they have",
            ("allgather",),
            takes=("segment", "window"),
            families=FAMILIES,
        ),
        "linear": Algorithm(
            "bundles from their members straight to others",
            tuple(BUNDLED),
            "always",
            takes=("segment", "window"),
            families=FAMILIES,
        ),
        "binomial": Algorithm(
            "bundles of several members in a message, which some of them pass on",
            ("gather", "scatter"),
            one_segment=True,
            takes=("segment", "window"),
            families=FAMILIES,
        ),
        "recursive": Algorithm(
            "groups of members, then groups of groups, with any factors",
            ("allgather", "reduce_scatter"),
            "always",
            families=FAMILIES,
        ),
        "cyclic": Algorithm(
            "members at growing distances, any number of them (Bruck)",
            ("allgather", "reduce_scatter", "alltoall"),
            "never",
            families=FAMILIES,
        ),
    }
    parameters = {
        "segment": Parameter("size", "bytes of a message", 1, MOST),
        "window": Parameter("int", "sends under way", 1, 256),
        "factors": Parameter(
            "factors", "members that each phase brings together: [4, 2]", 2, 1 << 16
        ),
    }

    def factor_lists(self, algorithm: str, members: int) -> list[Factors]:
        """Return lists of factors that a tuner tries."""
        mixed = "factors" in self.taken(algorithm)
        return one_way_lists(algorithm, members) if mixed else []

    def never(self, algorithm: str, parameters: Mapping[str, Value]) -> str | None:
        """Return why an algorithm can never take these factors, or None."""
        factors = parameters.get("factors")
        return never_one_way(factors) if isinstance(factors, tuple) else None

    def supports(self, question: Question) -> str | None:
        """Return None if it can serve the call, else the reason."""
        topology, signature = question.topology, question.signature
        alone = topology.whole is not None and not (signature.own and not topology.attach)
        if alone or question.level != topology.active[-1]:
            return "blocks travel together between nodes only"
        algorithm = question.choice.algorithm
        passes = algorithm == "binomial" or (signature.collective, algorithm) in PASSING
        return (
            _unknown_sizes(question)
            or (_not_whole(question) if passes else misfit(signature.element))
            or _misfit_factors(question)
            or order_kept(question, self.algorithms[algorithm])
        )

    def lower(self, context: Context) -> None:
        """Emit this rank's messages of each task."""
        free: list[int] = []
        carry = _carrier(context)
        for task in context.tasks:
            carry(context, task, free).run()


def _carrier(context: Context) -> type[Exchange]:
    """Return what carries out the messages of a stream's tasks."""
    kind, algorithm = context.stream.kind, context.choice.algorithm
    if context.builder.signature.own:
        return Singly
    if (kind, algorithm) in PASSING:
        return Sums if kind == "reduce_scatter" else Passing
    if kind == "reduce_scatter":
        return Reduction
    return Tree if algorithm == "binomial" else Exchange


def _unknown_sizes(question: Question) -> str | None:
    algorithm = question.choice.algorithm
    if not question.signature.own or algorithm == "linear":
        return None
    return f"{algorithm}: the ranks do not know the sizes of blocks that they would pass on"


def _not_whole(question: Question) -> str | None:
    """Return why members cannot pass on blocks whole, or None."""
    signature, algorithm = question.signature, question.choice.algorithm
    if question.segmented:
        return f"{algorithm} takes blocks whole"
    if signature.uneven:
        return f"{algorithm} passes on blocks of one size; take linear"
    return misfit(signature.nbytes * _most_blocks(question))


def _most_blocks(question: Question) -> int:
    """Return how many blocks a message has at most: in an alltoall, of pairs of ranks."""
    topology = question.topology
    if question.signature.collective != "alltoall":
        return topology.size
    return topology.widest(question.level) * topology.ppn**2


def _misfit_factors(question: Question) -> str | None:
    """Return why the factors do not fit the members of the level, or None."""
    algorithm, factors = question.choice.algorithm, question.choice.factors("factors")
    if factors is None:
        return None
    sizes = question.topology.group_sizes[question.level]
    found = (misfit_one_way(algorithm, members, factors) for members in sizes if members > 1)
    return next(filter(None, found), None)
