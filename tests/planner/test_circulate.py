"""The hops of a ring, which one call emits."""

import numpy as np
import pytest
from test_batches import RECV, SCRATCH, SEND, others, stream

from han._native import joined
from han.model.program import INSTRUCTION, Base, Code


def shown(made):
    """Return what each operation does: its code, where in the message, its bytes, and requests."""
    number = len(made)
    code, _ = joined((made, *others(4, 0)))
    found = []
    for op in np.frombuffer(code, INSTRUCTION)[:number]:
        name = Code(op["code"]).name
        if name == "AWAIT":
            found.append(f"await {op['peer']}:{int(op['n']) - number - 9 * (int(op['peer']) - 1)}")
        elif name == "REDUCE":
            found.append(f"reduce {op['off'][0]} from {op['off'][1] // 1000}")
        elif name == "TEST":
            found.append(f"test {op['slot']}")
        else:
            place = op["off"][1 if name == "ISEND" else 0]
            where = place if name == "ISEND" or op["base"][0] == Base.RECV else f"cell {place}"
            found.append(f"{name[1:].lower()} {where} {op['peer']} ({op['slot']})")
    return found


def test_the_hops_of_a_ring():
    """Two nodes, blocks of two pieces and one, in cells of 1000 bytes for two pieces."""
    made = stream(0)
    cells = (SCRATCH, SCRATCH + 1000)
    mine, others = ((0, 64), (64, 128)), ((128, 192), None)
    awaits = ((), ((3, 7),), ((3, 9), (4, 1)))
    ends, free, first = made.circulate(
        SEND, RECV, cells, (1, 2), (*others, *mine, *mine), 2, awaits, (5,), 8
    )
    # This rank sends bytes 0 to 128 and combines bytes 128 to 192, which it sends then.
    assert shown(made) == [
        "recv cell 0 1 (5)",
        "send 0 2 (8)", "await 3:7", "send 64 2 (9)",
        "test 5", "await 3:9", "await 4:1", "reduce 128 from 0", "send 128 2 (5)",
        "test 8", "recv 0 1 (8)",
        "test 9", "recv 64 1 (9)",
        "test 8", "test 9", "test 5",
    ]  # fmt: skip
    assert ends == [8, 14, 15]
    assert free == (8, 9, 5)
    assert first == 10


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"source": 1}, TypeError),
        ({"cells": ()}, ValueError),
        ({"cells": (1,)}, TypeError),
        ({"peers": (1,)}, ValueError),
        ({"peers": [1, 2]}, TypeError),
        ({"pieces": ((0, 64), (64, 128))}, ValueError),
        ({"pieces": ((0, 64), (64, 128), (64,))}, ValueError),
        ({"width": 0}, ValueError),
        ({"width": 4}, ValueError),
        ({"awaits": ()}, ValueError),
        ({"awaits": ((), ((1, -2),))}, OverflowError),
        ({"awaits": ((), 3)}, TypeError),
        ({"free": [1]}, TypeError),
        ({"free": (1 << 40,)}, ValueError),
        ({"first": 1 << 31}, ValueError),
        ({"first": 2**64 - 1}, ValueError),
        ({"peers": (1 << 32, 2)}, ValueError),
    ],
)
def test_wrong_rings(wrong, error):
    right = {"source": SEND, "result": RECV, "cells": (SCRATCH,), "peers": (1, 2)}
    more = {"pieces": ((0, 64), (64, 128), (64, 128)), "width": 1, "awaits": ((), ())}
    with pytest.raises(error):
        stream().circulate(*{**right, **more, "free": (), "first": 0, **wrong}.values())
