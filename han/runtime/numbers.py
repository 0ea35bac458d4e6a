"""The numbers that Python and C share (``native/python/py_numbers.c``)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from struct import calcsize

import numpy as np

from han import _native
from han.memory.channel import DEPARTURES, ERRED, FIELDS, GONE, RANK
from han.model.channel_layout import (
    CALLS,
    CELLS,
    CLOSED,
    CONTROL,
    EPOCH_SHIFT,
    FLAG,
    FLAGS,
    LENT_BANKS,
    LINE,
    MAX_CHANNELS,
    REASON,
    RING_MIN,
    ROOM,
    SMALL,
    SMALL_BANKS,
)
from han.model.element_types import DTYPES, OPS
from han.model.loops import STRIDES
from han.model.native_check import Numbers, check_numbers
from han.model.program import (
    AREAS,
    EPOCH_TAGS,
    GIVEN,
    INSTRUCTION,
    LOOP,
    MAX_STREAMS,
    PEER,
    PEER_BUFFER_SHIFT,
    PEER_BUFFERS,
    PEER_CHANNEL_SHIFT,
    PEER_CHANNELS,
    PEER_SLOTS,
    SHOWN,
    TERMS,
    Area,
    Base,
    Code,
    Coll,
)
from han.runtime.eager import BLOCK, EAGER_HEAD, EAGER_ROOM, EAGER_SPREAD
from han.runtime.reports import Status
from han.runtime.slots import MOST_SLOTS
from han.trace.recording import ANCHOR, EVENT, HEAD


def own_numbers() -> Numbers:
    """Return the numbers of the Python part by table and name."""
    return {
        "codes": {**_named(Code), "CODES": len(Code)},
        "collectives": _named(Coll),
        "bases": {**_named(Base), "PEER": PEER},
        "areas": {**_named(Area), "PER_CHANNEL": AREAS},
        "writes": {"SHOWN": SHOWN, "GIVEN": GIVEN},
        "instruction": _offsets(INSTRUCTION),
        "term": _offsets(TERMS),
        "stride": {**_offsets(STRIDES), "LOOP": LOOP},
        "peer_base": {
            "BUFFER_SHIFT": PEER_BUFFER_SHIFT, "CHANNEL_SHIFT": PEER_CHANNEL_SHIFT,
            "BUFFER_MOST": PEER_BUFFERS - 1, "CHANNEL_MOST": PEER_CHANNELS - 1,
            "SLOT_MOST": PEER_SLOTS - 1,
        },
        "limits": {"CHANNELS": MAX_CHANNELS, "STREAMS": MAX_STREAMS, "EPOCH_TAGS": EPOCH_TAGS},
        "layout": {
            "LINE": LINE, "FLAG": FLAG, "CALLS": CALLS, "FLAGS": FLAGS,
            "SMALL": SMALL, "SMALL_BANKS": SMALL_BANKS, "LENT_BANKS": LENT_BANKS,
            "RING_LEAST": RING_MIN, "EPOCH_SHIFT": EPOCH_SHIFT, "REASON": REASON,
        },
        "control": {**_packed(FIELDS), "erred": ERRED, "gone": GONE,
            "departures": DEPARTURES, "rank": RANK, "cells": CELLS, "room": ROOM, "closed": CLOSED,
            "size": CONTROL},
        "board": {"SLOTS": MOST_SLOTS},
        "eager": {
            "BLOCK": BLOCK, "ROOM": EAGER_ROOM, **_packed(EAGER_HEAD), **_packed(EAGER_SPREAD),
        },
        "trace": _offsets(HEAD),
        "event": {**_offsets(EVENT), "ANCHOR": ANCHOR},
        "statuses": _named(Status),
        "dtypes": {name: k for k, name in enumerate(DTYPES)},
        "ops": {name: k for k, name in enumerate(OPS)},
    }  # fmt: skip


def check_compiled() -> None:
    """Raise ImportError if the compiled module has other numbers."""
    check_numbers(getattr(_native, "NUMBERS", {}), own_numbers())


def _named(
    enum: type[Code] | type[Coll] | type[Base] | type[Area] | type[Status],
) -> dict[str, int]:
    return {member.name: int(member) for member in enum}


def _packed(fields: Mapping[str, str]) -> dict[str, int]:
    """Return the offsets of fields that follow each other: their names and types of `struct`."""
    sizes = [calcsize(kind) for kind in fields.values()]
    return dict(zip(fields, accumulate(sizes, initial=0), strict=False))


def _offsets(record: np.dtype[np.void]) -> dict[str, int]:
    assert record.fields is not None
    return {**{name: field[1] for name, field in record.fields.items()}, "size": record.itemsize}
