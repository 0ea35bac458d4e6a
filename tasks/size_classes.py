"""Size classes: one plan serves all messages of a range of sizes.

The first class has all messages that fit in the cache line of a flag. Bounds double up to 4 KiB,
and then grow by a half and by a third in turn: larger messages may have several pieces, which are
to keep their size, and more thresholds of built-in choices lie among them. A call is decided and
planned at the upper bound of its class. For a smaller message, the executor cuts the message in
proportion: the same operations move shorter parts of it (``han/native/engine/sizes.h``). So a piece
of a large message has at least two thirds of the size that it has at the bound.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

import numpy as np

from han.model.channel_layout import INLINE, LINE
from han.model.collectives import ROWS
from han.model.program import positions
from han.tasks.graph import Tasks
from han.tasks.signature import Signature

LEAST, MOST = INLINE, 1 << 36  # the first and the last bound, in bytes; more have no class
SMALL = 4 << 10  # bytes up to which bounds double
GRAINS = 1 << 31  # at most
# Whole lines up to which the MPI library's counts suffice, for elements of 1 to 16 bytes.
COUNTED = tuple(((1 << 31) - 1 << k) // LINE * LINE for k in range(5))


def bounds_of(thresholds: Iterable[int] = ()) -> tuple[int, ...]:
    """Return the upper bounds of all classes, in bytes.

    `thresholds` are sizes that begin a class of their own: those of users' rules.
    """
    doubling = [LINE << k for k in range(1, (MOST // LINE).bit_length())]
    between = [n + n // 2 for n in doubling[:-1] if n >= SMALL]
    asked = [n - 1 for n in thresholds if 1 < n <= MOST]
    return tuple(sorted({LEAST, *doubling, *between, *COUNTED, *asked}))


def bound_of(signature: Signature, bounds: tuple[int, ...]) -> int:
    """Return the upper bound of a call's class, in bytes; 0 if it has none.

    Blocks that differ in size are in the class of the largest one. A call without data has no
    class, nor one in memory of a device.
    """
    nbytes = signature.nbytes
    if not nbytes or nbytes > bounds[-1] or not ROWS[signature.collective].recv:
        return 0
    if signature.device:
        return 0
    bound = bounds[bisect_left(bounds, nbytes)]
    return bound if _grains(signature.element, bound) < GRAINS else 0


def class_around(bound: int, bounds: tuple[int, ...]) -> tuple[int, int]:
    """Return the bytes that the calls of a class exceed, and its bound."""
    at = bisect_left(bounds, bound)
    return bounds[at - 1] if at else 0, bound


def _grains(element: int, bound: int) -> int:
    """Return the number of cache lines if these hold whole elements, else that of elements."""
    return bound // element if LINE % element else -(-bound // LINE)


@lru_cache(256)
def largest_of(signature: Signature) -> Signature:
    """Return the largest call of a class; the signature of one call is returned unchanged."""
    return exact(signature, signature.bound)


def class_of(signature: Signature, bound: int) -> Signature:
    """Return the signature that stands for all calls of a class.

    Messages are cut at cache lines if these hold whole elements, else at elements. A message that
    is shorter than a line is not cut.
    """
    element, grains = signature.element, _grains(signature.element, bound)
    whole = LINE % element == 0 and bound >= LINE
    count = grains * LINE // element if whole else bound // element
    varied = signature.uneven
    return signature.changed(count=count, grains=grains, bound=bound, counts=(), varied=varied)


def exact(signature: Signature, nbytes: int, counts: tuple[int, ...] = ()) -> Signature:
    """Return the signature of one call of a class; that of another call is returned unchanged.

    `counts` are the elements of the blocks, where these differ; else they remain open.
    """
    if not signature.grains:
        return signature
    varied, count = signature.varied and not counts, nbytes // signature.element
    return signature.changed(count=count, grains=0, bound=0, counts=counts, varied=varied)


def cut_in_proportion(tasks: Tasks, signature: Signature, nbytes: int) -> Tasks:
    """Return the tasks of a class with their places in a message of `nbytes` bytes."""
    grain = signature.grain
    edges = np.array([(start // grain, stop // grain) for start, stop in tasks.cut], "u8")
    cuts = positions(edges, signature.grains, grain, nbytes).tolist()
    return replace(tasks, cut=tuple([(start, stop) for start, stop in cuts]))
