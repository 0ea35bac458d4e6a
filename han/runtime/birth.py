"""The first step of a communicator, in which its ranks find out what all of them know.

Every rank tells the token of its communicator's parent, if it has one, what it lends, and a number
that stands for its settings. If all ranks have the same parent, nothing more has to be asked. If
they have not, and their settings differ or a rank has a problem, they also exchange the settings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from mpi4py import MPI

from han.memory.shared import Lending
from han.model.topology import MAX_LEVELS
from han.ranks.discover import STEP, check_agreement
from han.ranks.mail import Mail
from han.ranks.meeting import Line, Meeting
from han.runtime.given import Given
from han.runtime.inherited import Draft, Inherited
from han.runtime.resting import Rested

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
    rested: Rested | None = None

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
    ) -> tuple[Rested | Known | Draft | None, tuple[int, ...]]:
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
        self._cancel()
        if given.number and all(row[TOLD - 1] == given.number for row in told):
            return None, ()
        rows = meeting.allgather(given.settings, STEP)
        return None, check_agreement(rows, given.problem)

    def _succeed(
        self, told: list[list[int]], meeting: Meeting, given: Given
    ) -> tuple[Rested | Known | Draft | None, tuple[int, ...]]:
        """Return the parts that all ranks have. If a rank has others, or none, lend memory."""
        if self.rested is None:
            return self.introduce(meeting, given)
        if all(row == told[0] for row in told):
            return self.rested, ()
        self.rested.drop()
        return self._lender(meeting.rank).introduce(meeting, given)

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
