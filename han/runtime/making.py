"""How the parts of a communicator are made: with what its parent knows, or from nothing.

In the first step every rank tells the token of the communicator's parent, if it has one, what it
lends, and a number that stands for its settings. If all ranks have the same parent, nothing more
has to be asked. If they have not, and their settings differ or a rank has a problem, they also
exchange the settings.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, NamedTuple

from mpi4py import MPI

from han.config.arrange import Facts
from han.config.config import Config
from han.memory.shared import Lending, SharedMemory
from han.model.topology import MAX_LEVELS
from han.ranks.calibration import is_uncalibrated
from han.ranks.discover import STEP, Conditions, check_agreement, discover, gather_facts
from han.ranks.health import AGREED, Health
from han.ranks.mail import Mail
from han.ranks.meeting import Line, Meeting, setup_limit
from han.ranks.notices import Notices
from han.runtime.alike import ALIKE
from han.runtime.engines import Engines
from han.runtime.given import Given, agreed_table
from han.runtime.inherited import Draft, Inherited
from han.runtime.leaving import at_end
from han.runtime.maker import Maker
from han.runtime.parts import Parts
from han.runtime.persistent import Persistent
from han.runtime.plans import Plans
from han.runtime.resting import Ranks
from han.runtime.roots import ROOTS
from han.runtime.waiting import Waiting, naps, set_helper
from han.trace.tracing import Tracing
from han.tuning.built_in.choosing import NodeTraits

TAGS = 4  # tags of the steps of a communicator
TOLD = 4  # numbers that a rank tells, before the offsets by level
LENDS, RESTS = 1, 2  # it lends memory, or has parts of a freed communicator
COMMUNICATORS = 62  # whose steps have tags of their own, below those of engines


class Known(NamedTuple):
    """What all ranks of a new communicator know."""

    draft: Draft
    mail: Mail
    token: int
    line: Line
    lending: Lending
    offsets: list[list[int]]


@dataclass(frozen=True)
class Birth:
    """What this rank brings: the draft of its parent, if it has one, and what it lends."""

    inherited: Inherited | None = None
    draft: Draft | None = None
    lending: Lending | None = None
    number: int = 0
    rested: Parts | None = None

    @classmethod
    def of(cls, inherited: Inherited | None, comm: MPI.Intracomm) -> Birth:
        """Prepare the first step; not collective."""
        draft = inherited.draft(comm) if inherited is not None else None
        if inherited is None or draft is None or not draft.near or inherited.mail.closed:
            return cls(inherited, draft)
        rested = inherited.nest.take(draft.ranks)
        if rested is not None:
            return cls(inherited, draft, number=rested.token, rested=rested)
        return cls(inherited, draft)._lender(comm.Get_rank())

    def _lender(self, rank: int) -> Birth:
        """Return what this rank brings if it lends memory, where it can."""
        one, site = self.inherited, self.draft.site if self.draft is not None else None
        if one is None or site is None:
            return Birth(one, self.draft)
        number = one.mail.number() if rank == 0 else 0
        return Birth(one, self.draft, Lending.at(site, rank), number)

    def introduce(
        self, meeting: Meeting, given: Given
    ) -> tuple[Parts | Known | Draft | None, tuple[int, ...]]:
        """Take the first step; collective.

        Returns parts that all ranks have; or what all ranks know; or, if shared memory must be
        made, the draft; or None if the ranks do not have the same parent. Also returns which
        ranks have another tuned table than rank 0. Raises ConfigError, on all ranks alike.
        """
        try:
            told = meeting.numbers(self._told(given.number), STEP)
        except BaseException:
            if self.lending is not None:
                self.lending.leave()
            if self.rested is not None:
                self.rested.drop()
            raise
        parent = told[0][0]
        if parent and all(row[0] == parent for row in told):
            if any(row[2] == RESTS for row in told):
                return self._succeed(told, meeting, given)
            known = self._known(told)
            if known is None:
                self._cancel()
            return known or self.draft, ()
        try:
            if given.number and all(row[TOLD - 1] == given.number for row in told):
                return None, ()
            rows = meeting.allgather(given.settings, STEP)
            return None, check_agreement(rows, given.problem)
        finally:
            self._cancel()

    def _succeed(
        self, told: list[list[int]], meeting: Meeting, given: Given
    ) -> tuple[Parts | Known | Draft | None, tuple[int, ...]]:
        """Return the parts that all ranks have. If a rank has others, or none, lend memory."""
        if self.rested is None:
            return self.introduce(meeting, given)
        if all(row == told[0] for row in told):
            return self.rested, ()
        try:
            return self._lender(meeting.rank).introduce(meeting, given)
        finally:
            self.rested.drop()

    def _told(self, number: int) -> list[int]:
        """Return the parent's token, one for the child, what it brings, `number`, and offsets.

        Without a parent the tokens are 0. The offsets are those of all levels.
        """
        lent, lends = [0] * MAX_LEVELS, LENDS * (self.lending is not None)
        lends = lends if self.rested is None else RESTS
        if self.inherited is None or self.draft is None:
            return [0, 0, lends, number, *lent]
        if self.lending is not None:
            for level, offset in self.lending.offsets.items():
                lent[level] = offset
        return [self.inherited.token, self.number, lends, number, *lent]

    def _known(self, told: list[list[int]]) -> Known | None:
        one, lends = self.inherited, [row[TOLD:] for row in told if row[2] == LENDS]
        if one is None or self.draft is None or self.lending is None or len(lends) < len(told):
            return None
        token = told[0][1]
        number, first = divmod(token - one.mail.token - 1, one.mail.size)
        tag = (1 + (number + 7 * first) % COMMUNICATORS) * TAGS
        line = Line(one.mail.comm, one.mail_places(self.draft.ranks), tag)
        return Known(self.draft, one.mail, token, line, self.lending, lends)

    def _cancel(self) -> None:
        """Take back what this rank lends, as no rank borrows; end parts that not all ranks have."""
        if self.rested is not None:
            self.rested.drop()
        if self.lending is not None:
            self.lending.cancel()


SETUP_LIMIT = 600.0  # seconds; the limit until the configuration is known


def parts_of(comm: MPI.Intracomm, config: Any, inherited: Inherited | None) -> Parts:
    """Return the parts of a new communicator: those that a freed one left, or new ones; collective.

    `inherited` is what a parent knows; without one, `config` is read, and there may be a root.
    Raises ConfigError and SharedMemoryError, on all ranks alike.
    """
    given = Given.read(config) if inherited is None else inherited.given
    root = ROOTS.find(comm, given) if inherited is None else None
    has_parent, inherited = inherited is not None, inherited or root
    limit = SETUP_LIMIT if given.problem else given.config.wait.timeout
    meeting = Meeting(comm, setup_limit(limit))
    meeting.look = inherited.watch(comm) if inherited is not None else None
    known, others = Birth.of(inherited, comm).introduce(meeting, given)
    if isinstance(known, Parts):
        known.serve(comm)
        return known
    if known is not None and inherited is not None:
        given = inherited.given
    elif others:
        given = given.using(agreed_table(given.tuned, others))
    if isinstance(known, Known):
        parts = _with_parent(meeting, given, known, inherited)
    else:
        draft = known if isinstance(known, Draft) else None
        if root is not None and draft is None:
            ROOTS.leave_out(root)
        parts = _without_parent(meeting, given, draft, draft is None and not has_parent)
    _open(parts, comm, limit)
    if parts.is_root:
        ROOTS.add(parts.heritage)
    return parts


def _open(parts: Parts, comm: MPI.Intracomm, limit: float) -> None:
    """Record if HAN_TRACE says so, and let later steps hear of errors; collective."""
    if parts.given.settings.folder:
        parts.tracing.record_into(parts.given.settings.folder)
    health = parts.health
    meeting = health.meeting
    meeting.look, meeting.limit, meeting.expect = health.look, limit, health.expect_step
    at_end(parts)


def _without_parent(outer: Meeting, given: Given, draft: Draft | None, is_root: bool) -> Parts:
    """Find out where the ranks are, and make shared memory; collective."""
    own = outer.messages()
    meeting = Meeting(own, outer.limit, own)
    meeting.look = outer.look
    config, made = given.config, list[Parts]()
    try:
        mine = int.from_bytes(os.urandom(4), "little") >> 1, is_root and ROOTS.takes(own)
        told = meeting.allgather(mine, STEP)
        token, stays = told[0][0], all(takes for _, takes in told)
        facts = draft.facts if draft else _looked(meeting, config)
        topology, here = discover(facts, config)
        conditions = draft.conditions if draft else here
        health = Health(meeting, Notices(Mail(own, token), range(meeting.size), token))
        sleeps, crowded = naps(config.wait, conditions), conditions.oversubscribed
        shared = SharedMemory.made(meeting, topology, config.memory, sleeps, crowded)
        meeting.share(
            lambda: made.append(_made(given, conditions, facts, health, shared, None, stays)), STEP
        )
    except AGREED:
        own.Free()
        raise
    return made[0]


def _looked(meeting: Meeting, config: Config) -> tuple[Facts, ...]:
    """Find out where the ranks are; if rank 0 asks for it, calibrate the machine; collective."""
    facts = tuple(gather_facts(meeting, config))
    if not is_uncalibrated(facts):
        return facts
    from han.runtime.calibrating import calibrated_first

    return calibrated_first(meeting, facts)


def _with_parent(
    meeting: Meeting, given: Given, known: Known, inherited: Inherited | None
) -> Parts:
    """Make all that the parent need not be asked for; not collective, for one node.

    If this raises, it tells the other ranks, which may have gone on.
    """
    draft, meeting.line = known.draft, known.line
    health = Health(meeting, Notices(known.mail, known.line.places, known.token))
    try:
        shared = SharedMemory.borrowed(
            meeting, draft.topology, naps(given.config.wait, draft.conditions),
            known.lending, known.offsets,
        )  # fmt: skip
        whole = shared.topology.whole is not None
        origin = (inherited, draft.ranks) if inherited is not None and whole else None
        parts = _made(given, draft.conditions, draft.facts, health, shared, origin)
        meeting.look, meeting.expect = health.look, health.expect_step
        if not whole:
            parts.engines.let_talk()
    except BaseException as error:
        health.give_up(error)
        raise
    return parts


def _made(
    given: Given,
    conditions: Conditions,
    facts: tuple[Facts, ...],
    health: Health,
    shared: SharedMemory,
    origin: tuple[Inherited, Ranks] | None,
    is_root: bool = False,
) -> Parts:
    """Make the parts that need no other rank."""
    config, topology = given.config, shared.topology
    tracing = Tracing(health, topology.memory)
    recorder = tracing.recorder
    set_helper(config.wait, conditions)
    engines = Engines(health, Waiting.of(config.wait, conditions), recorder)
    traits = NodeTraits(
        conditions.oversubscribed, conditions.mesh, conditions.cores, conditions.rdma,
        conditions.profile, conditions.latency,
    )  # fmt: skip
    maps = shared.arena is not None
    planner = ALIKE.planner(topology, config, traits, health.rank, maps, given.tuned.table)
    engines.open(shared.channels, planner.bounds)
    health.engines = engines
    health.alert()  # messages may have arrived before
    maker = Maker(planner, health, shared, engines, recorder)
    plans, persistent = Plans(maker, engines), Persistent(health, engines, shared, maker)
    recorder.follow(engines.numbered, maker.names)
    return Parts(
        given, conditions, facts, health, shared, tracing, engines, planner, maker, plans,
        persistent, origin, is_root,
    )  # fmt: skip
