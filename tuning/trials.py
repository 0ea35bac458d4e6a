"""Trials of calls between nodes: which calls have them, and when the first one takes place.

native/engine/counted.h carries them out.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from han.model.collectives import ROWS
from han.tasks.canonical import matters
from han.tasks.signature import Signature

if TYPE_CHECKING:
    from han.tuning.tuned.table import Timing

SHARE = 100  # trials may cost a hundredth of the time of all runs
PROBE = 4  # runs of the other plan in the first trial (native/plan.h)
MOST = 1 << 20  # runs before it, at most
UNKNOWN = 2.0  # how many times as long the rival takes if nothing was measured


def is_measured(signature: Signature) -> bool:
    """Return whether the time from run to run tells what a plan takes.

    Where a rank need not wait for all others, runs go ahead of each other, and sends of a short
    burst end in the buffers of a slow link.
    """
    return ROWS[signature.collective].synchronises


def keeps_bits(signature: Signature) -> bool:
    """Return whether all plans of a call give the same bits.

    A repeated call promises them, so other calls have no trials between nodes: plans that combine
    floating numbers in different orders differ in the last bits.
    """
    return signature.canonical or not matters(signature)


def first_trial(times: tuple[Timing, Timing] | None) -> int:
    """Return the runs before the first trial, so that it costs a hundredth of their time.

    `times` are those of the plan and of its rival in a tuned table; None: they are unknown. The
    trial runs the rival some times, and the ranks agree in messages, which takes about as long as
    a run of each plan.
    """
    ratio = UNKNOWN if times is None else times[1].median / times[0].median
    return min(ceil(SHARE * (max(0.0, ratio - 1) * PROBE + 1 + ratio)), MOST)
