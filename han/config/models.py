"""The parts of a configuration: levels, rules, waiting. Frozen, strict, no unknown keys."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PlainSerializer,
    PlainValidator,
    Tag,
    WithJsonSchema,
    model_validator,
)

from han.common.suggest import unknown
from han.common.units import format_size, parse_size
from han.config.catalogue import ParameterValue
from han.model.collectives import COLLECTIVES, expect_collective

T = TypeVar("T")
NamedScope = Literal["l3", "numa", "socket", "shared_memory", "all"]
NAMED_SCOPES: tuple[str, ...] = get_args(NamedScope)
SCOPES = (*NAMED_SCOPES, "{size: k}", "{hosts: {group: [host, ...]}}", "{regex: '...'}")


class Model(BaseModel):
    """Base of every part."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")


def _parse_segment(value: object) -> int | str:
    if value == "whole":
        return "whole"
    try:
        size = parse_size(value)
    except ValueError as error:
        raise ValueError(f"{error}, or 'whole' for no segmentation") from None
    if size == 0:
        raise ValueError("a segment has at least 1 byte; write 'whole' for no segmentation")
    return size


def _show_segment(value: int | str) -> str:
    return format_size(value) if isinstance(value, int) else value


def _identifier(name: str) -> str:
    if not name.isidentifier():
        raise ValueError("expected an identifier: letters, digits and _, no digit first")
    return name


def _letter(symbol: str) -> str:
    if not re.fullmatch("[A-Za-z]", symbol):
        raise ValueError("expected one letter")
    return symbol


def _expression(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"is not a regular expression: {error}") from None
    return text


def _as_tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


def _one_or_more(value: object) -> object:
    return (value,) if isinstance(value, str) else _as_tuple(value)


def _not_empty(value: T) -> T:
    if not value:
        raise ValueError("must not be empty")
    return value


def _known_scope(name: str) -> str:
    if name not in NAMED_SCOPES:
        raise ValueError(unknown("scope", name, SCOPES))
    return name


def _parameter(value: object) -> ParameterValue:
    if isinstance(value, (list, tuple)) and all(type(v) is int for v in value):
        return tuple(value)
    if not isinstance(value, (bool, int, str)):
        raise ValueError("expected a number, a size, true, false, a name or a list of numbers")
    return value


def _plain(value: object) -> Any:
    return list(value) if isinstance(value, tuple) else value


SIZE_PATTERN = r"^\s*[0-9]+(\.[0-9]+)?\s*([kKmMgG]?[bB]|[kKmMgG][iI][bB])?\s*$"
SIZE_SCHEMA = {
    "anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": SIZE_PATTERN}],
    "examples": ["64KiB", "4MiB", 4096],
}
SEGMENT_SCHEMA = {
    "anyOf": [{"type": "integer", "minimum": 1}, {"const": "whole"}, *SIZE_SCHEMA["anyOf"][1:]],
    "examples": ["whole", "64KiB", "1MiB"],
}
PARAMETER_SCHEMA = {
    "anyOf": [
        {"type": ["boolean", "integer", "string"]},
        {"type": "array", "items": {"type": "integer"}},
    ],
    "description": "A parameter of the submodule: a number, a size, true, false, a name or a list.",
}
NAMES_SCHEMA = {"enum": list(COLLECTIVES)}
COLLECTIVES_SCHEMA = {
    "anyOf": [NAMES_SCHEMA, {"type": "array", "items": NAMES_SCHEMA, "minItems": 1}]
}

Size = Annotated[
    int,
    BeforeValidator(parse_size),
    WithJsonSchema(SIZE_SCHEMA),
    PlainSerializer(format_size, return_type=str, when_used="json"),
]
Segment = Annotated[
    int | Literal["whole"],
    PlainValidator(_parse_segment),
    WithJsonSchema(SEGMENT_SCHEMA),
    PlainSerializer(_show_segment, return_type=str, when_used="json-unless-none"),
]
Identifier = Annotated[str, AfterValidator(_identifier)]
Parameter = Annotated[
    ParameterValue,
    PlainValidator(_parameter),
    WithJsonSchema(PARAMETER_SCHEMA),
    PlainSerializer(_plain, when_used="json"),
]
FromList = BeforeValidator(_as_tuple)
Names = Annotated[tuple[str, ...], FromList, AfterValidator(_not_empty)]


class SizeScope(Model):
    """Groups of consecutive ranks within the enclosing level. The last group may be smaller."""

    size: int = Field(ge=1, description="Ranks of a group.")


class HostsScope(Model):
    """Groups of the ranks on the named hosts. A host that is not named is a group by itself."""

    hosts: Annotated[Mapping[str, Names], AfterValidator(_not_empty)] = Field(
        description="The hosts of each group, by the name of the group."
    )

    @model_validator(mode="after")
    def _in_one_group(self) -> HostsScope:
        groups: dict[str, str] = {}
        for group, hosts in self.hosts.items():
            for host in hosts:
                if host in groups:
                    raise ValueError(f"host {host!r} is in {groups[host]!r} and in {group!r}")
                groups[host] = group
        return self


class RegexScope(Model):
    """Groups of the ranks whose host names match an expression in the same way.

    The first group of the expression is compared, or the whole match if it has no group. A host
    that does not match is a group by itself.
    """

    regex: Annotated[str, AfterValidator(_expression)] = Field(
        description="A regular expression of Python, matched with the names of hosts.",
    )


