"""``sm``: release and gather through cells in shared memory.

Each rank has a ring of cells and flags, each flag on a cache line of its own. A reduction gathers:
children copy into their cells, and parents combine. A broadcast releases: the root copies into its
cells, and the others copy out. A small message goes through the small slots instead, and the
smallest ones through the cache line of the flag.

A rank does not wait at the end for its readers. The next run takes the next part of the rings, or
the next bank of small slots.

Source: Jain et al., sections II and III (trees, read-parent's-flag, pipelining, inlining,
data-copy optimisation). A parameter switches each of these off, so that ``han ablation`` can
measure its effect.
"""

from __future__ import annotations

from dataclasses import replace

from han.model.channel_layout import PAGE
from han.model.topology import Topology
from han.submodules.exchange import share_cells, shares
from han.submodules.exchange.steps import at_once
from han.submodules.parts import blocks as block_cells
from han.submodules.parts.cells import FLAGS, footprint
from han.submodules.parts.mail import misfit
from han.submodules.parts.offload import KIND
from han.submodules.sm import pair_cells, scan
from han.submodules.sm.allreduce import ALLREDUCES, WHOLE
from han.submodules.sm.blocks import KINDS, blocks
from han.submodules.sm.gather_release import gather, release
from han.submodules.sm.pairs import pairs
from han.submodules.sm.trees import ALGORITHMS, PARAMETERS, Tree
from han.tasks.choice import LevelChoice
from han.tasks.context import Context
from han.tasks.contract import PLAIN, Algorithm, Parameter, Question, Submodule, order_kept
from han.tasks.outline import Outline


class Sm(Submodule):
    """Moves data through cells in shared memory."""

    name = "sm"
    by_place = True
    periodic = True
    about = "release/gather through cells in shared memory (Jain)"
    flags = FLAGS
    in_memory = True
    algorithms = {
        **ALGORITHMS,
        **WHOLE,
        "shares": Algorithm(
            "every lane's member combines a share, and shows it when its lane has combined it",
            shares.KINDS,
            "always",
            takes=("cells", "chunk", "lanes"),
            families=("everyone",),
            canonical=True,
        ),
        **scan.SCANNING,
        "blocks": Algorithm(
            "every block from its owner to its receiver",
            KINDS,
            "always",
            takes=("cells", "chunk", "inline", "offload"),
            families=(*PLAIN, "blocks"),
            canonical=True,
        ),
        "pairs": Algorithm(
            "blocks whose sizes only two ranks know: small ones by cells, others by attach",
            ("alltoall", "scatter"),
            takes=("chunk", "inline"),
            families=(*PLAIN, "blocks"),
            own=True,
        ),
    }
    parameters = {
        **PARAMETERS,
        "cells": Parameter("int", "cells of a rank's ring", 1, 8),
        "chunk": Parameter("size", "bytes of one cell", 64, 4 << 20),
        "inline": Parameter("bool", "data of up to a page goes beside the flag", joint=True),
        "read_parent_flag": Parameter("bool", "children read their parent's flag, not their own"),
        "in_recv": Parameter("bool", "the root combines in its receive buffer"),
        "lanes": shares.LANES,
        "offload": Parameter(
            "int", "copies of a member in an allgather that travel as messages", 0, 1 << 16
        ),
        "trailing": Parameter("bool", "no rank leaves before its data has been read"),
    }

    def supports(self, question: Question) -> str | None:
        """Return None if the algorithm can serve the call, else the reason."""
        topology, choice = question.topology, question.choice
        if not topology.shared[question.level]:
            return "members of a group do not share memory"
        signature = question.signature
        if signature.own or self.algorithms[choice.algorithm].own:
            return _misfit_of_pairs(question, self.algorithms[choice.algorithm])
        if choice.algorithm == "shares":
            return share_cells.unfit(question, at_once)
        if signature.by_blocks:
            return _misfit_of_messages(question) or block_cells.misfit(signature, topology)
        if signature.element > PAGE:
            size = signature.element
            return f"elements of {size} bytes do not fit into a cell of {PAGE} bytes"
        most = PAGE // 2 if question.repeats else PAGE
        if choice.algorithm == "direct" and signature.nbytes > most:
            return f"direct serves up to {most} bytes, not {signature.nbytes}"
        algorithm = self.algorithms[choice.algorithm]
        if algorithm.one_segment and question.segmented:
            return f"{choice.algorithm} takes the message in one segment"
        plain = signature.commutative and not signature.canonical
        if choice.algorithm not in ALGORITHMS or plain:
            return order_kept(question, algorithm)
        tree = Tree.of(choice)
        own = replace(algorithm, ordered=tree.ordered, canonical=tree.canonical(question))
        return order_kept(question, own, tree.describe())

    def sends(self, topology: Topology, level: int, choice: LevelChoice) -> bool:
        """Return whether some copies travel as messages."""
        return any(one.get("offload", 0) for one in choice.each)

    def footprint(self, plan: Outline, level: int) -> int:
        """Return how many bytes of each rank's ring of cells a run takes."""
        if plan.choice.levels[level].algorithm == "shares":
            return share_cells.footprint(plan, level, at_once)
        if plan.signature.own:
            return pair_cells.footprint(plan, level)
        blocked = plan.signature.by_blocks
        return block_cells.footprint(plan, level) if blocked else footprint(plan, level)

    def lower(self, context: Context) -> None:
        """Emit this rank's copies, reductions and flags."""
        kind, algorithm = context.tasks[0].kind, context.choice.algorithm
        if algorithm == "shares":
            shares.lower(context, at_once)
        elif algorithm == "pairs":
            pairs(context)
        elif kind in KINDS:
            blocks(context)
        elif kind == "allreduce":
            ALLREDUCES[algorithm](context)
        elif algorithm in scan.SCANNING:
            (scan.hand_down if kind == "bcast" else scan.lower)(context)
        elif kind == "reduce":
            gather(context)
        else:
            release(context)


def _misfit_of_messages(question: Question) -> str | None:
    """Return why copies cannot travel as messages, if some are to, or None."""
    if not question.choice.get("offload", 0):
        return None
    if question.signature.collective != KIND:
        return f"offload serves {KIND} only"
    return misfit(question.signature.element)


def _misfit_of_pairs(question: Question, algorithm: Algorithm) -> str | None:
    """Return why an algorithm, or the call, is not of blocks whose sizes only two ranks know."""
    if question.signature.own != algorithm.own:
        return "pairs serves Gatherv, Scatterv and Alltoallv, which no other algorithm of sm serves"
    return None if question.topology.attach else "the ranks may not read each other's memory"
