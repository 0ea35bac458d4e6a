"""The environment variables that han knows, and what it says of those that it does not."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

from han.common.suggest import unknown
from han.config.rc import SETTINGS, VARIABLES

PREFIX, OF_TESTS = "HAN_", "HAN_TEST_"
ENVIRONMENT = {
    **{VARIABLES[name]: about.partition(" (HAN_")[0] for name, about in SETTINGS.items()},
    "HAN_ARENA": "most memory of a process's shared arrays, as 8GiB; half of all if unsaid",
    "HAN_SHM_DIR": "a folder in memory where ranks meet to share it; /dev/shm if unsaid",
}


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """Return a text for each variable that begins as han's do and is none of them."""
    return [
        unknown(f"environment variable {name}", name, ENVIRONMENT)
        for name in sorted(environ)
        if name.startswith(PREFIX) and not name.startswith(OF_TESTS) and name not in ENVIRONMENT
    ]


def warn_of_unknown(environ: Mapping[str, str]) -> None:
    """Warn of each; Python shows a warning once a process."""
    for text in unknown_variables(environ):
        warnings.warn(text, UserWarning, stacklevel=1)
