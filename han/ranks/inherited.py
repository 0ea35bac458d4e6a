"""What a communicator that is not used yet takes over from its parent."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mpi4py import MPI

from han.ranks.departures import IN_FLIGHT
from han.ranks.discover import Conditions
from han.ranks.health import Health

if TYPE_CHECKING:
    from han.config.config import Config


@dataclass(frozen=True)
class Inherited:
    """The parent's configuration and conditions, and its health, which outlives its use."""

    config: Config
    conditions: Conditions
    parent: Health

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
            gone = {one.rank: one for one in parent.gone() if one.heard < late}
            if not gone:
                return
            everyone = parent.meeting.comm.Get_group()
            places = MPI.Group.Translate_ranks(everyone, [*gone], comm.Get_group())
            for one, place in zip(gone.values(), places, strict=True):
                if place != MPI.UNDEFINED:
                    raise replace(one, rank=place).error(comm.Get_rank(), step)

        return look
