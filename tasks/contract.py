"""The contract of a submodule."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

from han.model.topology import Topology
from han.tasks.choice import LevelChoice, Value
from han.tasks.context import Context
from han.tasks.outline import Outline
from han.tasks.signature import Signature

TRIED_SIZES = (4096, 64, 256, 1000, 65536)  # of pieces, in tests


@dataclass(frozen=True)
class Parameter:
    """A parameter of an algorithm.

    A ``size`` (bytes), an ``int``, a ``bool`` or ``factors`` (whole numbers) within a range, or a
    ``name`` among `choices`. Tests set it to the values of `tried`, the first where one will do:
    small ones, so that small messages take many pieces.
    """

    kind: str
    about: str
    minimum: int = 0
    maximum: int = 1 << 40
    choices: tuple[str, ...] = ()
    tried: tuple[int, ...] = ()

    @property
    def values(self) -> tuple[Value, ...]:
        """The values that tests draw from; none: they leave it as it is."""
        if self.kind == "bool":
            return (False, True)
        return self.choices or self.tried


@dataclass(frozen=True)
class Algorithm:
    """A row of a submodule's table.

    `kinds` are the task kinds it carries out; ``("allreduce",)`` fuses a level's reduce and
    broadcast. `ordered` says when operands keep their order: ``always``, ``rooted at 0``
    (only towards the first member) or ``never``. `one_segment`: it takes the message whole.
    """

    about: str
    kinds: tuple[str, ...] = ("reduce", "bcast")
    ordered: str = "rooted at 0"
    one_segment: bool = False

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


class Submodule(ABC):
    """Carries out the tasks of one stream on one level.

    A subclass sets `name`, `about` and `algorithms`, and says what holds for it: nothing else
    knows submodules by name.
    """

    name: str  # what configurations call it
    about: str  # one line for people
    algorithms: Mapping[str, Algorithm]  # by name; the first is the default
    parameters: Mapping[str, Parameter] = {}
    flags: tuple[str, ...] = ()  # names of a rank's flags, for listings of programs
    correct: bool = True  # results are right; False: it only measures overhead
    reads_peers: bool = False  # ranks read or write their peers' buffers
    in_memory: bool = False  # every algorithm works in memory that ranks share, without messages
    may_block: bool = False  # it refuses nonblocking and persistent calls

    @abstractmethod
    def supports(self, question: Question) -> str | None:
        """Return None, or the reason why it cannot serve."""

    @abstractmethod
    def lower(self, context: Context) -> None:
        """Emit this rank's operations for the context's tasks."""

    def footprint(self, plan: Outline, level: int) -> int:
        """Return how many bytes of each rank's ring of cells a run takes, alike on all ranks."""
        return 0

    def reads_mapped(self, topology: Topology, signature: Signature, level: int) -> bool:
        """Whether all that members of a level read of each other is in memory that they map."""
        return False


def order_kept(question: Question, algorithm: Algorithm, name: str = "") -> str | None:
    """Return the reason why `algorithm` would mix up operands that do not commute, or None.

    `name` is what the reason calls it; by default the algorithm's name.
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
