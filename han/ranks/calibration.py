"""The calibration that this process finds, and whether one is to be made."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence

from han.config.arrange import Facts
from han.config.environment import CALIBRATE_FIRST, CALIBRATE_OFF, calibrate_setting
from han.ranks.machine import fingerprint
from han.tuning.profile import Profile
from han.tuning.tuned.calibrated import Kept, find

MBIT = 0.125  # MB
_problems: list[str] = []  # that the user was not told of yet
_tried: list[bool] = []  # that a communicator of this process has calibrated


def kept(environ: Mapping[str, str] = os.environ) -> Kept:
    """Return the calibration of this machine that the user's data folder has; it never raises."""
    if calibrate_setting(environ) == CALIBRATE_OFF:
        return Kept(about="off")
    return find(fingerprint())


def known_profile() -> Profile:
    """Return what is known of this machine: by a calibration, or what the system tells."""
    found = kept()
    if found.problem:
        remember(found.problem)
    return found.profile.over(Profile(injection=MBIT * fingerprint().link))


def asks_first(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether the first communicator without a calibration makes one."""
    return not _tried and calibrate_setting(environ) == CALIBRATE_FIRST


def is_uncalibrated(facts: Sequence[Facts]) -> bool:
    """Return whether the ranks of these facts calibrate: rank 0 asks for it, and lacks values."""
    if len(facts) == 1 or not facts[0].calibrates:
        return False
    known, nodes = Profile(*facts[0].profile), len({one.memory for one in facts})
    return (nodes < len(facts) and not known.copy) or (nodes > 1 and not known.has_network)


def begin() -> None:
    """Remember that this process takes part in a calibration: there is no second one."""
    _tried[:] = [True]


def remember(problem: str) -> None:
    """Keep a problem until `tell_problems`."""
    _problems.append(problem)


def tell_problems() -> None:
    """Warn about calibrations that cannot be used."""
    found = list(dict.fromkeys(_problems))
    _problems.clear()
    for problem in found:
        warnings.warn(f"calibration: {problem}", UserWarning, stacklevel=5)
