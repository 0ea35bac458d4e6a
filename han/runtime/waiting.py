"""The wait policy in the terms of an engine."""

from __future__ import annotations

from typing import NamedTuple

from han.config.models import Wait
from han.ranks.discover import Conditions


class Waiting(NamedTuple):
    """How an engine waits: ``han_wait_policy`` in the C core."""

    spins: int
    least_spins: int
    sleep_ns: int
    timeout: float
    futex: bool

    @classmethod
    def of(cls, wait: Wait, conditions: Conditions) -> Waiting:
        """Turn a wait policy into numbers.

        Where ranks outnumber processors, every policy but ``spin`` polls once: another rank has
        work to do. ``auto`` spins less while yielding shows that others want the processor.
        """
        patient = 1 if conditions.oversubscribed else wait.spin
        spins = {"spin": (1 << 32) - 1, "yield": 0}.get(wait.policy, patient)
        least = min(1, spins) if wait.policy == "auto" else spins
        nap = 50_000 if wait.policy == "sleep" else 0
        return cls(spins, least, nap, float(wait.timeout), naps(wait, conditions))


def naps(wait: Wait, conditions: Conditions) -> bool:
    """Whether ranks may sleep in the kernel until a flag is posted.

    Under a quota of processor time a rank that polls uses up time that others could work in.
    """
    return wait.policy == "futex" or (wait.policy == "auto" and conditions.rationed)
