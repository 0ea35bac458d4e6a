"""Places: in which group a rank carries out tasks, and where its operand and its result are.

There is a class for each composition. `at` is called for batches of tasks in the order in which
they are lowered. A rank may have several places in a batch, one after the other.
"""

from __future__ import annotations

from collections.abc import Mapping

from han.tasks.lane_places import LanePlaces
from han.tasks.nap_places import NapPlaces
from han.tasks.outline import Outline
from han.tasks.ring_places import RingPlaces
from han.tasks.stream import Builder
from han.tasks.tree_places import Tree

Places = Tree | NapPlaces | LanePlaces
PLACES: Mapping[str, type[Places]] = {"nap": NapPlaces, "lanes": LanePlaces, "ring": RingPlaces}


def places(plan: Outline, builder: Builder) -> Places:
    """Return this rank's places in a plan."""
    return PLACES.get(plan.choice.composition, Tree)(plan, builder)
