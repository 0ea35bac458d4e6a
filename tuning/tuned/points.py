"""What was measured: points, each of one input; rows of tuned tables are made from them."""

from __future__ import annotations

from dataclasses import dataclass

from han.common.units import format_us
from han.config.rules import Use
from han.model.topology import Topology
from han.tasks.signature import Signature
from han.tuning.classes import operation_of
from han.tuning.tuned.conditions import UNKNOWN, Conditions
from han.tuning.tuned.fingerprint import Fingerprint

GAIN = 0.97  # a choice replaces the built-in one if it takes at most so much of its time


@dataclass(frozen=True)
class Timing:
    """A measured time in seconds, and the interval that holds its median with 95 %."""

    median: float
    low: float
    high: float
    count: int

    def describe(self) -> str:
        """Return ``12.3 us (12.1 us to 12.6 us, 40 calls)``."""
        median, low, high = (format_us(s * 1e6) for s in (self.median, self.low, self.high))
        return f"{median} us ({low} to {high} us, {self.count} calls)"


@dataclass(frozen=True)
class Candidate:
    """What was measured; `predicted` are the seconds of the cost model, None without it."""

    use: Use
    timing: Timing
    predicted: float | None = None


@dataclass(frozen=True)
class Key:
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

    key: Key
    nbytes: int
    keeps: bool
    candidates: tuple[Candidate, ...]
    default: Timing
    library: Timing | None = None
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
    def best(self) -> Timing:
        """The time of what calls run."""
        return self.default if self.use is None else self.candidates[0].timing

    @property
    def runner_up(self) -> Candidate | None:
        """The best candidate that was not taken; None if there is none."""
        others = self.candidates[0 if self.use is None else 1 :]
        return others[0] if others else None

    @property
    def times(self) -> tuple[Timing, Timing] | None:
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


def key_of(signature: Signature, topology: Topology) -> Key:
    """Return the key of a call on a topology."""
    nodes, ppn, levels = topology.nodes, topology.ppn, topology.names
    operation = operation_of(signature)
    return Key(signature.collective, operation, nodes, ppn, levels, signature.mapped)
