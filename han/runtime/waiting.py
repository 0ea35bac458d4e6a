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

    @classmethod
    def of(cls, wait: Wait, conditions: Conditions) -> Waiting:
        """Convert a wait policy.

        ``yield`` never spins. If ranks outnumber processors, all other policies but ``spin`` spin
        for one round only, because another rank needs the processor. ``auto`` spins less while its
        yields let other threads run.
        """
        patient = 1 if conditions.oversubscribed else wait.spin
        spins = {"spin": (1 << 32) - 1, "yield": 0}.get(wait.policy, patient)
        least = min(1, spins) if wait.policy == "auto" else spins
        nap = 50_000 if wait.policy == "sleep" else 0
        return cls(spins, least, nap, float(wait.timeout), naps(wait, conditions))


def naps(wait: Wait, conditions: Conditions) -> bool:
    """Return whether ranks may sleep in the kernel until a peer posts a flag.

    Under a quota of processor time, a polling rank uses up time that its peers need.
    """
    return wait.policy == "futex" or (wait.policy == "auto" and conditions.rationed)
