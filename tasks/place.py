"""A place: the group of a batch of tasks on a rank, and the addresses of its data."""

from __future__ import annotations

from typing import NamedTuple

from han.model.program import Base, Ref
from han.model.topology import Group
from han.tasks.context import Letters
from han.tasks.graph import Task

SEND, RECV = Ref(Base.SEND), Ref(Base.RECV)


class Place(NamedTuple):
    """The group of a batch of tasks and the addresses of its data: fields of a Context."""

    tasks: tuple[Task, ...]
    group: Group
    source: Ref
    result: Ref
    contributes: tuple[bool, ...] = ()
    owners: tuple[int, ...] = ()
    letters: Letters | None = None
