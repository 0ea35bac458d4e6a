"""Types of values in documents: accepted values, their parsers, and their JSON Schema."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    PlainSerializer,
    PlainValidator,
    ValidationError,
    WithJsonSchema,
)

from han.common.suggest import unknown
from han.common.units import format_size, parse_size
from han.config import parts, rules
from han.config.errors import Origin, config_error, problems_of
from han.config.parameters import ParameterValue
from han.model.collectives import ROWS, expect_collective

T = TypeVar("T")
D = TypeVar("D", bound=BaseModel)
SCOPES = (*parts.NAMED_SCOPES, "{size: k}", "{hosts: {group: [host, ...]}}", "{regex: '...'}")


class Model(BaseModel):
    """Base of all models of documents."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    def data(self) -> Any:
        """Return the plain data of the same name."""
        name = type(self).__name__
        return getattr(parts if hasattr(parts, name) else rules, name)(**values_of(self))


def validated(model: type[D], data: object, origin: Origin, keys: Mapping[str, Iterable[str]]) -> D:
    """Return data as a document; raises ConfigError with all problems.

    `keys` has the keys that each mapping takes, by the key of the mapping.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise config_error(problems_of(error, keys), origin) from None


def values_of(document: Model) -> dict[str, Any]:
    """Return the plain data of each field of a document."""
    return {name: _data(getattr(document, name)) for name in type(document).model_fields}


def _data(value: Any) -> Any:
    if isinstance(value, Model):
        return value.data()
    if isinstance(value, Mapping):
        return {key: _data(one) for key, one in value.items()}
    return tuple(map(_data, value)) if isinstance(value, tuple) else value


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
    if name not in parts.NAMED_SCOPES:
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


def _binding(value: object) -> str | tuple[int, ...]:
    if value == "local_rank":
        return "local_rank"
    if isinstance(value, (list, tuple)) and value and all(type(rail) is int for rail in value):
        return tuple(value)
    raise ValueError("expected local_rank, or the rail of each rank of a node: [0, 0, 1, 1]")


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
BINDING_SCHEMA = {
    "anyOf": [
        {"const": "local_rank"},
        {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1},
    ],
}
NAMES_SCHEMA = {"enum": [*ROWS]}
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
Binding = Annotated[
    str | tuple[int, ...],
    PlainValidator(_binding),
    WithJsonSchema(BINDING_SCHEMA),
    PlainSerializer(_plain, when_used="json"),
]
FromList = BeforeValidator(_as_tuple)
Names = Annotated[tuple[str, ...], FromList, AfterValidator(_not_empty)]
Letter = Annotated[str, AfterValidator(_letter)]
Expression = Annotated[str, AfterValidator(_expression)]
NotEmpty = AfterValidator(_not_empty)
Named = Annotated[parts.NamedScope, BeforeValidator(_known_scope)]
Collectives = Annotated[
    tuple[Annotated[str, AfterValidator(expect_collective)], ...],
    BeforeValidator(_one_or_more),
    NotEmpty,
    WithJsonSchema(COLLECTIVES_SCHEMA),
]
