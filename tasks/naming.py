"""Which operations of a program name a peer."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from han.model.opcodes import PEERS, Code
from han.model.program import Program

_TALKS = (Code.IRECV, Code.ISEND, Code.TEST)


def naming(program: Program) -> npt.NDArray[np.int64]:
    """Return the operations that name a peer; the test of a receive has the peer of its message."""
    codes, slots = program.code["code"], program.code["slot"].tolist()
    found = np.isin(codes, PEERS)
    talks = np.flatnonzero(np.isin(codes, _TALKS)).tolist()
    kinds = codes.tolist()
    for stream in program.streams:
        receives: set[int] = set()
        for row in (r for r in talks if stream.start <= r < stream.stop):
            if kinds[row] == Code.IRECV:
                receives.add(slots[row])
            elif kinds[row] == Code.ISEND:
                receives.discard(slots[row])
            elif slots[row] in receives:
                found[row] = True
    return np.flatnonzero(found)
