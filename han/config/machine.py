"""Machine models: the costs of messages on each level, and the rates of memory and adapters.

The cost of a message between two ranks depends on the innermost level whose groups contain both:
latency (alpha), bandwidth of one pair of ranks (R_b), and overhead of the processor on each side.
A message between nodes also goes through an adapter (rail) of each node. An adapter carries
`injection` bytes a second in each direction (R_N). This is the max-rate model (Gropp, Olson,
Samfass; Bienz et al., equation 3). A rank uses one rail for all of its messages; the ranks of a
node take the rails in turn (`han.config.rails.rail_of`). If the MPI library shares rails, messages
from `stripe` bytes on are split over all rails of a node, and each part passes as a message does
(Tran et al., section 2.1: rail binding and rail sharing).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    BeforeValidator,
    Field,
    PlainSerializer,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from han.common.units import UNITS
from han.config.document_types import FromList, Model, Size, validated
from han.config.errors import Inconsistent, Problem
from han.config.source import READY, read_document

MACHINES = READY / "machines"
TIMES = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
BITS = {"bit": 0.125, "kbit": 125.0, "Mbit": 125e3, "Gbit": 125e6}
BYTES = {unit: float(nbytes) for unit, nbytes in UNITS.items()}
_NUMBER = r"\s*([0-9]+(?:\.[0-9]+)?)\s*"


def parse_time(text: object) -> float:
    """Return the seconds of a text such as ``1.5us`` or ``40ns``; raises ValueError."""
    match = re.fullmatch(_NUMBER + r"([A-Za-z]+)", text) if isinstance(text, str) else None
    if match is None or match[2] not in TIMES:
        raise ValueError(f"{text!r} is not a time; write 1.5us, 40ns, 2ms or 1s")
    return float(Fraction(match[1])) * TIMES[match[2]]


def parse_rate(text: object) -> float:
    """Return the bytes a second of a text such as ``6.9GB/s`` or ``1Gbit/s``; raises ValueError."""
    match = re.fullmatch(_NUMBER + r"([A-Za-z]+)/s", text) if isinstance(text, str) else None
    factor = {**BITS, **BYTES}.get(match[2]) if match else None
    if match is None or factor is None or not Fraction(match[1]):
        raise ValueError(f"{text!r} is not a rate above 0; write 6.9GB/s, 800MB/s or 1Gbit/s")
    return float(Fraction(match[1])) * factor


def _short(value: float, digits: int) -> str:
    """Return a number with so many decimals at most."""
    return f"{value:.{digits}f}".rstrip("0").rstrip(".")


TIME_SCHEMA = {
    "type": "string",
    "pattern": rf"^{_NUMBER}({'|'.join(TIMES)})$",
    "examples": ["1.5us", "40ns"],
}
RATE_SCHEMA = {
    "type": "string",
    "pattern": rf"^{_NUMBER}({'|'.join([*BITS, *BYTES])})/s$",
    "examples": ["6.9GB/s", "1Gbit/s"],
}
Seconds = Annotated[
    float,
    BeforeValidator(parse_time),
    WithJsonSchema(TIME_SCHEMA),
    PlainSerializer(lambda seconds: f"{_short(seconds * 1e9, 4)}ns", when_used="json"),
]
Rate = Annotated[
    float,
    BeforeValidator(parse_rate),
    WithJsonSchema(RATE_SCHEMA),
    PlainSerializer(lambda rate: f"{_short(rate / 1e6, 6)}MB/s", when_used="json"),
]


UNSOURCED = ("name", "level", "ranks", "memory_of")  # of the machine's shape: no measured values


def ranks_on_a_rail(ppn: int, rails: int) -> int:
    """Return how many of a node's `ppn` ranks share its busiest rail."""
    return -(-ppn // rails)


class Link(Model):
    """The costs of messages and flags between the ranks of one level."""

    name: str = Field(description="The name of the level.")
    latency: Seconds = Field(description="Time of an empty message.")
    bandwidth: Rate = Field(description="Bytes a second that one pair of ranks reaches.")
    overhead: Seconds = Field(
        default=0.0, description="Time that a message takes of the processor on each side."
    )
    copying: Rate | None = Field(
        default=None,
        description="Rate at which the processors on both sides move the bytes of a message. "
        "Without it the adapter moves them.",
    )
    eager: Size = Field(
        default=64 * 1024,
        description="The largest eager message. Above it sender and receiver meet first "
        "(rendezvous), which costs two latencies unless the receive is late.",
    )
    flag: Seconds = Field(default=0.0, description="Time of a flag from one cache to another.")
    copy_rate: Annotated[Rate | None, Field(alias="copy")] = Field(
        default=None,
        description="Bytes a second that a processor copies from or to memory of another rank of "
        "this level. Without it the rate of the node.",
    )
    reduce_rate: Annotated[Rate | None, Field(alias="reduce")] = Field(
        default=None,
        description="Bytes a second that a processor reduces where an operand is in memory of "
        "another rank of this level. Without it the rate of the node.",
    )
    cache: Size = Field(
        default=0,
        description="Bytes of the cache that the ranks of a group share. Data that fits is copied "
        "and reduced at the rates of the level, and takes nothing of the memory's rate.",
    )
    ranks: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="Ranks of a group, for levels inside of nodes."
    )


