"""A figure of a paper: what is computed, on which machine, and what the paper says about it.

Papers print few numbers of their figures. A claim is a sentence of the paper about a figure, beside
what is found here; `holds` says whether both agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from han.common.errors import ArgumentError
from han.common.units import format_size
from han.config.config import Config, load_config
from han.config.machine import MachineModel
from han.model.series import Panel
from han.tasks.call import call_signature
from han.tasks.signature import Signature
from han.tuning.prediction import Where, plan_of, predict, sized, with_choice

FASTER = "times faster"
Points = dict[int, float]  # a value for each x
Series = dict[str, Points]


CLOSE = 1.25  # a number is close to another one that is at most so many times as large


@dataclass(frozen=True)
class Printed:
    """A number that a paper prints, and the number that is found here."""

    what: str
    paper: float
    ours: float
    unit: str = "times"

    @property
    def error(self) -> float:
        """The relative error of the number that is found."""
        return self.ours / self.paper - 1

    @property
    def close(self) -> bool:
        """Whether neither number is more than `CLOSE` times the other."""
        return self.ours > 0 and 1 / CLOSE <= self.ours / self.paper <= CLOSE


@dataclass(frozen=True)
class Claim:
    """What the paper says, what is found here, and whether both agree.

    `numbers` are those that the paper prints about it.
    """

    paper: str
    ours: str
    holds: bool
    numbers: tuple[Printed, ...] = ()


@dataclass(frozen=True)
class Computed:
    """The panels of a figure, the claims about it, and lines of text of figures without numbers."""

    panels: tuple[Panel, ...] = ()
    claims: tuple[Claim, ...] = ()
    text: tuple[str, ...] = ()


@dataclass(frozen=True)
class Way:
    """One way to carry out calls: what a rule says; `config` is a ready configuration or none.

    Ways of the same name are candidates, of which the fastest counts, as if they had been tuned.
    """

    name: str
    algorithms: tuple[str, ...] = ()
    segment: str | None = None
    composition: str | None = None
    config: str | None = None
    most: int | None = None  # serves calls of at most so many bytes
    least: int = 0

    @cached_property
    def rules(self) -> Config:
        """The configuration with this way as its first rule."""
        return with_choice(
            load_config(self.config), self.algorithms, self.segment, self.composition
        )

    def serves(self, nbytes: int) -> bool:
        """Whether it is for calls of this size."""
        return self.least <= nbytes and (self.most is None or nbytes <= self.most)


@dataclass(frozen=True)
class Setting:
    """The machine, the largest number of nodes, the ranks of a node, and sizes in bytes.

    `tell` is called before each simulation.
    """

    machine: MachineModel
    nodes: int
    ppn: int
    sizes: tuple[int, ...]
    tell: Callable[[str], None] = lambda _: None

    @property
    def size(self) -> int:
        """The largest number of ranks."""
        return self.nodes * self.ppn

    @property
    def powers(self) -> list[int]:
        """Numbers of nodes to compare: powers of two from 2 to `nodes`."""
        return [n for n in (1 << k for k in range(1, 20)) if n <= self.nodes]

    def expect(self, nodes: int = 1, ppn: int = 1, nbytes: int = 1) -> None:
        """Raise ArgumentError unless there are so many nodes, ranks a node, and bytes."""
        for option, least, given in (
            ("--nodes", nodes, self.nodes),
            ("--ppn", ppn, self.ppn),
            ("sizes up to", nbytes, max(self.sizes)),
        ):
            if given < least:
                raise ArgumentError(f"{option} {given}: this figure needs {least} or more")

    def seconds(self, way: Way, signature: Signature, nodes: int | None = None) -> float:
        """Simulate one call."""
        where = Where(self.machine, nodes or self.nodes, self.ppn)
        call = f"{signature.collective} of {format_size(signature.nbytes)}"
        self.tell(f"{way.name}: {call} on {where.size} ranks")
        return predict(where, plan_of(where, way.rules, signature)).seconds

    def over_sizes(self, ways: Iterable[Way], signature: Signature) -> Series:
        """Simulate a call of all sizes in several ways."""
        found: Series = {}
        for way in ways:
            points = found.setdefault(way.name, {})
            for nbytes in filter(way.serves, self.sizes):
                us = 1e6 * self.seconds(way, sized(signature, nbytes))
                points[nbytes] = min(us, points.get(nbytes, us))
        return {name: dict(sorted(points.items())) for name, points in found.items()}


@dataclass(frozen=True)
class Figure:
    """A figure of a paper, and the setting of the paper."""

    paper: str
    about: str
    make: Callable[[Setting], Computed]
    machine: str = ""
    nodes: int = 1
    ppn: int = 1
    sizes: tuple[int, ...] = ()
    why: str = ""  # in what this differs from the paper, and why
    printed: bool = False  # whether the paper prints numbers that its claims compare


def call(collective: str, nbytes: int = 8) -> Signature:
    """Return a call on elements of 8 bytes, which it adds if it reduces."""
    return call_signature(collective, nbytes, "sum", "f8", 0)


def gains(series: Mapping[str, Mapping[int, float]], name: str, other: str) -> Points:
    """Return how many times faster one way is than another one, where both have a value."""
    ours = series[name]
    return {x: theirs / ours[x] for x, theirs in series[other].items() if x in ours}


def faster(series: Series, name: str) -> Series:
    """Return how many times faster one way is than each other."""
    return {f"than {other}": gains(series, name, other) for other in series if other != name}


def modelled(xs: Iterable[int], formulas: Mapping[str, Callable[[int], float]]) -> Series:
    """Return the microseconds of formulas that give seconds, for each x."""
    known = list(xs)
    return {name: {x: 1e6 * formula(x) for x in known} for name, formula in formulas.items()}


def fastest(series: Series) -> dict[int, str]:
    """Return the name of the fastest way for each x."""
    every = sorted({x for points in series.values() for x in points})
    return {
        x: min((points[x], name) for name, points in series.items() if x in points)[1]
        for x in every
    }


def wins(series: Series, name: str) -> list[int]:
    """Return each x for which a way is the fastest."""
    return [x for x, best in fastest(series).items() if best == name]


def sizes(first: int, last: int, factor: int = 4) -> tuple[int, ...]:
    """Return sizes from the first to the last, each `factor` times the one before."""
    found = [first]
    while found[-1] * factor <= last:
        found.append(found[-1] * factor)
    return tuple(found)
