"""Properties that are computed when they are first asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class kept(Generic[T]):
    """A property that an object computes once and keeps, in its ``__dict__``.

    It does what ``functools.cached_property`` does, without the lock that this one has before
    Python 3.12: a plan computes dozens of them. Two threads may compute the same value.
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self.compute, self.__doc__ = compute, compute.__doc__
        self.name = compute.__name__

    @overload
    def __get__(self, instance: None, owner: type) -> kept[T]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object, owner: type) -> T | kept[T]:
        """Compute the value; it hides this method afterwards."""
        if instance is None:
            return self
        found = instance.__dict__[self.name] = self.compute(instance)
        return found
