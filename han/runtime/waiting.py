"""How a process waits: the numbers that an engine takes, and the helper.

The helper is a thread that steps collectives which the other threads leave alone; its work is done
in native/engine/helper.h.
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

from mpi4py import MPI

from han import _native
from han.config.parts import Wait
from han.ranks.discover import Conditions
from han.runtime.measured import HELPER_LOOK, PATIENT_LOOK


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


_told: list[bool] = []
_crowded: list[bool] = []  # ranks outnumber processors, as some communicator of the process found


def set_helper(wait: Wait, conditions: Conditions) -> None:
    """Say how the helper of this process works.

    The last communicator that is made decides.
    """
    if conditions.oversubscribed:
        _crowded.append(True)
    look = PATIENT_LOOK if _crowded else HELPER_LOOK
    at_once, off = wait.progress == "thread", wait.progress == "off"
    _native.helper(off, _any_thread_may(), 0.0 if at_once else look)


def tell_limit(plan: _native.Plan, wait: Wait) -> None:
    """Warn once a process if the helper must leave a plan alone, because it calls MPI."""
    if _told or not plan.calls_mpi or wait.progress == "off" or _any_thread_may():
        return
    _told.append(True)
    warnings.warn(
        "MPI was not initialised with MPI_THREAD_MULTIPLE, so nonblocking collectives that send "
        "messages progress only inside calls of MPI and of han; set mpi4py.rc.thread_level = "
        "'multiple', or HAN_PROGRESS=off to accept it",
        RuntimeWarning,
        stacklevel=5,
    )


def accept_limit() -> None:
    """Let `tell_limit` be silent: it is for users who choose how MPI is initialised."""
    _told.append(True)


def _any_thread_may() -> bool:
    return MPI.Query_thread() == MPI.THREAD_MULTIPLE
