"""The numbers that Python and C share (``native/python/py_numbers.c``)."""

from __future__ import annotations

import numpy as np

from han import _native
from han.memory.channel import EPOCH_SHIFT, ERRED, NAPS
from han.model.channel_layout import CONTROL, LINE, SMALL_BANKS, TIMES
from han.model.element_types import DTYPES, OPS
from han.model.native_check import Numbers, check_numbers
from han.model.program import AREAS, GIVEN, INSTRUCTION, PEER, SHOWN, Area, Base, Code, Coll
from han.runtime.reports import Status
from han.trace.recording import ANCHOR, EVENT


def own_numbers() -> Numbers:
    """Return the numbers of the Python part by table and name."""
    return {
        "codes": {**_named(Code), "CODES": len(Code)},
        "collectives": _named(Coll),
        "bases": {**_named(Base), "PEER": PEER},
        "areas": {**_named(Area), "PER_CHANNEL": AREAS},
        "writes": {"SHOWN": SHOWN, "GIVEN": GIVEN},
        "instruction": _offsets(INSTRUCTION),
        "layout": {
            "LINE": LINE, "CONTROL": CONTROL, "TIMES": TIMES, "SMALL_BANKS": SMALL_BANKS,
            "ERRED": ERRED, "NAPS": NAPS, "EPOCH_SHIFT": EPOCH_SHIFT,
        },
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


def _offsets(record: np.dtype[np.void]) -> dict[str, int]:
    assert record.fields is not None
    return {**{name: field[1] for name, field in record.fields.items()}, "size": record.itemsize}
