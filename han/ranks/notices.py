"""Notices: messages in which a rank tells the other ranks of an error; and ranks that have left."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from han.common.errors import HanError, MismatchError, PeerError, RevokedError
from han.ranks.mail import Fields, Mail
from han.ranks.measured import GRACE, IN_FLIGHT
from han.tasks.signature import ON_DEVICE

ENDED = "its program ended (at its last line, by sys.exit or by MPI.Finalize)"


@dataclass(frozen=True)
class Departure:
    """How far a rank came before it left, and why it left.

    All ranks count alike: `steps` set-up steps are finished, `calls` is the number of the next
    call that is left to the MPI library, and `runs` holds (number, finished runs) of each engine.
    A departure that is read from shared memory has no `runs`: the control records tell them.
    """

    rank: int
    text: str
    steps: int
    calls: int
    runs: tuple[tuple[int, int], ...] | None = None
    heard: float = field(default_factory=time.monotonic, compare=False)

    @property
    def may_call(self) -> bool:
        """Whether the rank may still take part in a call, in a function that runs at exit."""
        return self.text == ENDED and time.monotonic() < self.heard + GRACE

    def finished(self, engine: int) -> int | None:
        """Return the number of runs that the rank finished on an engine; None: see its record."""
        return None if self.runs is None else dict(self.runs).get(engine, 0)

    def error(self, rank: int, story: str) -> PeerError:
        """Return the error of `rank`; `story` says what it waited for."""
        return PeerError(f"rank {self.rank} left: {self.text}; rank {rank} was in {story}")


def lost_run(gone: Iterable[Departure], engine: int, finished: int) -> Departure | None:
    """Return who left without the run that follows `finished` runs of an engine, if any did."""
    for one in gone:
        runs = one.finished(engine)
        if runs is not None and runs <= finished:
            return one
    return None


def lost_call(gone: Iterable[Departure], call: int) -> Departure | None:
    """Return who left without making a call that is left to the MPI library, if any did."""
    return next((one for one in gone if one.calls <= call), None)


def lost_step(
    gone: Iterable[Departure], steps: int, among: Sequence[int] | None
) -> Departure | None:
    """Return who left without the set-up step that follows `steps` steps, if any did.

    Steps of some ranks, those in `among`, are not counted. A rank that has left may have taken
    part in such a step: then its last message arrives within IN_FLIGHT.
    """
    late = time.monotonic() - IN_FLIGHT
    for one in gone:
        if one.steps > steps:
            continue
        if among is None or (one.rank in among and one.heard < late):
            return one
    return None


REMEDY = "HAN_CHECK=1 compares calls before they are made"
DEVICES = "pass memory of a device on all ranks, or on none"
FORMS = "this call or an earlier one; blocking and nonblocking calls do not match"


def mismatch(
    between: tuple[int, int], rank: int, stories: Mapping[int, str], shown: str = ""
) -> MismatchError:
    """Return the error of `rank` for two ranks that make different calls: the peer and its finder.

    `stories` is what each rank was in, as far as known, such as ``barrier: barrier(0) for ...``.
    `shown` is how the finder saw the difference.
    """
    peer, finder = between
    said = [f"rank {r} was in {stories[r]}" for r in sorted({*between, rank}) if r in stories]
    calls = [stories[r].partition(":")[0] for r in between if r in stories]
    remedy = FORMS if len(calls) == 2 and calls[0] == calls[1] else REMEDY
    if any(ON_DEVICE in story for story in stories.values()):
        remedy = DEVICES
    how = f" ({shown})" if shown else ""
    error = MismatchError(
        f"rank {peer} does not make the same calls as rank {finder}{how}: {'; '.join(said)} "
        f"({remedy})"
    )
    error.between, error.story = between, stories.get(rank, "")
    return error


LEFT = 1 << 61  # calls that start no run of the communicator's engine are counted from here on
LATEST = 1 << 62  # the call number of a notice that concerns all calls
DEPARTURE = -1  # stands in place of the call number if the sender leaves
WITHDRAWAL = -2  # and this, if it then stops to wait for the departure of the receiver
LONGEST = 2000  # characters of a text at most


@dataclass(frozen=True)
class Notice:
    """One error: the number of the call, the rank that raised, the rank that tells, the text.

    All ranks number calls alike, as the engine's ``issued`` does. Calls that are left to the MPI
    library, or that make persistent requests, start no run of that engine. They have numbers of
    their own, from LEFT on. `rank` and `sender` differ
    if `sender` gave up because of an error of `rank`. Of a MismatchError the notice also has
    `between` and `story`; else they are empty.
    """

    call: int
    rank: int
    sender: int
    text: str
    between: tuple[int, int] | None = None
    story: str = ""


class Notices:
    """Sends and receives the notices of a communicator, through its mail.

    A notice may arrive before this rank makes the call in question, or after. A notice about a
    call that raised on this rank too is dropped. `places` are the ranks' places on the
    mail, by rank; `token` identifies it there, the same on all ranks.
    """

    def __init__(self, mail: Mail, places: Sequence[int], token: int) -> None:
        self.mail, self.token, self.places = mail, token, places
        self.rank, self.size = places.index(mail.rank), len(places)
        self.alert: Callable[[], None] | None = None  # called when a message has arrived
        self.left = LEFT  # the number of the next call that is left to the MPI library
        self._mine: dict[int, int] = {}  # by call that raised here: peers yet to tell of it
        self._early: list[Notice] = []
        self.gone: list[Departure] = []  # ranks that have sent that they leave
        self.withdrawn: set[int] = set()  # ranks that left and have stopped listening
        self._sends, self._receives = [0] * self.size, [0] * self.size  # messages by rank
        self._lock = mail.lock
        mail.join(token, self)

    def tell(self, call: int, error: BaseException) -> None:
        """Tell all ranks that call number `call` raised here before data moved."""
        with self._lock:
            if self.size > 1:
                self._mine[call] = self.size - 1
            self.fetch()  # notices about calls that raised on all ranks must not pile up
        self._send(Notice(call, self.rank, self.rank, f"{type(error).__name__}: {error}"))

    def revoke(self, error: BaseException, cause: int | None = None) -> None:
        """Tell all ranks that this rank gives the communicator up, for an error of rank `cause`."""
        rank = self.rank if cause is None else cause
        text = f"{type(error).__name__}: {error}"
        between = error.between if isinstance(error, MismatchError) else None
        story = error.story if isinstance(error, MismatchError) else ""
        self._send(Notice(LATEST, rank, self.rank, text, between, story))

    def depart(self, why: Departure, peers: Iterable[int]) -> None:
        """Tell `peers` that this rank leaves, except those that no longer listen."""
        fields = DEPARTURE, why.rank, why.text[:LONGEST], why.steps, why.calls, why.runs
        self._post(fields, {*peers} - self._deaf())

    def unheard(self, peers: set[int]) -> set[int]:
        """Return those of `peers` whose last message has not arrived."""
        return peers - self._deaf() - {one.rank for one in self.gone}

    def withdraw(self, peers: Iterable[int]) -> None:
        """Tell `peers` to send no last message: this rank does not wait for it any longer."""
        self._post((WITHDRAWAL, self.rank), peers)

    def _deaf(self) -> set[int]:
        """Return the ranks that have given up or have withdrawn: they receive no more messages."""
        with self._lock:
            self.fetch()
            return self.withdrawn | {n.sender for n in self._early if n.call == LATEST}

    def _send(self, notice: Notice) -> None:
        fields = (
            notice.call, notice.rank, notice.sender, notice.text[:LONGEST],
            notice.between, notice.story[:LONGEST],
        )  # fmt: skip
        self._post(fields, set(range(self.size)) - self.withdrawn)

    def _post(self, fields: tuple[object, ...], peers: Iterable[int]) -> None:
        """Send fields to `peers`, without waiting."""
        others = {*peers} - {self.rank}
        with self._lock:
            self.mail.send(self.token, fields, [self.places[peer] for peer in others])
            for peer in others:
                self._sends[peer] += 1

    def fetch(self) -> None:
        """Receive what has arrived, for `gone` and for later calls."""
        with self._lock:
            self.mail.fetch()
            self._early = [n for n in self._early if not self._failed_here_too(n)]

    def arrived(self, source: int, fields: Fields) -> None:
        """Take a message from the mail."""
        self._receives[self.places.index(source)] += 1
        call, *rest = fields
        if call == DEPARTURE:
            rank, text, steps, calls, runs = rest
            counts = tuple((number, finished) for number, finished in runs)
            self.gone.append(Departure(rank, text, steps, calls, counts))
        elif call == WITHDRAWAL:
            self.withdrawn.update(rest)
        else:
            rank, sender, text, between, story = rest
            pair = tuple(between) if between else None
            self._early.append(Notice(call, rank, sender, text, pair, story))
        if self.alert is not None:
            self.alert()

    def receive(self, issued: int) -> list[Notice]:
        """Return the notices about the first `issued` calls, without those that raised here too."""
        with self._lock:
            self.fetch()
            found = [n for n in self._early if self._concerns(n, issued)]
            self._early = [n for n in self._early if n not in found]
        return found

    def _concerns(self, notice: Notice, issued: int) -> bool:
        left = LEFT <= notice.call < self.left
        return notice.call == LATEST or notice.call < issued or left

    @contextlib.contextmanager
    def leaving(self) -> Iterator[None]:
        """Count a call that is left to the MPI library; tell the other ranks if it raises."""
        call, self.left = self.left, self.left + 1
        try:
            yield
        except BaseException as error:
            self.tell(call, error)
            raise

    @property
    def silent(self) -> bool:
        """Whether no message was sent or received."""
        return not (any(self._sends) or any(self._receives))

    @property
    def early(self) -> bool:
        """Whether there are notices about later calls, or calls that raised here too."""
        return bool(self._early)

    @property
    def held(self) -> int:
        """The first call, counted from 1, with a notice that arrived early; 0: none."""
        early = [n.call for n in self._early]
        calls = [0 if call == LATEST else call for call in early if call < LEFT or call == LATEST]
        return 1 + min(calls, default=-1)

    @property
    def revoked(self) -> bool:
        """Whether a rank has told that it gives the communicator up."""
        return any(notice.call == LATEST for notice in self._early)

    @property
    def sent(self) -> list[int]:
        """The number of messages to each rank."""
        return self._sends

    @property
    def received(self) -> list[int]:
        """The number of messages of each rank."""
        return self._receives

    def _failed_here_too(self, notice: Notice) -> bool:
        left = self._mine.get(notice.call)
        if left is None:
            return False
        self._mine[notice.call] = left - 1
        if left == 1:  # the notices of all peers have arrived
            del self._mine[notice.call]
        return True


def first_cause(notices: list[Notice]) -> Notice:
    """Return the notice of the error that caused the others."""
    return min(notices, key=lambda n: (n.call, n.rank != n.sender, n.sender))


def peer_error(notices: list[Notice], rank: int, story: str) -> HanError:
    """Return the error that `rank` raises for notices of other ranks, the first cause first.

    `story` names what `rank` was waiting for.
    """
    cause = first_cause(notices)
    if cause.between is not None:
        stories = {n.sender: n.story for n in notices if n.story}
        return mismatch(cause.between, rank, {**stories, rank: story})
    if cause.rank == rank:  # the others gave up because of an error of this rank
        text = "; ".join(f"rank {n.sender} raised {n.text}" for n in notices)
        return RevokedError(
            f"the other ranks gave this communicator up after an error of this rank: {text}"
        )
    own = [n for n in notices if n.rank == n.sender] or notices
    own.sort(key=lambda n: (n.call, n.sender))
    text = "; ".join(f"rank {n.sender} raised {n.text}" for n in own)
    return PeerError(f"{text}; rank {rank} was in {story}")
