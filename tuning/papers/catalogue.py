"""The figures of papers, by name."""

from __future__ import annotations

from han.common.suggest import expect_known
from han.tuning.papers import bienz, jocksch, luo
from han.tuning.papers.figure import Figure

FIGURES: dict[str, Figure] = {**bienz.FIGURES, **jocksch.FIGURES, **luo.FIGURES}


def figure(name: str) -> Figure:
    """Return a figure. Raises ArgumentError for an unknown name."""
    expect_known("figure", name, FIGURES)
    return FIGURES[name]
