"""``exchange``: allreduce by exchanges with a few members at a time, with any factors.

On the levels below the outermost one, members that share memory reduce and broadcast by the two
halves of a tree (:mod:`han.submodules.exchange.halves`). In the steps of nap inside nodes, only
some members have operands (:mod:`han.submodules.exchange.repeated`).

- A recursive exchange brings together groups of members, then groups of such groups. It keeps the
  order of operands.
- A cyclic shift has partners at fixed distances around a circle, for any number of members.

Each factor is the number of members that a step brings together. Signed factors say which steps
split the message: see :mod:`han.submodules.parts.factors`. Where members share memory, they
exchange through cells (:mod:`han.submodules.exchange.node`); elsewhere, and by the algorithms that
are presets, in messages (:mod:`han.submodules.exchange.messages`).

Source: Jocksch et al., section 2; Thakur et al. (Rabenseifner).
"""

from __future__ import annotations

from collections.abc import Mapping

from han.model.collectives import FUSED as AT_ONCE
from han.model.topology import Topology
from han.submodules.exchange import halves, messages, repeated, rooted, rounds, share_cells, shares
from han.submodules.exchange import node as exchange_node
from han.submodules.exchange.arrays import in_memory, reads
from han.submodules.exchange.patterns import (
    PARTED,
    PRESETS,
    misfit_in_parts,
    own_factors,
    parted_of,
    reorders,
)
from han.submodules.parts.cells import FLAGS
from han.submodules.parts.factors import Factors, lists_of, never
from han.submodules.parts.mail import MOST
from han.tasks.choice import LevelChoice, Value
from han.tasks.context import Context
from han.tasks.contract import ANY, Algorithm, Parameter, Question, Submodule, order_kept
from han.tasks.outline import Outline, levels_of
from han.tasks.signature import Signature

FUSED = ("allreduce",)
ALWAYS_MESSAGES = (*PRESETS, "scatter")
PRESET = ("segment", "partition")  # what algorithms with factors of their own take
MIXED = ("segment", "factors", "partition", "chunk", "writes")
NESTED = ("inner", "ports", "arrays")
IN_LANES = ("factors", "chunk", "inner", "ports", "lanes")
IN_MEMORY = (
    "tree reduces and broadcasts apart only where members share memory; scatter does in messages"
)


def in_cells(topology: Topology, level: int, choice: LevelChoice) -> bool:
    """Return whether members exchange through cells, and not in messages."""
    return topology.shared[level] and choice.algorithm not in ALWAYS_MESSAGES


def apart(question: Question) -> bool:
    """Return whether a level reduces and broadcasts in tasks of their own."""
    topology, signature = question.topology, question.signature
    if question.kind in halves.HALVES or signature.collective not in AT_ONCE:
        return True
    return question.level not in levels_of(topology, signature)[-1:]


