"""The parts of a communicator: what serves its calls. They are made once, and handed on whole."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

from mpi4py import MPI

from han.config.arrange import Facts
from han.config.config import Config
from han.memory.shared import SharedMemory
from han.model.topology import Topology
from han.ranks.discover import Conditions, world_ranks
from han.ranks.health import FREED, Health
from han.runtime.engines import Engines
from han.runtime.given import Given
from han.runtime.inherited import Inherited
from han.runtime.maker import Maker
from han.runtime.persistent import Persistent
from han.runtime.plans import Plans
from han.runtime.resting import Nest, Ranks, do_all
from han.runtime.roots import ROOTS
from han.trace.tracing import Tracing
from han.tuning.planner import Planner


@dataclass(frozen=True, eq=False, repr=False)
class Parts:
    """What serves the calls of one communicator, then of the next one of the same ranks.

    `health` tells whether the ranks are in step. `planner` decides, `maker` makes plans,
    `plans` and `persistent` keep them, `engines` run them, in the memory `shared`.
    `origin` is the parent, and the ranks there; None if the parts cannot be handed on. `is_root`:
    later communicators may descend from this one. `nest` is what freed children have left.
    """

    given: Given
    conditions: Conditions
    facts: tuple[Facts, ...]  # by rank
    health: Health
    shared: SharedMemory
    tracing: Tracing
    engines: Engines
    planner: Planner
    maker: Maker
    plans: Plans
    persistent: Persistent
    origin: tuple[Inherited, Ranks] | None
    is_root: bool
    nest: Nest = field(default_factory=Nest)

    @property
    def config(self) -> Config:
        """The configuration."""
        return self.given.config

    @property
    def topology(self) -> Topology:
        """Where the ranks are."""
        return self.shared.topology

    @property
    def token(self) -> int:
        """Identifies the parts, the same on all ranks."""
        return self.health.notices.token

    @property
    def room(self) -> int:
        """The bytes of this rank's rings and scratch memory."""
        return self.engines.room + self.maker.room

    @cached_property
    def heritage(self) -> Inherited:
        """What a child takes over."""
        world, reach = world_ranks(self.health.meeting.comm), self.shared.reach
        return Inherited(
            self.given, self.conditions, self.health, world, self.facts, reach, self.nest
        )

    # ---- from one communicator to the next ----------------------------------------------------

    @property
    def sound(self) -> bool:
        """Whether this rank knows of no error, and of no rank that has left."""
        health = self.health
        health.notices.fetch()
        return health.failed is None and health.notices.silent and not self.engines.departures()

    @property
    def plain(self) -> bool:
        """Whether nothing here belongs to the present communicator alone."""
        health = self.health
        asked = self.config.check or self.tracing.used
        made = bool(self.persistent.slots.leased) or bool(self.shared.windows)
        return not (asked or made or health.busy or health.meeting.own is not None)

    def rest(self) -> Sequence[Parts]:
        """Leave the parts to the next child of the same ranks.

        Returns what is to be dropped: the parts themselves if they cannot serve another
        communicator, or older ones.
        """
        if self.origin is None or not (self.plain and self.sound):
            return [self]
        parent, ranks = self.origin
        return parent.nest.put(ranks, self) if parent.keeps else [self]

    def serve(self, comm: MPI.Intracomm) -> None:
        """Serve another communicator from now on; not collective."""
        self.plans.restart()
        self.health.meeting.comm = comm

    # ---- the end ------------------------------------------------------------------------------

    def drop(self) -> None:
        """Give back all that is held for no communicator; not collective.

        Notices of an error may have come since the last communicator was freed.
        """
        notices = self.health.notices
        with contextlib.suppress(MPI.Exception):
            notices.fetch()
        self._give_back(self.health.failed is None and notices.silent)

    def end(self, free: bool) -> None:
        """Give back all, but what a root keeps for later communicators.

        The communicators are freed by all ranks, after an error by none.
        """
        self._give_back(free and self._quiet())

    def _give_back(self, quiet: bool) -> None:
        """Give back all; `quiet`: no message is under way."""
        stays = quiet and self.is_root and self.heritage in ROOTS.made
        self.tracing.close()
        self.health.failed = self.health.failed or FREED
        acts: list[Callable[[], object]] = [
            self.nest.clear if stays else self.nest.close,
            self.engines.stop,
            partial(self.plans.clear, quiet),
            self.persistent.slots.close,
            self.shared.windows.clear,
        ]
        do_all(acts if stays else [*acts, partial(self._close_mail, quiet)])

    def _quiet(self) -> bool:
        """Return whether no message is under way, as MPI demands before it frees a communicator."""
        health = self.health
        if health.failed is not None:
            return False
        with contextlib.suppress(MPI.Exception):
            health.notices.fetch()  # of a call that this rank has finished, and another one not
            return (health.notices.silent and self._frees_nothing) or health.flush()
        return False

    @property
    def _frees_nothing(self) -> bool:
        """Whether han keeps its duplicates when this communicator ends; the same on all ranks."""
        own, mail = self.health.meeting.own, self.health.notices.mail
        return (own is None or own == mail.comm) and ROOTS.have(mail)

    def _close_mail(self, quiet: bool) -> None:
        """Leave the mail; free it after its last communicator, and this one's own duplicate."""
        notices, own = self.health.notices, self.health.meeting.own
        if notices.mail.leave(notices.token, quiet):
            notices.mail.close(quiet)
        if own is not None and own != notices.mail.comm and quiet:
            own.Free()
