"""One rank's Program as bytes: a line of JSON, then its operations and terms as in memory."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from han.model.program import INSTRUCTION, TERMS, Program, StreamInfo
from han.tasks.size_classes import GRAINS

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
    grains: Annotated[int, Field(ge=0, lt=GRAINS)]
    grain: Number
    blocks: Number


def dump(program: Program) -> bytes:
    """Return a Program as bytes, in the byte order of this machine."""
    rest = {name: getattr(program, name) for name in _Rest.model_fields}
    rest["streams"] = [asdict(stream) for stream in program.streams]
    terms = b"" if program.terms is None else program.terms.tobytes()
    return json.dumps(rest, default=int).encode() + b"\n" + program.code.tobytes() + terms


def load(data: bytes) -> Program:
    """Read what :func:`dump` wrote; raises ValueError. ``program_check`` checks the operations."""
    line, found, rows = data.partition(b"\n")
    rest = _Rest.model_validate_json(line)
    each = INSTRUCTION.itemsize + (TERMS.itemsize if rest.grains else 0)
    if not found or len(rows) % each:
        raise ValueError(f"{len(rows)} bytes are not a whole number of operations")
    number = len(rows) // each
    terms = (
        np.frombuffer(rows, TERMS, number, number * INSTRUCTION.itemsize) if rest.grains else None
    )
    fields = {name: getattr(rest, name) for name in _Rest.model_fields}
    fields["streams"] = tuple(StreamInfo(**vars(stream)) for stream in rest.streams)
    return Program(code=np.frombuffer(rows, INSTRUCTION, number), terms=terms, **fields)
