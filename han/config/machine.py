"""Machines to predict: what a level's messages cost, what a node's memory and adapters carry.

A message between two ranks takes the parameters of the innermost level that holds both: latency
(alpha), the bandwidth that one pair of ranks reaches (R_b), the processor's overhead on each side.
What leaves a node goes through its adapters, the rails, each of which takes `injection` bytes a
second and direction (R_N): the max-rate model (Gropp, Olson, Samfass; Bienz et al., equation 3).
A rank uses one rail for all of its messages, ranks of a node take the rails in turn: `rail_of`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationError, field_validator, model_validator

from han.config.errors import Inconsistent, Problem, config_error, problems_of
from han.config.models import FromList, Model, Size
from han.config.source import READY, read_document

MACHINES = READY / "machines"
TIMES = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
BITS = {"bit": 0.125, "kbit": 125.0, "Mbit": 125e3, "Gbit": 125e6}
BYTES = {"B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30}
_NUMBER = r"\s*([0-9]+(?:\.[0-9]+)?)\s*"


def parse_time(text: object) -> float:
    """Return the seconds that ``1.5us``, ``40ns`` or ``2ms`` says; raises ValueError."""
    match = re.fullmatch(_NUMBER + r"([A-Za-z]+)", text) if isinstance(text, str) else None
    if match is None or match[2] not in TIMES:
        raise ValueError(f"{text!r} is no time; write 1.5us, 40ns, 2ms or 1s")
    return float(Fraction(match[1])) * TIMES[match[2]]


def parse_rate(text: object) -> float:
    """Return the bytes per second that ``6.9GB/s`` or ``1Gbit/s`` says; raises ValueError."""
    match = re.fullmatch(_NUMBER + r"([A-Za-z]+)/s", text) if isinstance(text, str) else None
    factor = {**BITS, **BYTES}.get(match[2]) if match else None
    if match is None or factor is None or not Fraction(match[1]):
        raise ValueError(f"{text!r} is no rate above 0; write 6.9GB/s, 800MB/s or 1Gbit/s")
    return float(Fraction(match[1])) * factor


Seconds = Annotated[float, BeforeValidator(parse_time)]
Rate = Annotated[float, BeforeValidator(parse_rate)]


def rail_of(local: int, rails: int) -> int:
    """Return the rail that carries all messages of a node's rank number `local`."""
    return local % rails


