"""Prior knowledge that prunes the space of a search (HAN, section III-C), with reasons.

Source: Luo et al., HAN, section III-C.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import NamedTuple

from han.model.topology import Topology
from han.submodules.registry import submodule
from han.tasks.choice import Choice, LevelChoice
from han.tasks.compositions import as_called
from han.tasks.outline import levels_of
from han.tasks.signature import Signature
from han.tuning.measured import IN_CHAIN, MOST_SEGMENTS, SINGLE_COPY
from han.tuning.search.space import HEURISTIC, Pruned, Space

KiB = 1024
SWITCHES = ("bool", "name")  # kinds of parameters that choose between variants of one algorithm


class LevelInCall(NamedTuple):
    """What a level would run in a call with a choice."""

    signature: Signature
    topology: Topology
    level: int
    one: LevelChoice
    choice: Choice

    @property
    def moved(self) -> int:
        """The bytes that a task moves."""
        return min(self.signature.nbytes, self.choice.segment or self.signature.nbytes)


Reason = Callable[[LevelInCall], str | None]


def _single_copy(asked: LevelInCall) -> str | None:
    if submodule(asked.one.submodule).reads_peers and asked.moved < SINGLE_COPY:
        return f"single copies of less than {SINGLE_COPY // KiB} KiB cost more than two copies"
    return None


def _chain(asked: LevelInCall) -> str | None:
    pieces = -(-asked.signature.nbytes // asked.one.get("segment", 32 * KiB))
    members = asked.topology.widest(asked.level)
    if asked.one.algorithm == "chain" and IN_CHAIN * pieces < members - 1:
        return f"{pieces} pieces do not fill a chain of {members} members"
    return None


def _switch(asked: LevelInCall) -> str | None:
    known, topology = submodule(asked.one.submodule).parameters, asked.topology
    names = [key for key, _ in asked.one.parameters if known[key].kind in SWITCHES]
    sockets = len(set(topology.sockets)) > len(set(topology.memory))
    by_socket = [key for key in names if "socket" in key or "leaders" in key]
    if by_socket and not sockets:
        return f"{by_socket[0]} matters on several sockets only"
    if any(known[key].kind == "bool" for key in names):
        return "switches turn optimisations off, for han ablation"
    return None


def _pieces(asked: LevelInCall) -> str | None:
    """Refuse parameters in bytes that are larger than what a task moves."""
    known = submodule(asked.one.submodule).parameters
    sizes = [v for key, v in asked.one.parameters if known[key].kind == "size"]
    if any(isinstance(v, int) and v >= 4 * asked.moved for v in sizes):
        return "pieces that are larger than the data"
    return None


BY_LEVEL: tuple[Reason, ...] = (_single_copy, _chain, _switch, _pieces)


def _whole(signature: Signature, choice: Choice) -> str | None:
    if choice.schedule == "lockstep":
        return "lockstep starts no task earlier than dataflow does"
    if choice.segment and signature.nbytes > MOST_SEGMENTS * choice.segment:
        return f"more than {MOST_SEGMENTS} segments cost more than they overlap"
    return None


def reason_against(signature: Signature, topology: Topology, choice: Choice) -> str | None:
    """Return why a choice is not expected to be the best one, or None."""
    whole = _whole(signature, choice)
    if whole is not None:
        return whole
    called = as_called(topology, signature, choice.composition)
    for level in levels_of(called, signature):
        for reason, one in product(BY_LEVEL, choice.levels[level].each):
            told = reason(LevelInCall(signature, called, level, one, choice))
            if told is not None:
                return told
    return None


def prune(space: Space, signature: Signature, topology: Topology) -> Space:
    """Return a space without what heuristics expect to be slow; the built-in choice stays."""
    first, *others = space.candidates
    kept, pruned = [first], dict.fromkeys(space.pruned)
    for choice in others:
        reason = reason_against(signature, topology, choice)
        if reason is None:
            kept.append(choice)
        else:
            pruned[Pruned("heuristic", reason, HEURISTIC)] = None
    return Space(tuple(kept), tuple(pruned))
