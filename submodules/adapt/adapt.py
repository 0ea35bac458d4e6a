"""``adapt``: event-driven trees of point-to-point messages.

A rank posts receives ahead, forwards each piece when it arrives, and lets sends complete in the
background. Each child has a branch of the stream, so a slow child does not hold up the messages of
a fast one.

Source: HAN, section III (ADAPT).
"""

from __future__ import annotations

from han.submodules.adapt.bcast import bcast
from han.submodules.adapt.reduce import reduce
from han.submodules.adapt.trees import SHAPE
from han.submodules.parts.mail import MOST, misfit
from han.tasks.canonical import NOT_CANONICAL
from han.tasks.context import Context
from han.tasks.contract import PLAIN as FAMILIES
from han.tasks.contract import Algorithm, Parameter, Question, Submodule, order_kept

TAKEN = ("segment", "window", "order")


class Adapt(Submodule):
    """Sends pieces along trees of point-to-point messages."""

    name = "adapt"
    by_place = True
    periodic = True
    about = "event-driven point-to-point trees, internally segmented (HAN's ADAPT)"
    algorithms = {
        "linear": Algorithm(
            "the root communicates with every member", ordered="always", takes=TAKEN
        ),
        "chain": Algorithm(
            "`radix` chains of neighbours from the root", families=(*FAMILIES, "ring")
        ),
        "binary": Algorithm("binary tree", ordered="never", takes=TAKEN),
        "in_order_binary": Algorithm(
            "binary tree that keeps the order of operands for any root",
            ordered="always",
            takes=TAKEN,
        ),
        "binomial": Algorithm("binomial tree", takes=TAKEN),
        "by_rank": Algorithm(
            "binomial tree over the order of ranks, the same partial results for any root",
            ordered="always",
            takes=TAKEN,
            canonical=True,
        ),
        "knomial": Algorithm("k-nomial tree of base `radix`"),
    }
    parameters = {
        "radix": Parameter("int", "base of the tree (knomial), number of chains (chain)", 1, 64),
        "segment": Parameter("size", "bytes of one message", 1, MOST),
        "window": Parameter(
            "int", "receives posted ahead, and sends in flight, for each peer", 1, 256
        ),
        "order": Parameter(
            "name",
            "a parent combines its children's pieces in a fixed order, or as they arrive",
            choices=("fixed", "arrival"),
            asked=True,
        ),
    }

    def supports(self, question: Question) -> str | None:
        """Return None if the algorithm can serve the call, else the reason."""
        choice = question.choice
        if choice.algorithm == "knomial" and choice.get("radix", SHAPE["knomial"][1]) < 2:
            return "a k-nomial tree needs a radix of at least 2"
        return misfit(question.signature.element) or self._order_kept(question)

    def _order_kept(self, question: Question) -> str | None:
        """Return why the order of operands would be another one than the call needs, or None."""
        signature = question.signature
        arrival = ("order", "arrival") in question.choice.parameters
        if arrival and "bcast" in (signature.collective, question.kind):
            return "order: arrival is for reductions: a broadcast combines nothing"
        if arrival and signature.canonical:
            return f"order: arrival {NOT_CANONICAL}"
        if arrival and signature.reduces and not signature.commutative:
            return f"order: arrival does not keep the order of operands, which {signature.op} needs"
        return order_kept(question, self.algorithms[question.choice.algorithm])

    def lower(self, context: Context) -> None:
        """Emit this rank's messages and reductions."""
        (bcast if context.tasks[0].kind == "bcast" else reduce)(context)
