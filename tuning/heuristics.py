"""Built-in choices from what all ranks know: what must hold anywhere; the table has the rest."""

from __future__ import annotations

from han.model.channel_layout import PAGE
from han.model.topology import Topology
from han.submodules.registry import submodule
from han.tasks.choice import Choice
from han.tasks.compositions import TREE, as_called
from han.tasks.signature import Signature
from han.tuning.built_in.choosing import Allowed, Rowed, RowSearch
from han.tuning.built_in.table import ChoiceTable
from han.tuning.built_in.traits import NodeTraits

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
    return RowSearch(signature, topology, name, allowed, traits, table).choice(BUILT_IN)


def composed(signature: Signature, topology: Topology, traits: NodeTraits) -> Rowed | None:
    """Return the built-in choice of a composition other than a tree, between nodes; or None."""
    if topology.whole is not None:
        return None
    row = RowSearch(signature, topology, TREE, Allowed(True, False, ()), traits).composition()
    if row is None:
        return None
    choice, rows = rowed(signature, topology, traits, row.composition)
    return Rowed(choice, (("composition", row.name), *rows))