def ranks_on_a_rail(ppn: int, rails: int) -> int:
    """Return how many of a node's `ppn` ranks share its busiest rail."""
    return -(-ppn // rails)


class Link(Model):
    """What messages and flags between ranks of one level cost.

    `ranks` is the size of a domain of an inner level, where it is fixed. `flag` is a flag's way
    from one cache to another. `copying` is the rate at which the processors on both sides move a
    message's bytes (none: the adapter does it). Messages above `eager` meet first: two more
    latencies, unless the receive is late anyway.
    """

    name: str
    latency: Seconds
    bandwidth: Rate
    overhead: Seconds = 0.0
    copying: Rate | None = None
    eager: Size = 64 * 1024
    flag: Seconds = 0.0
    ranks: Annotated[int, Field(ge=1)] | None = None


class Node(Model):
    """What the ranks of a node share.

    `level` names the level whose domains are nodes. One processor copies `copy` and reduces
    `reduce` bytes a second, all of a node together move `memory`. Each of `rails` adapters takes
    `injection` bytes a second each way, `burst` bytes at once after a pause. A rank uses one of
    them, so only several ranks reach more than `injection`. `operation` is what any operation
    takes, `call` what a call takes before its first. With more ranks than `cores` (none: a core a
    rank), a rank that waited runs again after `switch`; `together` says that the nodes share one
    set of cores, as emulated ones do; `mesh`, that lines are slow from core to core (`han info`
    tells), which built-in choices follow.
    """

    level: str
    copy_rate: Annotated[Rate, Field(alias="copy")]
    reduce_rate: Annotated[Rate, Field(alias="reduce")]
    memory: Rate
    injection: Rate
    rails: Annotated[int, Field(ge=1)] = 1
    burst: Size = 0
    operation: Seconds = 0.0
    call: Seconds = 0.0
    cores: Annotated[int, Field(ge=1)] | None = None
    switch: Seconds = 0.0
    together: bool = False
    mesh: bool = False


class MachineModel(Model):
    """A machine: its levels, innermost first, and its nodes; `sources`: where values are from."""

    about: str
    levels: Annotated[tuple[Link, ...], FromList]
    node: Node
    nodes: Annotated[int, Field(ge=1)] = 1
    ppn: Annotated[int, Field(ge=1)] = 1
    sources: dict[str, str] = {}

    @field_validator("levels")
    @classmethod
    def _distinct(cls, levels: tuple[Link, ...]) -> tuple[Link, ...]:
        names = [level.name for level in levels]
        if not names or len(set(names)) < len(names):
            raise ValueError("expected one or more levels with names of their own")
        return levels

    @model_validator(mode="after")
    def _consistent(self) -> MachineModel:
        problems = [*self._misplaced(), *self._odd_sources()]
        if problems:
            raise Inconsistent(problems)
        return self

    def _misplaced(self) -> list[Problem]:
        names = self.names
        if self.node.level not in names:
            known = ", ".join(names)
            return [Problem(("node", "level"), f"is no level; levels: {known}", self.node.level)]
        found = []
        for k, level in enumerate(self.levels):
            fixed = level.ranks is not None
            if k < self.node_level and not fixed:
                found.append(Problem(("levels", k, "ranks"), "is missing: a level inside of nodes"))
            if k >= self.node_level and fixed:
                found.append(Problem(("levels", k, "ranks"), "says nothing here: see --ppn"))
        return found

    def _odd_sources(self) -> list[Problem]:
        known = self.values()
        return [
            Problem(("sources", key), f"is no value of this machine; values: {', '.join(known)}")
            for key in self.sources
            if key not in known
        ]

    @property
    def names(self) -> list[str]:
        """Names of the levels, innermost first."""
        return [level.name for level in self.levels]

    @property
    def node_level(self) -> int:
        """Number of the level whose domains are nodes."""
        return self.names.index(self.node.level)

    def values(self) -> list[str]:
        """Names of the values that the file sets: ``network.latency``, ``node.copy``."""
        parts: list[tuple[str, Model]] = [(level.name, level) for level in self.levels]
        parts.append(("node", self.node))
        return [
            f"{name}.{type(part).model_fields[field].alias or field}"
            for name, part in parts
            for field in type(part).model_fields
            if field in part.model_fields_set and field not in ("name", "level", "ranks")
        ]

    def place(self, nodes: int, ppn: int) -> tuple[tuple[int, ...], ...]:
        """Return each rank's domain at each level, for consecutive ranks on nodes of `ppn`."""
        size = nodes * ppn
        found = []
        for k, level in enumerate(self.levels):
            if k < self.node_level:
                inner = level.ranks or 1
                across = -(-ppn // inner)
                found.append(tuple(r // ppn * across + r % ppn // inner for r in range(size)))
            elif k == self.node_level:
                found.append(tuple(r // ppn for r in range(size)))
            else:
                found.append((0,) * size)
        return tuple(found)


KEYS = {
    "": list(MachineModel.model_fields),
    "levels": list(Link.model_fields),
    "node": [f.alias or name for name, f in Node.model_fields.items()],
}


def ready_machines() -> dict[str, Path]:
    """Return the machines that come with han, by name."""
    return {path.stem: path for path in sorted(MACHINES.glob("*.yaml"))}


def load_machine(source: str | Path | Mapping[str, Any]) -> MachineModel:
    """Read a machine: a YAML file, the name of a ready one, or a mapping.

    Raises ConfigError with the file, line and key of everything that is wrong.
    """
    document = read_document(source, "machine", ready_machines())
    try:
        return MachineModel.model_validate(document.data)
    except ValidationError as error:
        raise config_error(problems_of(error, KEYS), document.origin) from None
