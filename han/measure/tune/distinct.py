"""Find choices that give the same programs: only one of them needs to be measured.

Many parameters change nothing on a given machine: all trees are one among two members, and a chunk
of 1 MiB is one of 64 KiB for small messages. Ranks compare digests of the programs they would run.
The memory of a lab holds what was found, with the costs of stages and the calls that are ready.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from mpi4py import MPI

from han.measure.bench_calls import Buffers
from han.measure.measured import COARSE, COARSE_SEGMENT, EXACT, OFTEN
from han.model.program import Program
from han.runtime.state import Forced
from han.tasks.choice import Choice, LevelChoice
from han.tasks.signature import Signature
from han.tuning.costs.model import Costs
from han.tuning.search.results import Cold, Errors, Winners

DIGEST = 16  # bytes

Levels = tuple[LevelChoice, ...]
Kind = tuple[str, str, bool]  # collective, composition, and whether the message is cut
Part = tuple[Kind, int, LevelChoice]  # what runs on a level
Make = Callable[[Signature, Choice], Program | None]  # None: the choice cannot serve the call


class Distinct:
    """Groups choices by the programs of all ranks; `make` lowers a choice for this rank.

    Once `late` says on all ranks that the time is over, the others count as different.
    """

    def __init__(self, control: MPI.Intracomm, make: Make, late: Callable[[], bool]) -> None:
        self._control, self._make, self._late = control, make, late
        self._first: dict[tuple[str, str, bool, Levels], Levels] = {}  # by _key
        self._usual: dict[Kind, Levels] = {}  # the choices beside which others are compared
        self._told: dict[Part, object] = {}  # the digest of all ranks; what has none is like itself
        self._groups: dict[object, Levels] = {}  # the first levels with these digests

    def of(self, signature: Signature, choices: Sequence[Choice]) -> list[Choice]:
        """Return the first choice of each group; collective."""
        self._compare_levels(signature, choices)
        group = self.grouping(signature)
        alike: dict[Hashable, Choice] = {}
        for choice in choices:
            alike.setdefault(group(choice), choice)
        kept = list(alike.values())
        if signature.nbytes > EXACT:
            return kept
        first: dict[object, Choice] = {}
        for choice, told in zip(kept, self._digests([(signature, c) for c in kept]), strict=True):
            first.setdefault(choice if told is None else told, choice)
        return list(first.values())

    def grouping(self, signature: Signature) -> Callable[[Choice], Hashable | None]:
        """Return what says which group of choices of a collective one is in; None if unknown."""

        def group(choice: Choice) -> Hashable | None:
            first = self._first.get(_key(signature, choice))
            if first is None:
                return None
            return first, choice.segment, choice.schedule, choice.composition

        return group

    def _compare_levels(self, signature: Signature, choices: Sequence[Choice]) -> None:
        """Compare what is new on a level, at a size where most parameters matter.

        Each is compared beside the usual choices of the other levels. So the programs to make are
        as many as the choices of all levels together, and not their combinations.
        """
        new = {_key(signature, c): c for c in choices if _key(signature, c) not in self._first}
        asked: dict[Part, Choice] = {}
        for key, choice in new.items():
            usual = self._usual.setdefault(key[:3], choice.levels)
            for k, one in enumerate(choice.levels):
                if (key[:3], k, one) not in self._told:
                    levels = (*usual[:k], one, *usual[k + 1 :])
                    segment = COARSE_SEGMENT if choice.segment else None
                    asked[key[:3], k, one] = replace(choice, levels=levels, segment=segment)
        large = replace(signature, count=COARSE // signature.element)
        digests = self._digests([(large, choice) for choice in asked.values()])
        for part, told in zip(asked, digests, strict=True):
            self._told[part] = part if told is None else told
        for key in new:
            told_of = tuple(self._told[key[:3], k, one] for k, one in enumerate(key[3]))
            self._first[key] = self._groups.setdefault((key[:3], told_of), key[3])

    def _digests(self, calls: Sequence[tuple[Signature, Choice]]) -> list[bytes | None]:
        """Return for each call the digests of all ranks' programs; None if a rank has none."""
        mine = np.zeros((len(calls), DIGEST), np.uint8)
        for k, (signature, choice) in enumerate(calls):
            if k % OFTEN == 0 and self._late():
                break
            program = self._make(signature, choice)
            if program is not None:
                mine[k] = np.frombuffer(digest_of(program), np.uint8)
        every = np.empty((self._control.size, *mine.shape), np.uint8)
        self._control.Allgather(mine, every)
        joined = np.ascontiguousarray(every.transpose(1, 0, 2))  # by call, then by rank
        return [ranks.tobytes() if ranks.any(axis=1).all() else None for ranks in joined]


def _key(signature: Signature, choice: Choice) -> tuple[str, str, bool, Levels]:
    return signature.collective, choice.composition, choice.segment is not None, choice.levels


def digest_of(program: Program) -> bytes:
    """Return the digest of what a program does, whatever its tasks are called."""
    streams = [(stream.start, stream.stop) for stream in program.streams]
    parts = (streams, program.requests, program.scratch, program.footprint, program.comms)
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=DIGEST)
    digest.update(program.code.tobytes())
    return digest.digest()


# ---- what a lab keeps ---------------------------------------------------------------------------


@dataclass
class Ready:
    """A call that runs a choice, and about how many seconds it takes.

    `told` is the observation of the first run, if nothing disturbed it and it was not used yet.
    """

    made: Forced
    buffers: Buffers
    expected: float
    told: Cold
    doubts: int = 0  # series that said nothing


@dataclass(frozen=True)
class Memory:
    """What the search of one strategy has learnt from the inputs so far."""

    distinct: Distinct
    costs: Costs = field(default_factory=Costs)
    errors: Errors = field(default_factory=Errors)
    winners: Winners = field(default_factory=Winners)
