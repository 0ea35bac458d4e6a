"""``HAN_STATS``: whether collectives are counted, and where the statistics go."""

from __future__ import annotations

import os
from collections.abc import Mapping

from han.config.rc import rc
from han.config.settings import TRUTHS, as_truth

VARIABLE = "HAN_STATS"
PRINTED = "printed"


def statistics_output(environ: Mapping[str, str] = os.environ) -> tuple[str, str | None]:
    """Return where statistics go, and what is wrong with the setting or None.

    ``han.rc.stats`` says it, else HAN_STATS. The place is PRINTED, the path of a JSON file, or ""
    for no statistics.
    """
    source, said = VARIABLE, environ.get(VARIABLE, "")
    if rc.stats is not None:
        source, said = "han.rc.stats", rc.stats
    text = str(said)
    truth = as_truth(text)
    if isinstance(truth, bool) or not text:
        return (PRINTED if truth else ""), None
    if text.endswith(".json"):
        return os.path.abspath(text), None  # the program may change its directory later
    return "", f"{source} = {text!r}: expected {TRUTHS}, or the path of a .json file"
