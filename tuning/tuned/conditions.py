"""The conditions of a search: which calls it made."""

from __future__ import annotations

from dataclasses import dataclass

CACHES = ("warm caches", "data written before each call")  # without and with --fresh


@dataclass(frozen=True)
class Conditions:
    """The calls that a search made; "" is unknown.

    `space` stands for what restricted the search; "": nothing. `fresh`: ranks wrote their data
    before each call.
    """

    dtype: str = ""
    op: str = ""
    fresh: bool = False
    space: str = ""

    def describe(self) -> str:
        """Return ``float64, sum, warm caches``; "" if nothing is known."""
        if self == Conditions():
            return ""
        return ", ".join(filter(None, (self.dtype, self.op, CACHES[self.fresh])))

    @classmethod
    def of_text(cls, text: str, space: str = "") -> Conditions:
        """Return the conditions that a text describes; raises ValueError."""
        if not text:
            return cls(space=space)
        words = text.split(", ")
        if words[-1] not in CACHES or len(words) > 3:
            raise ValueError(f"{text!r}: expected an element type, an operation and caches")
        dtype, op, *_ = [*words[:-1], "", ""]
        return cls(dtype, op, words[-1] == CACHES[1], space)

    def differences(self, other: Conditions) -> dict[str, tuple[object, object]]:
        """Return what differs for calls, by name: the value here, and the other one."""
        pairs = {n: (getattr(self, n), getattr(other, n)) for n in ("dtype", "op", "fresh")}
        known = self != Conditions() != other
        return {name: pair for name, pair in pairs.items() if known and pair[0] != pair[1]}


UNKNOWN = Conditions()