def _scope_tag(scope: object) -> str | None:
    if isinstance(scope, str):
        return "<name>"
    keys = scope if isinstance(scope, Mapping) else getattr(type(scope), "model_fields", ())
    return next((f"<{key}>" for key in ("size", "hosts", "regex") if key in keys), None)


Scope = Annotated[
    Annotated[NamedScope, BeforeValidator(_known_scope), Tag("<name>")]
    | Annotated[SizeScope, Tag("<size>")]
    | Annotated[HostsScope, Tag("<hosts>")]
    | Annotated[RegexScope, Tag("<regex>")],
    Discriminator(
        _scope_tag,
        custom_error_type="scope",
        custom_error_message=unknown("scope", "", SCOPES),
    ),
]


class Level(Model):
    """One level of the machine: the ranks of a group communicate on it."""

    name: Identifier = Field(
        description="The name, an identifier that rules refer to.",
        json_schema_extra={"pattern": "^[^\\W\\d]\\w*$"},
    )
    scope: Scope = Field(description="Which ranks form a group of this level.")
    symbol: Annotated[str, AfterValidator(_letter)] = Field(
        default="",
        description="One letter for names of tasks. By default it is chosen from the name.",
        json_schema_extra={"pattern": "^[A-Za-z]$"},
    )


class _Range(Model):
    @model_validator(mode="after")
    def _in_order(self) -> _Range:
        low, high = getattr(self, "min", None), getattr(self, "max", None)
        if low is not None and high is not None and low > high:
            raise ValueError(f"min {low} is larger than max {high}")
        return self

    def __contains__(self, value: int) -> bool:
        low, high = getattr(self, "min", None), getattr(self, "max", None)
        return (low is None or low <= value) and (high is None or value <= high)


class Count(_Range):
    """A range of counts. Both ends are included; without an end the range is open there."""

    min: int | None = Field(default=None, ge=0, description="The least count.")
    max: int | None = Field(default=None, ge=0, description="The largest count.")


class Bytes(_Range):
    """A range of sizes. Both ends are included; without an end the range is open there."""

    min: Size | None = Field(default=None, description="The least size in bytes.")
    max: Size | None = Field(default=None, description="The largest size in bytes.")


class When(Model):
    """The calls that a rule is for. A key that is not given is for all calls."""

    collective: (
        Annotated[
            tuple[Annotated[str, AfterValidator(expect_collective)], ...],
            BeforeValidator(_one_or_more),
            AfterValidator(_not_empty),
            WithJsonSchema(COLLECTIVES_SCHEMA),
        ]
        | None
    ) = Field(default=None, description="A collective, or a list of collectives.")
    bytes: Bytes | None = Field(default=None, description="The bytes of one rank's data.")
    nodes: Count | None = Field(default=None, description="The number of nodes.")
    ppn: Count | None = Field(default=None, description="The largest number of ranks on a node.")
    commutative: bool | None = Field(
        default=None, description="Whether the operation is commutative."
    )

    def matches(
        self, collective: str, *, nbytes: int, nodes: int, ppn: int, commutative: bool
    ) -> bool:
        """Whether a call of ``collective`` of ``nbytes`` on ``nodes`` of ``ppn`` ranks is meant."""
        return (
            (self.collective is None or collective in self.collective)
            and (self.bytes is None or nbytes in self.bytes)
            and (self.nodes is None or nodes in self.nodes)
            and (self.ppn is None or ppn in self.ppn)
            and (self.commutative is None or commutative == self.commutative)
        )


class LevelUse(Model):
    """The submodule of one level, its algorithm, and parameters of the algorithm."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Parameter]

    submodule: str = Field(description="The submodule that carries out the tasks of the level.")
    algorithm: str | None = Field(
        default=None, description="An algorithm of the submodule. By default it has one."
    )

    @property
    def parameters(self) -> Mapping[str, ParameterValue]:
        """The parameters as written; ``validate_names`` parses them (``"64KiB"`` as 65536)."""
        return MappingProxyType(self.model_extra or {})

    def with_parameters(self, parameters: Mapping[str, ParameterValue]) -> LevelUse:
        """Return the same use with ``parameters`` in place of its own."""
        fields: dict[str, Any] = {"submodule": self.submodule, "algorithm": self.algorithm}
        return LevelUse.model_validate(fields | dict(parameters))


class Use(Model):
    """What a rule decides. It leaves what it does not name to the rules after it."""

    segment: Segment | None = Field(
        default=None, description="Bytes of a segment, or 'whole' for no segmentation."
    )
    schedule: Literal["dataflow", "lockstep"] | None = Field(
        default=None,
        description="Start a task when its inputs are there (dataflow), or stage by stage.",
    )
    levels: Mapping[str, LevelUse] = Field(
        default={}, description="The submodule of each level, by the name of the level."
    )


class Rule(Model):
    """One rule: which calls it is for, and what they run."""

    when: When = Field(default=When(), description="The calls that the rule is for.")
    use: Use = Field(description="What such calls run.")


class Wait(Model):
    """How a rank waits. Ranks may wait in different ways."""

    policy: Literal["auto", "spin", "yield", "sleep", "futex"] = Field(
        default="auto", description="What a waiting rank does between polls."
    )
    spin: int = Field(default=1000, ge=0, description="Polls before a waiting rank yields.")
    timeout: float = Field(
        default=600.0,
        ge=0,
        allow_inf_nan=False,
        description="Seconds until a collective that does not finish raises. 0 means never.",
    )
