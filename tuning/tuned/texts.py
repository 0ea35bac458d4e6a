"""Texts about measurements of tuned tables, and about what they chose."""

from __future__ import annotations

from collections.abc import Sequence

from han.common.units import format_size
from han.config.rules import KindUse, LevelUse, Use
from han.tasks.choice import SIZES


def at(measured: int, wanted: int, around: str = "") -> str:
    """Return the size that was measured and, if it is another one, the size that is wanted."""
    where = f"at {format_size(measured)}"
    return where if measured == wanted else f"{where}, for {format_size(wanted)}{around}"


def origin(source: str, strategy: str = "", made: str = "", *more: str) -> list[str]:
    """Return the line that says where a measurement is kept and how it was made, if known."""
    how = " ".join(text for text in (strategy, made) if text)
    told = [text for text in (f"in {source}" if source else "", how, *more) if text]
    return [", ".join(told)] if told else []


def confirmations(gains: Sequence[float]) -> list[str]:
    """Return the line that says what runs of the bench have found, if there were any."""
    told = ", ".join(f"{gain:.2f}" for gain in gains)
    return [f"built-in {told} times as long by han bench --tuned"] if gains else []


def spell(use: Use) -> str:
    """Return ``node: sm flat (chunk 16KiB), network: adapt chain; segment 64KiB``."""
    levels = [
        f"{name}: {level.submodule} {_spelled(level)}"
        + "".join(f", {kind}: {_spelled(own)}" for kind, own in level.kinds.items())
        for name, level in use.levels.items()
    ]
    segment = use.segment if isinstance(use.segment, int) else None
    more = f"; segment {format_size(segment)}" if segment else ""
    return ", ".join(levels) + more + ("; lockstep" if use.schedule == "lockstep" else "")


def _spelled(use: LevelUse | KindUse) -> str:
    shown = ", ".join(f"{name} {_value(name, value)}" for name, value in use.parameters.items())
    return f"{use.algorithm}" + (f" ({shown})" if shown else "")


def _value(name: str, value: object) -> str:
    return format_size(value) if name in SIZES and isinstance(value, int) else str(value)
