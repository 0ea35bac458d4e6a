"""Trials: which calls have them, and when the first one takes place (native/engine/trials.h)."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from han.model.collectives import ROWS
from han.tasks.canonical import matters
from han.tasks.signature import Signature
from han.tuning import measured

if TYPE_CHECKING:
    from han.tuning.costs.estimates import Estimate


def burst_of(signature: Signature) -> int:
    """Return the runs of a burst before and after which the ranks meet; 0: they need not meet.

    Where a rank need not wait for all others, ranks run ahead of each other, so the time from run
    to run does not tell what a plan takes. The more runs, the less counts what a meeting takes, and
    what the links' buffers take at once.
    """
    if ROWS[signature.collective].synchronises:
        return 0
    runs = measured.BURST_BYTES // max(1, signature.nbytes)
    return min(max(runs, measured.LEAST_BURST), measured.MOST_BURST)


def keeps_bits(signature: Signature) -> bool:
    """Return whether all plans of a call give the same bits.

    A repeated call promises them, so other calls have no trials: plans that combine floating
    numbers in different orders differ in the last bits.
    """
    return signature.canonical or not matters(signature)


def first_trial(times: tuple[Estimate, Estimate] | None, burst: int = 0) -> int:
    """Return the runs before the first trial, so that it costs a hundredth of their time.

    `times` are those of the plan and of its rival in a tuned table; None: they are unknown. The
    trial runs the rival some times, and the ranks agree in messages, which takes about as long as
    a run of each plan. With a `burst` they meet three times more.
    """
    ratio = measured.UNKNOWN_RATIO if times is None else times[1].median / times[0].median
    exchanges = (1 + ratio) * (4 if burst else 1)
    return min(
        ceil(measured.TRIAL_SHARE * (max(0.0, ratio - 1) * (burst or measured.PROBE) + exchanges)),
        measured.MOST_BEFORE_TRIAL,
    )
