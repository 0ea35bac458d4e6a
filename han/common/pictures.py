"""Pictures of objects for notebooks."""

from __future__ import annotations

from importlib import import_module
from typing import Any

DRAWING = "han.plots.tasks"  # imported by name: packages below it may not import it


def picture(function: str, *what: Any) -> str | None:
    """Return the SVG that a function of `DRAWING` makes, or None where matplotlib is missing.

    A notebook shows the text of an object whose picture is None.
    """
    try:
        import_module("matplotlib")
    except ImportError:
        return None
    svg: str = getattr(import_module(DRAWING), function)(*what)
    return svg
