"""Built-in choices from what all ranks know: what must hold anywhere; the table has the rest."""

from __future__ import annotations

from dataclasses import replace

from han.model.channel_layout import PAGE
from han.model.topology import Topology
from han.submodules.registry import submodule
from han.tasks.choice import Choice, LevelChoice
from han.tasks.compositions import TREE
from han.tasks.outline import as_called, levels_of
from han.tasks.signature import Signature
from han.tuning.built_in.choosing import Allowed, Case, Rowed
from han.tuning.built_in.table import ChoiceTable
from han.tuning.built_in.traits import NodeTraits
from han.tuning.trials import within_node

BUILT_IN = "built-in"  # the name of their rule


def choose(
    signature: Signature, topology: Topology, traits: NodeTraits, name: str = TREE
) -> Choice:
    """Make the built-in choice for a call, of the composition `name`."""
    return rowed(signature, topology, traits, name).choice


def rowed(
    signature: Signature, topology: Topology, traits: NodeTraits, name: str = TREE,
    table: ChoiceTable | None = None,
) -> Rowed:  # fmt: skip
    """Return the built-in choice and the rows that decided; None: of the table that is shipped.

    In place, or by elements that fill no cell, no rank reads a peer's memory.
    """
    reads = signature.element <= PAGE and not signature.in_place
    mapped: tuple[bool, ...] = (False,) * topology.depth
    if reads and signature.mapped:
        solo, view = submodule("solo"), as_called(topology, signature, name)
        mapped = tuple(solo.reads_mapped(view, signature, k) for k in range(view.depth))
    allowed = Allowed(signature.element <= PAGE, topology.attach and reads, mapped)
    return Case(signature, topology, name, allowed, traits, table).choice(BUILT_IN)


def composed(signature: Signature, topology: Topology, traits: NodeTraits) -> Rowed | None:
    """Return the built-in choice of a composition other than a tree, between nodes; or None."""
    if signature.by_blocks or topology.whole is not None:
        return None
    row = Case(signature, topology, TREE, Allowed(True, False, ()), traits).composition()
    if row is None:
        return None
    choice, rows = rowed(signature, topology, traits, row.composition)
    return Rowed(choice, (("composition", row.name), *rows))


def tried(signature: Signature, topology: Topology, traits: NodeTraits) -> LevelChoice | None:
    """Return what the table has calls of ranks that all share memory try; None: nothing."""
    level = topology.whole
    may_try = topology.attach and within_node(signature, topology.size)
    if level is None or not may_try or levels_of(topology, signature) != [level]:
        return None
    return Case(signature, topology, TREE, Allowed(True, True, ()), traits).rival(topology.size)


def rival(signature: Signature, topology: Topology, traits: NodeTraits) -> Choice | None:
    """Return the choice that a trial compares with the built-in one; None if there is no trial.

    Within a node, the rival attaches if the built-in choice copies through cells, and the other way
    round (native/engine/trials.h). Both combine in the same order.
    """
    level, found = topology.whole, tried(signature, topology, traits)
    if level is None or found is None:
        return None
    usual = choose(signature, topology, traits)
    if submodule(usual.levels[level].submodule).reads_peers:
        return replace(choose(signature, replace(topology, attach=False), traits), rule="rival")
    levels = tuple(found if k == level else one for k, one in enumerate(usual.levels))
    return replace(usual, levels=levels, rule="rival")
