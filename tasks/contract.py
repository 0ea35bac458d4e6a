"""The contract of a submodule: what it declares, and the questions that it answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from han.config.parameters import Parameter as Parameter  # what submodules declare
from han.config.parameters import not_taken
from han.model.topology import Topology
from han.tasks.canonical import NOT_CANONICAL
from han.tasks.choice import LevelChoice, Value
from han.tasks.compositions import Need
from han.tasks.context import Context
from han.tasks.outline import Outline
from han.tasks.signature import Signature

PLAIN = ("leaders", "lane", "parts")  # families of groups in which every member has an operand
ANY = (*PLAIN, "everyone")  # also of groups in which some members have none


@dataclass(frozen=True)
class Algorithm:
    """A row of a submodule's table.

    `kinds` are the task kinds it carries out; with ``allreduce`` it fuses the reduce and the
    broadcast of the outermost level. One that scans inside nodes also broadcasts what comes before
    the node. `ordered` says when operands keep their order: ``always``,
    ``rooted at 0`` (only towards the first member) or ``never``. `one_segment`: it does not take a
    message in several segments. `takes` names the parameters that it reads, no other is
    accepted; None: all of its submodule. `families` are the families of groups that it serves
    (:mod:`han.tasks.compositions`). With ``everyone`` it combines only the operands of
    ``Context.contributors``, and it may have several tasks of a segment. `canonical`: it can
    combine in the canonical order (:mod:`han.tasks.canonical`). `own`: it serves calls whose ranks
    know only the sizes of their own blocks, and no others.
    """

    about: str
    kinds: tuple[str, ...] = ("reduce", "bcast")
    ordered: str = "rooted at 0"
    one_segment: bool = False
    takes: tuple[str, ...] | None = None
    families: tuple[str, ...] = PLAIN
    canonical: bool = False
    own: bool = False

    @property
    def fuses(self) -> bool:
        """Whether it carries out the outermost level's reduce and broadcast as one task."""
        return "allreduce" in self.kinds


class Question(NamedTuple):
    """The argument of :meth:`Submodule.supports`: a call, and the level that is to be served.

    `blocking` is False for nonblocking and persistent calls, whose Start must not wait. `kind` is
    the kind of tasks that run `choice`; "" for all of the call's.
    """

    topology: Topology
    level: int
    signature: Signature
    choice: LevelChoice
    segment: int | None = None
    blocking: bool = True
    kind: str = ""
    repeats: bool = False  # a segment has several tasks on the level

    def of_kind(self, kind: str, choice: LevelChoice) -> Question:
        """Return the question for one kind of tasks, which run `choice`."""
        where, level, call, _, segment, blocking, _, repeats = self
        return Question(where, level, call, choice, segment, blocking, kind, repeats)

    @property
    def segmented(self) -> bool:
        """Whether the message has more than one segment, and therefore several tasks."""
        signature = self.signature
        return self.segment is not None and signature.nbytes > max(self.segment, signature.element)


class Submodule(ABC):
    """Carries out the tasks of one stream on one level.

    A subclass sets `name`, `about`, `algorithms`, and the attributes that differ from the
    defaults. Only the built-in choices and the ablation know submodules by name.
    """

    name: str  # in configurations
    about: str  # one line for users
    algorithms: Mapping[str, Algorithm]  # by name; the first is the default
    parameters: Mapping[str, Parameter] = {}
    flags: tuple[str, ...] = ()  # names of a rank's flags, for listings of programs
    correct: bool = True  # results are right; False: it only measures overhead
    reads_peers: bool = False  # ranks read or write their peers' buffers
    in_memory: bool = False  # algorithms work in shared memory; adapters carry any messages
    may_block: bool = False  # it refuses nonblocking and persistent calls
    by_place: bool = False  # of ranks, programs name only members of the group, by their place
    periodic: bool = False  # more bytes, beyond some MiB, repeat operations (tasks/samples.py)

    @abstractmethod
    def supports(self, question: Question) -> str | None:
        """Return None, or the reason why it cannot serve the call on this level."""

    @abstractmethod
    def lower(self, context: Context) -> None:
        """Emit this rank's operations for the context's tasks."""

    def factor_lists(self, algorithm: str, members: int) -> Iterable[tuple[int, ...]]:
        """Return lists of factors that a tuner tries among so many members, beside the default."""
        return ()

    def never(self, algorithm: str, parameters: Mapping[str, Value]) -> str | None:
        """Return why an algorithm can never take some parameters, whatever the call, or None."""
        return None

    def taken(self, algorithm: str) -> tuple[str, ...]:
        """Return the names of the parameters that an algorithm reads."""
        takes = self.algorithms[algorithm].takes
        return tuple(self.parameters) if takes is None else takes

    def untaken(self, choice: LevelChoice) -> str | None:
        """Return why an algorithm cannot have its parameters: it does not read one; or None."""
        taken = self.taken(choice.algorithm)
        name = next((name for name, _ in choice.parameters if name not in taken), None)
        return None if name is None else not_taken(choice.algorithm, name, taken)

    def meets(self, algorithm: str, need: Need) -> bool:
        """Return whether an algorithm carries out what a composition needs on a level."""
        row = self.algorithms[algorithm]
        knows_leaders_only = self.reads_peers and need.family != "leaders"
        knows_leaders_only |= row.one_segment and need.family == "parts"
        serves = set(need.kinds) <= set(row.kinds) and need.family in row.families
        return serves and not knows_leaders_only

    def sends(self, topology: Topology, level: int, choice: LevelChoice) -> bool:
        """Return whether members of a level send messages."""
        return not self.in_memory

    def footprint(self, plan: Outline, level: int) -> int:
        """Return the bytes of each rank's ring that a run takes, the same on all ranks."""
        return 0

    def reads_mapped(
        self, topology: Topology, signature: Signature, level: int,
        choice: LevelChoice | None = None,
    ) -> bool:  # fmt: skip
        """Return whether members of a level map all buffers of peers that they read by a choice.

        None: by any.
        """
        return False


def order_kept(question: Question, algorithm: Algorithm, name: str = "") -> str | None:
    """Return why `algorithm` would reorder operands whose order matters, or None.

    The reason calls the algorithm `name`, by default as in the configuration.
    """
    signature = question.signature
    name = name or question.choice.algorithm
    if not signature.reduces or question.kind == "bcast":
        return None
    if signature.canonical:
        return None if algorithm.canonical else f"{name} {NOT_CANONICAL}"
    if signature.commutative or algorithm.ordered == "always":
        return None
    if algorithm.ordered == "never":
        return f"{name} does not keep the order of operands, which {signature.op} needs"
    if signature.collective == "reduce" and signature.root != 0:
        return f"{name} keeps the order of operands only towards rank 0, not {signature.root}"
    return None
