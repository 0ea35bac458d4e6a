"""``bundle``: between nodes, blocks that travel together, in messages.

A member gives its bundle, the blocks for which it stands, to all others. Blocks go from and to the
places where they belong in the receive buffers; blocks of consecutive ranks are one message. Other
streams of the rank may hand a block on as soon as it has arrived.

Source: Tran et al., section 2 (ring, recursive doubling); Bruck et al. (any number of members).
"""

from __future__ import annotations

from han.model.collectives import BUNDLED
from han.submodules.bundle.exchange import Exchange, Reduction
from han.submodules.bundle.singly import Singly
from han.submodules.bundle.tree import Tree
from han.submodules.parts.mail import MOST, misfit
from han.tasks.context import Context
from han.tasks.contract import Algorithm, Parameter, Question, Submodule

FAMILIES = ("leaders", "blocks")


class Bundle(Submodule):
    """Sends blocks that travel together."""

    name = "bundle"
    about = "between nodes: the blocks of a node, or of a lane, in messages"
    algorithms = {
        "ring": Algorithm("bundles go round all members", ("allgather",), families=FAMILIES),
        "doubling": Algorithm(
            "log2(n) rounds in which members give all that they have",
            ("allgather",),
            families=FAMILIES,
        ),
        "linear": Algorithm(
            "bundles from their members straight to others", tuple(BUNDLED), families=FAMILIES
        ),
        "binomial": Algorithm(
            "bundles of several members in a message, which some of them pass on",
            ("gather", "scatter"),
            one_segment=True,
            families=FAMILIES,
        ),
    }
    parameters = {
        "segment": Parameter("size", "bytes of a message", 1, MOST),
        "window": Parameter("int", "sends under way", 1, 256),
    }

    def supports(self, question: Question) -> str | None:
        """Return None if it can serve the call, else the reason."""
        topology, signature = question.topology, question.signature
        alone = topology.whole is not None and not (signature.own and not topology.attach)
        if alone or question.level != topology.active[-1]:
            return "blocks travel together between nodes only"
        if question.choice.algorithm == "binomial":
            if signature.own:
                return "binomial: the ranks do not know the sizes of blocks that they would pass on"
            if question.segmented:
                return "binomial takes blocks whole"
            return misfit(signature.nbytes * topology.size)
        return misfit(signature.element)

    def lower(self, context: Context) -> None:
        """Emit this rank's messages of each task."""
        free: list[int] = []
        if context.stream.kind == "reduce_scatter":
            carry: type[Exchange] = Reduction
        elif context.builder.signature.own:
            carry = Singly
        else:
            carry = Tree if context.choice.algorithm == "binomial" else Exchange
        for task in context.tasks:
            carry(context, task, free).run()
