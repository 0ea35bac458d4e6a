"""One rank's Program as bytes: a line of JSON, then its operations as they are in memory."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from han.model.program import INSTRUCTION, Program, StreamInfo

Number = Annotated[int, Field(ge=0, lt=1 << 48)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Stream(_Model):
    name: str
    kind: str
    level: Number
    start: Number
    stop: Number


class _Rest(_Model):
    """The fields of a Program other than its operations."""

    rank: Number
    streams: tuple[_Stream, ...]
    tasks: tuple[str, ...]
    requests: Number
    scratch: Number
    operand: Number
    footprint: tuple[Number, ...]
    writes: tuple[Annotated[int, Field(ge=0, lt=256)], ...]
    sync: bool
    comms: tuple[tuple[Number, tuple[Number, ...]], ...]


def dump(program: Program) -> bytes:
    """Return a Program as bytes, in the byte order of this machine."""
    rest = {name: value for name, value in vars(program).items() if name != "code"}
    rest["streams"] = [asdict(stream) for stream in program.streams]
    return json.dumps(rest, default=int).encode() + b"\n" + program.code.tobytes()


def load(data: bytes) -> Program:
    """Read what :func:`dump` wrote; raises ValueError. ``program_check`` checks the operations."""
    line, found, rows = data.partition(b"\n")
    if not found or len(rows) % INSTRUCTION.itemsize:
        raise ValueError(f"{len(rows)} bytes are not a whole number of operations")
    rest = _Rest.model_validate_json(line)
    fields = {name: getattr(rest, name) for name in _Rest.model_fields}
    fields["streams"] = tuple(StreamInfo(**vars(stream)) for stream in rest.streams)
    return Program(code=np.frombuffer(rows, INSTRUCTION), **fields)
