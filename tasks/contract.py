"""The contract of a submodule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from han.model.topology import Topology
from han.tasks.choice import LevelChoice
from han.tasks.context import Context
from han.tasks.outline import Outline
from han.tasks.signature import Signature


@dataclass(frozen=True)
class Parameter:
    """A parameter of an algorithm.

    A ``size`` (bytes), an ``int``, a ``bool`` or ``factors`` (whole numbers) within a range, or a
    ``name`` among `choices`.
    """

    kind: str
    about: str
    minimum: int = 0
    maximum: int = 1 << 40
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Algorithm:
    """A row of a submodule's table.

    `kinds` are the task kinds it carries out; ``("allreduce",)`` fuses a level's reduce and
    broadcast. `ordered` says when operands keep their order: ``always``, ``rooted at 0``
    (only towards the first member) or ``never``.
    """

    about: str
    kinds: tuple[str, ...] = ("reduce", "bcast")
    ordered: str = "rooted at 0"

    @property
    def fuses(self) -> bool:
        """Whether it carries out a level's reduce and broadcast as one task."""
        return self.kinds == ("allreduce",)


@dataclass(frozen=True)
class Question:
    """What is asked of :meth:`Submodule.supports`.

    `blocking` is False for nonblocking and persistent calls, whose Start must not wait.
    """

    topology: Topology
    level: int
    signature: Signature
    choice: LevelChoice
    lockstep: bool = False
    segment: int | None = None
    blocking: bool = True

    @property
    def segmented(self) -> bool:
        """Whether the message comes in more than one segment, hence in several tasks."""
        signature = self.signature
        return self.segment is not None and signature.nbytes > max(self.segment, signature.element)


class Submodule(Protocol):
    """Carries out the tasks of one stream on one level."""

    @property
    def name(self) -> str:
        """What configurations call it."""

    @property
    def about(self) -> str:
        """One line for people."""

    @property
    def algorithms(self) -> Mapping[str, Algorithm]:
        """Algorithms by name; the first is the default."""

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """Parameters by name."""

    def supports(self, question: Question) -> str | None:
        """Return None, or the reason why it cannot serve."""

    def footprint(self, plan: Outline, level: int) -> int:
        """Return how many bytes of each rank's ring of cells a run takes, alike on all ranks."""

    def lower(self, context: Context) -> None:
        """Emit this rank's operations for the context's tasks."""


def order_kept(question: Question, algorithm: Algorithm, name: str = "") -> str | None:
    """Return the reason why `algorithm` would mix up operands that do not commute, or None.

    `name` says what does so, if it is more than the algorithm.
    """
    signature = question.signature
    if not signature.reduces or signature.commutative or algorithm.ordered == "always":
        return None
    name = name or question.choice.algorithm
    if algorithm.ordered == "never":
        return f"{name} does not keep the order of operands, which {signature.op} needs"
    if signature.collective == "reduce" and signature.root != 0:
        return f"{name} keeps the order of operands only towards rank 0, not {signature.root}"
    return None
