"""``HAN_LEARN=1``: what trials find is kept in the user's tuned table when the process ends.

Each leader of trials writes its own points. Jobs that end at once write one after the other, and a
file is replaced as a whole or not at all.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from datetime import datetime, timezone
from pathlib import Path
from typing import Protocol

from han.config.config import Config
from han.ranks.machine import fingerprint
from han.runtime.binder import Binder
from han.runtime.prepared import Prepared
from han.tuning.tuned.files import TunedError, write
from han.tuning.tuned.learnt import Learnt, joined
from han.tuning.tuned.places import AUTO, OFF, SHIPPED, Search, default_file, named_file
from han.tuning.tuned.points import Key, Point, Timing
from han.tuning.tuned.table import of_points

LEAST = 2  # trials: one alone may have met other load
BURST = 8  # runs of each plan in a trial (native/plan.h)


class State(Protocol):
    """The state of a communicator, as far as trials concern it."""

    config: Config
    binder: Binder
    tuned: Search


class Learner:
    """Collects what trials found in this process, and writes it once."""

    def __init__(self) -> None:
        self._points: dict[Path, dict[tuple[Key, int], Point]] = {}

    def take(self, state: State) -> None:
        """Take what the trials of a communicator found so far, if its configuration says so."""
        config = state.config
        if not config.learn or config.tuned == OFF:
            return
        found = [one for p in list(state.binder.living.values()) if (one := learnt(p)) is not None]
        if not found:
            return
        path = _path(config, state.tuned)
        if path is None:
            return
        made = datetime.now(timezone.utc).isoformat(timespec="seconds")
        points = self._points.setdefault(path, {})
        for point in (one.point(made) for one in found):
            known = points.get((point.key, point.nbytes))
            if known is None or known.default.count <= point.default.count:
                points[point.key, point.nbytes] = point

    def write(self) -> None:
        """Write what was taken, and forget it; says on standard error why it cannot."""
        taken, self._points = self._points, {}
        for path, points in taken.items():
            machine = fingerprint(None)  # jobs may wait in several ways
            try:
                write(path, of_points(points.values(), machine), joined)
            except TunedError as error:
                print(f"han: HAN_LEARN: {error}", file=sys.stderr, flush=True)


LEARNER = Learner()


def learn(states: Iterable[State]) -> None:
    """Take what the trials of some communicators found, and write all that was taken."""
    for state in states:
        LEARNER.take(state)
    LEARNER.write()


def learnt(prepared: Prepared) -> Learnt | None:
    """Return what trials of a plan found; None if this rank leads too few."""
    told, planned = prepared.native.learnt, prepared.planned
    if told is None or planned is None or planned.rival is None:
        return None
    if prepared.signature.canonical:
        return None  # points of a table are for ordinary calls
    used, trials, *both = told
    if trials < LEAST:
        return None
    calls = trials * (BURST - 1)  # times from run to run
    plan, rival = (Timing(m * 1e-9, low * 1e-9, high * 1e-9, calls) for m, low, high in both)
    choice = planned.decision.choice
    return Learnt(planned.plan, choice, planned.rival.choice, (plan, rival), bool(used))


def _path(config: Config, tuned: Search) -> Path | None:
    """Return the file of the user's table: the named one, the one in use, or that of this machine.

    A table that comes with han is not changed. None: the name that the user gave is none of a file.
    """
    if config.tuned != AUTO:
        try:
            return named_file(config.tuned)
        except TunedError:
            return None
    used = None if tuned.table is None else Path(tuned.table.source)
    ours = used is None or SHIPPED in used.parents
    return default_file(fingerprint()) if used is None or ours else used
