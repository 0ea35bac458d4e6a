"""What was measured: points, each of one input in some conditions; rows are made from them."""

from __future__ import annotations

from dataclasses import dataclass

from han.config.rules import Use
from han.model.topology import Topology
from han.tasks.signature import Signature
from han.tuning.classes import operation_of
from han.tuning.costs.estimates import Estimate
from han.tuning.tuned.fingerprint import Fingerprint

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


@dataclass(frozen=True)
class Candidate:
    """What was measured; `predicted` are the seconds of the cost model, None without it."""

    use: Use
    timing: Estimate
    predicted: float | None = None


@dataclass(frozen=True)
class MeasuredCall:
    """The calls for which points are comparable; points differ in their sizes.

    `operation` is the class of the operation: "" for calls that do not reduce, ``native``,
    ``heavy`` (kernels slower than memory), ``user-defined`` or ``ordered`` (operands that do not
    commute). A point stands for all types and operations of its class. `shared`: all buffers of all
    ranks are shared arrays, which ranks read where they are.
    """

    collective: str
    operation: str
    nodes: int
    ppn: int
    levels: tuple[str, ...]
    shared: bool = False

    @property
    def call(self) -> str:
        """The collective, as tables and pictures name it: ``bcast on shared arrays``."""
        return f"{self.collective} on shared arrays" if self.shared else self.collective


@dataclass(frozen=True)
class Point:
    """What was found for one size. The best candidate is the first one.

    `keeps` says that the built-in choice is kept: no candidate is faster beyond doubt. `default`
    is the time of the built-in choice with its trials, `library` that of the MPI library.
    """

    key: MeasuredCall
    nbytes: int
    keeps: bool
    candidates: tuple[Candidate, ...]
    default: Estimate
    library: Estimate | None = None
    strategy: str = ""
    made: str = ""
    seconds: float = 0.0  # that the search took
    tried: int = 0  # candidates that were measured as whole collectives
    machine: Fingerprint | None = None  # as it was for this point; None: as the table says
    conditions: Conditions = UNKNOWN
    gains: tuple[float, ...] = ()  # of runs of han bench that confirmed the choice
    complete: bool = True  # whether the search had the time for all that it wanted to measure

    @property
    def use(self) -> Use | None:
        """What calls run; None for the built-in choice."""
        return None if self.keeps or not self.candidates else self.candidates[0].use

    @property
    def best(self) -> Estimate:
        """The time of what calls run."""
        return self.default if self.use is None else self.candidates[0].timing

    @property
    def runner_up(self) -> Candidate | None:
        """The best candidate that was not taken; None if there is none."""
        others = self.candidates[0 if self.use is None else 1 :]
        return others[0] if others else None

    @property
    def times(self) -> tuple[Estimate, Estimate] | None:
        """The times of the choice and of what trials compare it with: built-in or runner-up."""
        if self.use is not None:
            return self.best, self.default
        return None if self.runner_up is None else (self.default, self.runner_up.timing)

    @property
    def compares(self) -> bool:
        """Whether anything was compared with the built-in choice, or there is nothing else."""
        return self.complete or bool(self.candidates)

    def replaces(self, known: Point) -> bool:
        """Whether a table should hold this point in place of an earlier one of its input.

        A search whose time was over replaces none that compared more candidates.
        """
        if (known.candidates and not self.candidates) or (known.tried and not self.tried):
            return False
        return self.complete or self.tried >= known.tried

    @property
    def versions(self) -> str:
        """What the point was measured with, if it is not what its table says; or ""."""
        return "" if self.machine is None else self.machine.versions

    def time_of(self, use: Use | None) -> float | None:
        """Return the measured seconds of a use; None if it was not measured here."""
        if use is None:
            return self.default.median
        return next((c.timing.median for c in self.candidates if c.use == use), None)


def key_of(signature: Signature, topology: Topology) -> MeasuredCall:
    """Return the key of a call on a topology."""
    nodes, ppn, levels = topology.nodes, topology.ppn, topology.names
    operation = operation_of(signature)
    return MeasuredCall(signature.collective, operation, nodes, ppn, levels, signature.mapped)
