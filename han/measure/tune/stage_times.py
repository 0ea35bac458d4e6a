"""The seconds of a call's stages on this rank, from the recorded times of its tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

import numpy as np

from han.measure.tune.windows import Series
from han.model.timeline import TaskTime
from han.tuning.costs.stages import Ranks, stage_seconds


def split(times: Sequence[TaskTime], series: Series, stage_of: Mapping[str, int]) -> list[Ranks]:
    """Return the seconds of each stage on this rank, for each observation that counts."""
    of: list[list[TaskTime]] = [[] for _ in series.begins]
    for one in times:
        at = int(np.searchsorted(series.begins, one.end, "right")) - 1
        if at >= 0:
            of[at].append(one)
    return [
        stage_seconds(of[at], stage_of, float(series.begins[at]))
        for at in np.flatnonzero(series.counted)
    ]


def typical(rows: Sequence[Ranks], whole: float | None = None) -> Ranks:
    """Return the median of each stage, scaled so that they add up to `whole` seconds.

    If it is None, they add up to the median of the totals.
    """
    middles = [median(column) for column in zip(*rows, strict=True)]
    total = sum(middles)
    whole = median(map(sum, rows)) if whole is None else whole
    scale = whole / total if total else 1.0
    return tuple(scale * one for one in middles)
