"""What a communicator that is not used yet takes over from its parent."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from mpi4py import MPI

from han.config.arrange import Facts
from han.memory.shared import Reach, Site
from han.model.topology import Topology
from han.ranks.discover import Conditions, discover, facts_of, world_ranks
from han.ranks.health import FREED, Health
from han.ranks.mail import Mail
from han.ranks.measured import IN_FLIGHT
from han.ranks.meeting import Meeting, setup_limit
from han.runtime.given import Given
from han.runtime.measured import MOST_DRAFTS
from han.runtime.resting import Nest

if TYPE_CHECKING:
    from han.config.config import Config


@dataclass(frozen=True)
class Draft:
    """What follows for some ranks of a parent from what it knows.

    `ranks` are their numbers in the parent. `near`: they reach each other's memory as the parent
    knows. `site` is where they may share channels then; None if this rank cannot.
    """

    ranks: tuple[int, ...]
    facts: tuple[Facts, ...]
    topology: Topology
    conditions: Conditions
    near: bool
    site: Site | None


@dataclass(frozen=True, eq=False, repr=False)
class Inherited:
    """What the parent knows: also about each of its ranks, by rank.

    `world` holds their ranks on MPI.COMM_WORLD, `places` those on the mail. `parent`, its health,
    outlives its use.
    """

    given: Given
    conditions: Conditions
    parent: Health
    world: tuple[int, ...]
    facts: tuple[Facts, ...]
    reach: Reach | None
    nest: Nest
    _drafts: dict[tuple[int, ...], Draft] = field(default_factory=dict)

    @property
    def config(self) -> Config:
        """The configuration."""
        return self.given.config

    @property
    def keeps(self) -> bool:
        """Whether parts of freed children can serve later ones."""
        return self.nest.open and self.parent.failed in (None, FREED)

    @property
    def mail(self) -> Mail:
        """The mail, which children share."""
        return self.parent.notices.mail

    @property
    def token(self) -> int:
        """The parent's token."""
        return self.parent.notices.token

    def mail_places(self, ranks: Sequence[int]) -> tuple[int, ...]:
        """Return the places on the mail of some ranks of the parent."""
        return tuple(self.parent.notices.places[rank] for rank in ranks)

    def places(self, comm: MPI.Intracomm) -> list[int] | None:
        """Return the ranks of `comm` in the parent; None if it has others too."""
        place = {world: rank for rank, world in enumerate(self.world) if world != MPI.UNDEFINED}
        found = [place.get(world) for world in world_ranks(comm)]
        known = [rank for rank in found if rank is not None]
        return known if len(known) == len(found) else None

    def draft(self, comm: MPI.Intracomm) -> Draft | None:
        """Return what is known about the ranks of `comm`; None if the parent does not have all."""
        ranks = self.places(comm)
        if ranks is None:
            return None
        key = tuple(ranks)
        draft = self._drafts.get(key)
        if draft is None:
            draft = self._draft(key, comm.Get_rank())
            if len(self._drafts) < MOST_DRAFTS and (draft.site is not None or not draft.near):
                self._drafts[key] = draft
        return draft

    def _draft(self, ranks: tuple[int, ...], own: int) -> Draft:
        facts = tuple(facts_of(self.facts, ranks))
        topology, here = discover(facts, self.config)
        # Ranks of the parent that are not in this communicator still use the processors.
        above = self.conditions
        conditions = here._replace(
            oversubscribed=here.oversubscribed or above.oversubscribed,
            rationed=here.rationed or above.rationed,
            profile=above.profile,
            latency=above.latency,
        )
        reach = self.reach
        near = reach is not None and reach.covers(topology, ranks)
        topology = replace(topology, attach=near)
        site = None
        if near and reach is not None:
            site = Site.of(topology, own, self.config.memory, reach, ranks)
        return Draft(ranks, facts, topology, conditions, near, site)

    def meeting(self, comm: MPI.Intracomm) -> Meeting:
        """Return steps for the ranks of `comm`, which is not used yet."""
        meeting = Meeting(comm, setup_limit(self.config.wait.timeout))
        meeting.look = self.watch(comm)
        return meeting

    def watch(self, comm: MPI.Intracomm) -> Callable[[str], None]:
        """Return what the ranks of `comm` call while they wait in a step before it is set up.

        It raises PeerError if a rank of `comm` has left the parent. A rank that left may have
        taken part in the step under way: then its last message arrives within IN_FLIGHT.
        """

        def look(step: str) -> None:
            parent = self.parent
            if parent.failed is not None:
                return  # it is freed or revoked: nothing more is heard
            parent.notices.fetch()
            late = time.monotonic() - IN_FLIGHT
            try:
                gone = [one for one in parent.gone() if one.heard < late]
            except ValueError:  # another thread has freed the parent's channels meanwhile
                return
            members = world_ranks(comm) if gone else ()
            for one in gone:
                world = self.world[one.rank]
                if world != MPI.UNDEFINED and world in members:
                    known = replace(one, rank=members.index(world))
                    raise known.error(comm.Get_rank(), step)

        return look
