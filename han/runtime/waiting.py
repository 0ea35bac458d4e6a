"""The wait policy as the numbers that an engine takes."""

from __future__ import annotations

from typing import NamedTuple

from han.config.parts import Wait
from han.ranks.discover import Conditions


class Waiting(NamedTuple):
    """How an engine waits: ``han_wait_policy`` in native/engine.h."""

    spins: int
    least_spins: int
    sleep_ns: int
    timeout: float
    futex: bool
    patient: bool

    @classmethod
    def of(cls, wait: Wait, conditions: Conditions) -> Waiting:
        """Convert a wait policy.

        ``yield`` never spins. If ranks outnumber processors, all other policies but ``spin`` spin
        for one round only, because another rank needs the processor. ``auto`` spins less while its
        yields let other threads run; where it may sleep because ranks outnumber processors, it
        sleeps later after brief waits.
        """
        patient = 1 if conditions.oversubscribed else wait.spin
        spins = {"spin": (1 << 32) - 1, "yield": 0}.get(wait.policy, patient)
        least = min(1, spins) if wait.policy == "auto" else spins
        nap = 50_000 if wait.policy == "sleep" else 0
        patient = wait.policy == "auto" and not conditions.rationed
        return cls(spins, least, nap, float(wait.timeout), naps(wait, conditions), patient)


def naps(wait: Wait, conditions: Conditions) -> bool:
    """Return whether ranks may sleep in the kernel until a peer posts a flag.

    Under a quota of processor time, and where ranks outnumber processors, a polling rank uses up
    time that its peers need.
    """
    scarce = conditions.rationed or conditions.oversubscribed
    return wait.policy == "futex" or (wait.policy == "auto" and scarce)