class Exchange(Submodule):
    """Combines data by exchanges with a few members at a time."""

    name = "exchange"
    by_place = True
    periodic = True
    about = "allreduce by exchanges, in shared memory or in messages, with any factors (Jocksch)"
    flags = FLAGS
    algorithms = {
        "recursive_doubling": Algorithm(
            "messages of everything, log2(n) steps",
            FUSED,
            "always",
            takes=PRESET,
            canonical=True,
        ),
        "halving": Algorithm(
            "messages: reduce-scatter and allgather, 2 log2(n) steps (Rabenseifner)",
            FUSED,
            "always",
            takes=PRESET,
            canonical=True,
        ),
        "recursive": Algorithm(
            "reduce-scatter and allgather by groups of groups",
            FUSED,
            "always",
            takes=(*MIXED, "whole", *NESTED),
            families=ANY,
            canonical=True,
        ),
        "cyclic": Algorithm(
            "members at growing distances, any number of them",
            FUSED,
            "never",
            takes=(*MIXED, *NESTED),
            families=ANY,
        ),
        "tree": Algorithm(
            "partial results of groups are whole vectors; on any level, where it reduces and "
            "broadcasts apart",
            (*FUSED, *halves.HALVES),
            "always",
            takes=("segment", "factors", "partition", "chunk", "whole", *NESTED),
            families=ANY,
            canonical=True,
        ),
        "copyin": Algorithm(
            "blocks go round and are combined on the way",
            FUSED,
            "never",
            takes=MIXED,
            families=ANY,
        ),
        "ring": Algorithm(
            "messages: blocks go round twice, 2 (n - 1) steps between neighbours",
            FUSED,
            "never",
            takes=PRESET,
        ),
        "bruck": Algorithm(
            "messages: cyclic shift with factors of 2; its barrier is the dissemination barrier",
            FUSED,
            "never",
            takes=PRESET,
        ),
        "scatter": Algorithm(
            "messages: scatter and allgather; reduce-scatter and gather",
            ordered="never",
            takes=("segment", "factors", "partition", "ports"),
        ),
        "shares": Algorithm(
            "in shared memory: every lane's member gets a share by a recursive exchange",
            shares.KINDS,
            "always",
            takes=IN_LANES,
            families=("everyone",),
            canonical=True,
        ),
        "cyclic_shares": Algorithm(
            "in shared memory: every lane's member gets a share by a cyclic shift",
            shares.KINDS,
            "never",
            takes=IN_LANES,
            families=("everyone",),
        ),
    }
    parameters = {
        "segment": Parameter("size", "bytes of one message", 1, MOST),
        "factors": Parameter(
            "factors", "members that each step brings together: [-4, -2, 2, 4]", 2, 1 << 16
        ),
        "partition": Parameter("size", "bytes of a block; 0: equal blocks", 0, 1 << 30),
        "chunk": Parameter(
            "size", "in shared memory: bytes that are combined at a time", 64, 4 << 20
        ),
        "whole": Parameter(
            "size",
            "messages up to this size are not split; tree: reductions in shared memory",
            0,
            1 << 20,
        ),
        "ports": Parameter(
            "int",
            "messages or cells that a member uses at a time: factors are at most one more; 0: as "
            "many as usual",
            0,
            1 << 16,
        ),
        "inner": Parameter(
            "int",
            "so many consecutive members, such as those of a socket, exchange first, then these "
            "groups; 0: no groups",
            0,
            1 << 16,
        ),
        "writes": Parameter(
            "bool",
            "in shared memory: members write finished blocks into the cells of those who need "
            "them (true), or read them there (false); small messages are read",
        ),
        "lanes": shares.LANES,
        "arrays": Parameter(
            "bool", "shared arrays are read where they are (true), or copied into cells (false)"
        ),
    }

    def factor_lists(self, algorithm: str, members: int) -> list[Factors]:
        """Return lists of factors that a tuner tries; presets have factors of their own."""
        return [] if algorithm in PRESETS else lists_of(PARTED.get(algorithm, algorithm), members)

    def never(self, algorithm: str, parameters: Mapping[str, Value]) -> str | None:
        """Return why an algorithm can never take these factors, or None."""
        factors = parameters.get("factors")
        if not isinstance(factors, tuple):
            return None
        if algorithm in PRESETS:
            return own_factors(algorithm)
        return never(PARTED.get(algorithm, algorithm), factors)

    def supports(self, question: Question) -> str | None:
        """Return None if the algorithm can serve the call, else the reason."""
        cells = in_cells(question.topology, question.level, question.choice)
        if question.repeats:
            reason = rounds.unfit(question)
        elif question.choice.algorithm in PARTED:
            reason = misfit_in_parts(question) or share_cells.unfit(question, parted_of)
        elif question.choice.algorithm == "tree" and apart(question):
            reason = halves.unfit(question) if cells else IN_MEMORY
        else:
            reason = (exchange_node if cells else messages).unfit(question)
        reason = reason or order_kept(question, self.algorithms[question.choice.algorithm])
        signature = question.signature
        ordered = signature.reduces and signature.canonical and question.kind != "bcast"
        return reason or (reorders(question) if ordered else None)

    def sends(self, topology: Topology, level: int, choice: LevelChoice) -> bool:
        """Return whether members of a level send messages."""
        return not all(in_cells(topology, level, one) for one in choice.each)

    def reads_mapped(
        self, topology: Topology, signature: Signature, level: int,
        choice: LevelChoice | None = None,
    ) -> bool:  # fmt: skip
        """Return whether members read users' arrays by a choice."""
        several = () if choice is None or not in_memory(choice) else choice.each
        return any(reads(topology, signature, level, one) for one in several)

    def footprint(self, plan: Outline, level: int) -> int:
        """Return how many bytes of each rank's ring of cells a run takes."""
        if plan.repeats:
            return repeated.footprint(plan, level)
        if plan.choice.levels[level].algorithm in PARTED:
            return share_cells.footprint(plan, level, parted_of)
        return exchange_node.footprint(plan, level) + halves.footprint(plan, level)

    def lower(self, context: Context) -> None:
        """Emit this rank's part of the exchange of each task."""
        topology = context.builder.plan.topology
        if context.builder.plan.repeats:
            repeated.lower(context)
        elif context.choice.algorithm in PARTED:
            shares.lower(context, parted_of)
        elif in_cells(topology, context.group.level, context.choice):
            kind = context.tasks[0].kind
            (halves if kind in halves.HALVES else exchange_node).lower(context)
        elif context.choice.algorithm == "scatter":
            rooted.lower(context)
        else:
            messages.lower(context)
