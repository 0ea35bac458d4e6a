"""What a communicator that is not used yet takes over from its parent."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mpi4py import MPI

from han.config.arrange import Facts
from han.memory.shared import Reach
from han.ranks.departures import IN_FLIGHT
from han.ranks.discover import Conditions
from han.ranks.health import Health

if TYPE_CHECKING:
    from han.config.config import Config


def world_ranks(comm: MPI.Intracomm) -> tuple[int, ...]:
    """Return the ranks of a communicator on MPI.COMM_WORLD; MPI.UNDEFINED for spawned processes."""
    own, world = comm.Get_group(), MPI.COMM_WORLD.Get_group()
    ranks = MPI.Group.Translate_ranks(own, [*range(comm.Get_size())], world)
    own.Free()
    world.Free()
    return tuple(ranks)


@dataclass(frozen=True)
class Inherited:
    """What the parent knows: also about each of its ranks, by rank.

    `world` holds their ranks on MPI.COMM_WORLD. `parent`, its health, outlives its use.
    """

    config: Config
    conditions: Conditions
    parent: Health
    world: tuple[int, ...]
    facts: tuple[Facts, ...]
    reach: Reach | None

    def places(self, comm: MPI.Intracomm) -> list[int] | None:
        """Return the ranks of `comm` in the parent; None if it has others too."""
        place = {world: rank for rank, world in enumerate(self.world) if world != MPI.UNDEFINED}
        found = [place.get(world) for world in world_ranks(comm)]
        known = [rank for rank in found if rank is not None]
        return known if len(known) == len(found) else None

    def watch(self, comm: MPI.Intracomm) -> Callable[[str], None]:
        """Return what the ranks of `comm` call while they wait in its set-up.

        It raises PeerError if a rank of `comm` has left the parent. A rank that left may have
        taken part in the step under way: then its last message arrives within IN_FLIGHT.
        """

        def look(step: str) -> None:
            parent = self.parent
            if parent.failed is not None:
                return  # it is freed or revoked: nothing more is heard
            parent.notices.fetch()
            late = time.monotonic() - IN_FLIGHT
            gone = [one for one in parent.gone() if one.heard < late]
            members = world_ranks(comm) if gone else ()
            for one in gone:
                world = self.world[one.rank]
                if world != MPI.UNDEFINED and world in members:
                    known = replace(one, rank=members.index(world))
                    raise known.error(comm.Get_rank(), step)

        return look
