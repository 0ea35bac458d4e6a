"""The numbers that Python and C share (``native/python/py_numbers.c``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import accumulate
from struct import calcsize

import numpy as np

from han import _native
from han.memory.channel import DEPARTURES, ERRED, FIELDS, GONE, RANK
from han.model import channel_layout as layout
from han.model import program
from han.model.element_types import DTYPES, OPS
from han.model.loops import STRIDES
from han.model.program import Area, Base, Code, Coll
from han.runtime.eager import BLOCK, EAGER_HEAD, EAGER_ROOM, EAGER_SPREAD
from han.runtime.measured import BRIEF
from han.runtime.reports import Status
from han.runtime.slots import MOST_SLOTS
from han.tasks.own_sizes import SMALL
from han.trace.recording import ANCHOR, EVENT, HEAD

Numbers = Mapping[str, Mapping[str, int]]
LAYOUT = (
    "LINE", "FLAG", "CALLS", "FLAGS", "SMALL", "SMALL_BANKS", "LENT_BANKS", "EPOCH_SHIFT", "REASON",
)  # fmt: skip


def own_numbers() -> Numbers:
    """Return the numbers of the Python part by table and name."""
    return {
        "codes": {**_named(Code), "CODES": len(Code)},
        "collectives": _named(Coll),
        "bases": {**_named(Base), "PEER": program.PEER},
        "areas": {**_named(Area), "PER_CHANNEL": program.AREAS},
        "writes": {"SHOWN": program.SHOWN, "GIVEN": program.GIVEN},
        "instruction": _offsets(program.INSTRUCTION),
        "term": _offsets(program.TERMS),
        "block": _offsets(program.OWN_BLOCK),
        "stride": {**_offsets(STRIDES), "LOOP": program.LOOP},
        "peer_base": {
            "BUFFER_SHIFT": program.PEER_BUFFER_SHIFT, "CHANNEL_SHIFT": program.PEER_CHANNEL_SHIFT,
            "BUFFER_MOST": program.PEER_BUFFERS - 1, "CHANNEL_MOST": program.PEER_CHANNELS - 1,
            "SLOT_MOST": program.PEER_SLOTS - 1,
        },
        "limits": {
            "CHANNELS": layout.MAX_CHANNELS, "STREAMS": program.MAX_STREAMS,
            "EPOCH_TAGS": program.EPOCH_TAGS, "OWN_NBYTES": SMALL, "BRIEF": BRIEF,
            "AT_MOST_BIT": program.AT_MOST_BIT,
        },
        "layout": {name: getattr(layout, name) for name in LAYOUT}
        | {"RING_LEAST": layout.RING_MIN},
        "control": {
            **_packed(FIELDS), "erred": ERRED, "gone": GONE, "departures": DEPARTURES,
            "rank": RANK, "cells": layout.CELLS, "room": layout.ROOM, "closed": layout.CLOSED,
            "size": layout.CONTROL,
        },
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


def differences(compiled: Numbers, own: Numbers) -> Iterator[str]:
    """Yield a text for each number that differs, or that one of the parts does not have."""
    for table in sorted({*compiled, *own}):
        theirs, ours = compiled.get(table, {}), own.get(table, {})
        for name in sorted({*theirs, *ours}):
            if theirs.get(name) != ours.get(name):
                says, has = theirs.get(name, "nothing"), ours.get(name, "nothing")
                yield f"of {table}, the compiled part says {name} = {says}, han says {has}"


def check_numbers(compiled: Numbers, own: Numbers) -> None:
    """Raise ImportError with the first difference, if there is one."""
    for difference in differences(compiled, own):
        raise ImportError(
            f"han's compiled part is of another version ({difference}): reinstall han"
        )


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
