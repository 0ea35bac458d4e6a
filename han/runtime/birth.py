"""The first step of a communicator, in which its ranks find out what all of them know.

Every rank tells its settings. A rank whose communicator has a parent also tells the parent's token
and what it lends. If all ranks have the same parent, nothing more has to be asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from mpi4py import MPI

from han.common.errors import ConfigError
from han.memory.channel import Offsets
from han.memory.shared import Lending
from han.ranks.discover import STEP, Settings, check_agreement
from han.ranks.mail import Mail
from han.ranks.meeting import Line, Meeting
from han.runtime.inherited import Draft, Inherited

TAGS = 4  # tags of the steps of a communicator
COMMUNICATORS = 62  # whose steps have tags of their own, below those of engines


class Told(NamedTuple):
    """What a rank tells: the parent's token, a token for the child, and what it lends, if it does.

    Without a parent the tokens are 0.
    """

    parent: int = 0
    token: int = 0
    lends: Offsets | None = None


class Known(NamedTuple):
    """What all ranks of a new communicator know."""

    draft: Draft
    mail: Mail
    token: int
    line: Line
    lending: Lending
    offsets: list[Offsets]


@dataclass(frozen=True)
class Birth:
    """What this rank brings: the draft of its parent, if it has one, and what it lends."""

    inherited: Inherited | None = None
    draft: Draft | None = None
    lending: Lending | None = None
    number: int = 0

    @classmethod
    def of(cls, inherited: Inherited | None, comm: MPI.Intracomm) -> Birth:
        """Prepare the first step; not collective."""
        draft = inherited.draft(comm) if inherited is not None else None
        if inherited is None or draft is None or not draft.near or inherited.mail.closed:
            return cls(inherited, draft)
        rank = comm.Get_rank()
        lending = None
        if inherited.reach is not None:
            memory = inherited.config.memory
            lending = Lending.by(draft.topology, rank, memory, inherited.reach, draft.ranks)
        return cls(inherited, draft, lending, inherited.mail.number() if rank == 0 else 0)

    def introduce(
        self, meeting: Meeting, settings: Settings, because: BaseException | None
    ) -> tuple[Known | Draft | None, tuple[int, ...]]:
        """Take the first step; collective.

        Returns what all ranks know; or, if shared memory must be made, the draft; or None if the
        ranks do not have the same parent. Also returns which ranks have another tuned table than
        rank 0. Raises ConfigError, on all ranks alike.
        """
        rows = meeting.allgather((settings, self._told()), STEP)
        told = [each for _, each in rows]
        try:
            others = check_agreement([each for each, _ in rows], because)
        except ConfigError:
            self._cancel()
            raise
        if not all(each.parent == told[0].parent for each in told):
            self._cancel()
            return None, others
        known = self._known(told)
        if known is None:
            self._cancel()
        return known or self.draft, others

    def _told(self) -> Told:
        if self.inherited is None or self.draft is None:
            return Told()
        lends = None if self.lending is None else self.lending.offsets
        return Told(self.inherited.token, self.number, lends)

    def _known(self, told: list[Told]) -> Known | None:
        one, lends = self.inherited, [each.lends for each in told if each.lends is not None]
        if one is None or self.draft is None or self.lending is None or len(lends) < len(told):
            return None
        token = told[0].token
        number, first = divmod(token - one.mail.token - 1, one.mail.size)
        tag = (1 + (number + 7 * first) % COMMUNICATORS) * TAGS
        line = Line(one.mail.comm, one.mail_places(self.draft.ranks), tag)
        return Known(self.draft, one.mail, token, line, self.lending, lends)

    def _cancel(self) -> None:
        """Take back what this rank lends, as no rank borrows."""
        if self.lending is not None:
            self.lending.cancel()
