"""The table of ``han paper --check``: numbers that papers print, and those found here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from han.common.tables import shown_table
from han.model.series import short
from han.tuning.papers.figure import CLOSE, Computed, Printed


@dataclass(frozen=True)
class Checked:
    """A number of a figure, and the machine and ranks for which it is computed."""

    figure: str
    machine: str
    ranks: int
    number: Printed

    def record(self) -> dict[str, Any]:
        """Return it as plain data."""
        one = self.number
        return {
            "figure": self.figure,
            "machine": self.machine,
            "ranks": self.ranks,
            "number": one.what,
            "unit": one.unit,
            "paper": one.paper,
            "here": one.ours,
            "error": one.error,
            "close": one.close,
        }


def checked(figure: str, machine: str, ranks: int, found: Computed) -> list[Checked]:
    """Return the numbers of a computed figure."""
    numbers = (one for claim in found.claims for one in claim.numbers)
    return [Checked(figure, machine, ranks, one) for one in numbers]


def table(rows: Sequence[Checked]) -> str:
    """Return a table of numbers with their relative errors, and how many are close."""
    heads = ("figure", "machine", "ranks", "number", "unit", "paper", "here", "error", "close")
    texts = shown_table("", heads, map(_texts, rows), left=("machine", "number", "unit", "close"))
    close = sum(row.number.close for row in rows)
    middle = median(abs(row.number.error) for row in rows)
    last = f"{close} of {len(rows)} are within {CLOSE} times; median error {middle:.0%}"
    return f"# numbers of papers, and what is found here\n{texts}\n{last}"


def _texts(row: Checked) -> tuple[str, ...]:
    one = row.number
    return (
        row.figure,
        row.machine or "-",
        str(row.ranks),
        one.what,
        one.unit,
        short(one.paper),
        short(one.ours),
        f"{one.error:+.0%}",
        "yes" if one.close else "no",
    )