class Node(Model):
    """What the ranks of a node share."""

    level: str = Field(description="The name of the level whose groups are nodes.")
    copy_rate: Annotated[Rate, Field(alias="copy")] = Field(
        description="Bytes a second that one processor copies."
    )
    reduce_rate: Annotated[Rate, Field(alias="reduce")] = Field(
        description="Bytes a second that one processor reduces."
    )
    memory: Rate = Field(description="Bytes a second that all processors of a node move together.")
    memory_of: str = Field(
        default="",
        description="The level inside the node whose groups have such a memory each. Without it "
        "the node has one.",
    )
    injection: Rate = Field(description="Bytes a second that an adapter carries in each direction.")
    rails: Annotated[int, Field(ge=1)] = Field(
        default=1,
        description="Adapters of a node. A rank uses one of them, unless `stripe` is set.",
    )
    stripe: Size | None = Field(
        default=None,
        description="The MPI library splits messages of so many bytes or more evenly over all "
        "rails. Without it every message takes the rail of its rank.",
    )
    burst: Size = Field(default=0, description="Bytes that an adapter takes at once after a pause.")
    operation: Seconds = Field(default=0.0, description="Time that any operation takes.")
    call: Seconds = Field(
        default=0.0, description="Time that a call takes before its first operation."
    )
    cores: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="Cores of a node. Without it each rank has a core."
    )
    switch: Seconds = Field(
        default=0.0,
        description="Time until a rank that waited runs again, where ranks outnumber cores.",
    )
    together: bool = Field(
        default=False, description="Whether all nodes share one set of cores, as emulated ones do."
    )
    rdma: bool = Field(
        default=False,
        description="Whether adapters read and write memory by themselves (remote DMA).",
    )
    mesh: bool = Field(
        default=False,
        description="Whether cache lines move slowly from core to core; 'han info' shows it.",
    )


class MachineModel(Model):
    """A machine: the costs of its levels and of its nodes."""

    about: str = Field(description="What the machine is, in one line.")
    levels: Annotated[tuple[Link, ...], FromList] = Field(
        description="The levels, innermost first.", json_schema_extra={"minItems": 1}
    )
    node: Node = Field(description="Costs and limits of a node.")
    nodes: Annotated[int, Field(ge=1)] = Field(default=1, description="Nodes of the machine.")
    ppn: Annotated[int, Field(ge=1)] = Field(default=1, description="Ranks on a node.")
    sources: dict[str, str] = Field(
        default={}, description="Where each value is from, by names such as network.latency."
    )

    @field_validator("levels")
    @classmethod
    def _distinct(cls, levels: tuple[Link, ...]) -> tuple[Link, ...]:
        names = [level.name for level in levels]
        if not names or len(set(names)) < len(names):
            raise ValueError("expected one or more levels with different names")
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
            return [Problem(("node", "level"), f"is not a level; levels: {known}", self.node.level)]
        found = []
        if self.node.memory_of and self.node.memory_of not in names[: self.node_level + 1]:
            known = ", ".join(names[: self.node_level + 1])
            told = f"is no level inside a node; levels: {known}"
            found.append(Problem(("node", "memory_of"), told, self.node.memory_of))
        for k, level in enumerate(self.levels):
            fixed = level.ranks is not None
            if k < self.node_level and not fixed:
                found.append(Problem(("levels", k, "ranks"), "is missing for a level inside nodes"))
            if k >= self.node_level and fixed:
                found.append(
                    Problem(("levels", k, "ranks"), "is only for levels inside nodes; see --ppn")
                )
        return found

    def _odd_sources(self) -> list[Problem]:
        known = self.values()
        return [
            Problem(("sources", key), f"is not a value of this machine; values: {', '.join(known)}")
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

    @property
    def memory_level(self) -> int:
        """Number of the level whose groups have a memory each."""
        return self.names.index(self.node.memory_of or self.node.level)

    def values(self) -> list[str]:
        """Names of the values that the file sets: ``network.latency``, ``node.copy``."""
        parts: list[tuple[str, Model]] = [(level.name, level) for level in self.levels]
        parts.append(("node", self.node))
        return [
            f"{name}.{type(part).model_fields[field].alias or field}"
            for name, part in parts
            for field in type(part).model_fields
            if field in part.model_fields_set and field not in UNSOURCED
        ]

    def to_mapping(self) -> dict[str, Any]:
        """Return the machine as plain data that ``load_machine`` reads."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)

    def place(self, nodes: int, ppn: int) -> tuple[tuple[int, ...], ...]:
        """Return the domain of each rank on each level; each node has `ppn` consecutive ranks."""
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
    "levels": [f.alias or name for name, f in Link.model_fields.items()],
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
    return validated(MachineModel, document.data, document.origin, KEYS)
