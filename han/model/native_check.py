"""Compare the numbers that the compiled part and the Python part share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

Numbers = Mapping[str, Mapping[str, int]]


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
