"""Make Signatures of calls from names of operations and types, without MPI."""

from __future__ import annotations

import operator
from typing import Any

from han.common.errors import ArgumentError, ArgumentTypeError
from han.common.units import parse_size
from han.model.collectives import DATALESS, REDUCING, ROOTED, ROWS, carried
from han.model.element_types import element_type, kernel, numpy_name
from han.tasks.own_sizes import own_sizes
from han.tasks.signature import Signature

USERS = "user-defined"  # stands for every user-defined operation


def call_signature(
    collective: str,
    nbytes: int | str,
    op: str = "sum",
    dtype: Any = "f8",
    root: int = 0,
    *,
    commutative: bool = True,
) -> Signature:
    """Make the Signature of a call; raises ArgumentError for unknown names.

    `op` names a predefined operation; "" stands for a user-defined one.
    """
    collective = carried(collective)
    nbytes, element = bytes_of(nbytes), element_type(dtype)
    if collective in DATALESS:
        return Signature(collective)
    root = root if collective in ROOTED else 0
    if ROWS[collective].own:
        return own_sizes(collective, root).changed(count=nbytes)
    if collective not in REDUCING:
        return Signature(collective, nbytes, root=root)
    if nbytes % element.itemsize:
        raise ArgumentError(f"{nbytes} bytes are not a whole number of {element.name}")
    return Signature(
        collective,
        nbytes // element.itemsize,
        element.itemsize,
        op or USERS,
        numpy_name(element),
        commutative=commutative,
        native=kernel(op, numpy_name(element)) is not None,
        root=root,
    )


def bytes_of(nbytes: int | str) -> int:
    """Return bytes from a number, or from a size such as ``4MiB``."""
    try:
        found = parse_size(nbytes) if isinstance(nbytes, str) else operator.index(nbytes)
    except ValueError as error:
        raise ArgumentError(f"nbytes {error}") from None
    except TypeError:
        raise ArgumentTypeError(f"nbytes: {nbytes!r} is not a number of bytes") from None
    if found < 0:
        raise ArgumentError(f"nbytes {found} is negative")
    return found
