"""``han.rc``: settings that a program makes before its first ``han.Comm``, as in ``mpi4py.rc``.

Each setting corresponds to an environment variable. If the program leaves a setting at None, the
environment decides, then the configuration file, then the default.
"""

from __future__ import annotations

from typing import Any

from han.common.errors import ConfigError
from han.common.suggest import unknown

SETTINGS = {
    "config": "a configuration file, or the name of a ready one (HAN_CONFIG)",
    "timeout": "seconds until a collective that does not finish raises; 0 = never (HAN_TIMEOUT)",
    "check": "whether the ranks compare their arguments in every call (HAN_CHECK)",
    "trials": "whether calls try two ways and keep the quicker one (HAN_TRIALS)",
    "tuned": "a tuned table of 'han tune', auto or off (HAN_TUNED)",
    "reproducible": "whether reductions give the same bits in any placement (HAN_REPRODUCIBLE)",
    "wait": "how a rank waits: auto, spin, yield, sleep or futex (HAN_WAIT)",
    "progress": "whether a thread steps nonblocking calls: auto, thread or off (HAN_PROGRESS)",
    "spin": "polls before a waiting rank yields (HAN_SPIN)",
    "memory": "shared memory of one channel, such as 16MiB (HAN_MEMORY)",
    "plans": "plans kept for calls of different shapes; default: 512 (HAN_PLANS)",
    "trace": "a folder, where every rank writes the times of its tasks (HAN_TRACE)",
    "stats": "1: print times of collectives at exit; FILE.json: write them there (HAN_STATS)",
}
VARIABLES = {name: f"HAN_{name.upper()}" for name in SETTINGS}


class UnknownSettingError(ConfigError, AttributeError):
    """``han.rc`` has no such setting."""


class Settings:
    """One attribute for each name in ``SETTINGS``, None until the program sets it."""

    __slots__ = tuple(SETTINGS)

    config: Any
    timeout: float | str | None
    check: bool | str | None
    trials: bool | str | None
    tuned: Any
    reproducible: bool | str | None
    wait: str | None
    progress: str | None
    spin: int | str | None
    memory: int | str | None
    plans: int | str | None
    trace: Any
    stats: Any

    def __init__(self) -> None:
        for name in SETTINGS:
            setattr(self, name, None)

    def __call__(self, **settings: Any) -> None:
        """Set several settings, or none of them if one is unknown."""
        for name in settings:
            _require_known(name)
        for name, value in settings.items():
            setattr(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        _require_known(name)
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        raise UnknownSettingError(_unknown(name))

    def __repr__(self) -> str:
        values = ((name, getattr(self, name)) for name in SETTINGS)
        return f"han.rc({', '.join(f'{name}={v!r}' for name, v in values if v is not None)})"


def _require_known(name: str) -> None:
    if name not in SETTINGS:
        raise UnknownSettingError(_unknown(name))


def _unknown(name: str) -> str:
    return f"han.rc.{name}: {unknown('setting', name, SETTINGS)}"


rc = Settings()
