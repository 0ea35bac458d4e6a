"""Numbers and sizes of the tensors of a call, before data moves."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from han.common.errors import ArgumentError


def check_blocks(
    tensors: Sequence[Tensor], size: int, step: str, alike: Tensor | None = None
) -> None:
    """Raise unless there is a tensor for each of `size` ranks, as large as `alike` if given."""
    if len(tensors) != size:
        raise ArgumentError(f"{step}: a list of {len(tensors)} tensors, {size} expected (1 a rank)")
    for tensor in tensors if alike is not None else ():
        check_same(tensor, alike, step)


def check_same(found: Tensor, expected: Tensor, step: str) -> None:
    """Raise unless two tensors hold as many elements of the same type."""
    if (found.numel(), found.dtype) != (expected.numel(), expected.dtype):
        raise ArgumentError(
            f"{step}: a tensor of {described(found)} where one of {described(expected)} is expected"
        )


def splits(
    given: Sequence[int], total: int, part: int | None, size: int, step: str, rows: int = 0
) -> list[int]:
    """Return how many of `total` each rank gets: equally many, or `given` of `rows` rows.

    Raises ArgumentError unless they are `total`, and `part` for a rank if that is given.
    """
    if not given:
        if rows % size:
            raise ArgumentError(f"{step}: {rows} rows are not as many for each of {size} ranks")
        if total % size or part not in (None, total // size):
            parts = "equal parts" if part is None else f"parts of {part}"
            raise ArgumentError(f"{step}: {total} elements are not {size} {parts}, one a rank")
        return [total // size] * size
    if len(given) != size or sum(given) != rows:
        raise ArgumentError(
            f"{step}: split sizes {[*given]} for {size} ranks and a tensor of {rows} rows"
        )
    return [count * (total // rows if rows else 0) for count in given]


def described(tensor: Tensor) -> str:
    """Return the number and the type of the elements of a tensor."""
    return f"{tensor.numel()} x {str(tensor.dtype).rpartition('.')[2]}"
