"""Compositions: through which steps a message passes, and which ranks form the groups of each step.

A step is a kind of task on a level. The groups of a step are of one family:

- ``leaders``: the leaders of the domains one level below, as in HAN;
- ``everyone``: all ranks of a domain, some of which may have no operand;
- ``lane``: the ranks that have one place in their nodes;
- ``nap``: the ranks that exchange partial results in one round.

An algorithm names the families that it serves. Nothing here names a transport.

Source: Luo et al. (HAN) for ``tree``, Bienz et al. for ``nap``, Jocksch et al. and Träff for
``lanes``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from han.model.collectives import ROWS
from han.model.topology import Topology
from han.tasks.choice import LEFT, Choice
from han.tasks.nap import Nap
from han.tasks.signature import Signature

Steps = list[tuple[str, int]]
NAP, LANES = ("allreduce", "barrier"), ("bcast", "reduce", "allreduce")  # what they serve
FAMILIES = ("leaders", "everyone", "lane", "nap")
MOST_ROUNDS = 64


class Need(NamedTuple):
    """The kinds of tasks that a level carries out, and the family of their groups."""

    kinds: tuple[str, ...]
    family: str
    collectives: tuple[str, ...]  # for which it is enough
    repeats: bool = False  # a segment has several of these tasks


@dataclass(frozen=True)
class Composition:
    """A row of the table of compositions.

    `view` returns the topology on which it works, `unfit` the reason why it cannot serve a call (a
    view, a signature and a choice) or None. `inner` and `outer` say what its two levels carry out.
    A tree has neither: builders know its steps.
    """

    about: str
    view: Callable[[Topology], Topology] = lambda topology: topology
    unfit: Callable[[Topology, Signature, Choice], str | None] = lambda *_: None
    steps: Callable[[Topology, Signature, Choice, bool], Steps] | None = None
    inner: tuple[Need, ...] = ()
    outer: tuple[Need, ...] = ()

    def needs(self, outermost: bool, collective: str = "") -> tuple[Need, ...]:
        """Return what a level may carry out instead of a tree's tasks; () for a tree.

        It is one of these needs, for a collective or for any.
        """
        needs = self.outer if outermost else self.inner
        return tuple(n for n in needs if not collective or collective in n.collectives)


# ---- nap ----------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def nodes_of(view: Topology) -> tuple[tuple[int, ...], ...]:
    """Return the ranks of each node, in the order of the nodes' first ranks."""
    level = view.active[0] if len(view.active) == 2 else max(0, view.depth - 2)
    ranks: dict[int, list[int]] = {}
    for rank, domain in enumerate(view.domains[level]):
        ranks.setdefault(domain, []).append(rank)
    return tuple(map(tuple, ranks.values()))


def nap_of(view: Topology, choice: Choice) -> Nap:
    """Return the rounds of a choice."""
    return Nap(nodes_of(view), base_of(view, choice))


def base_of(view: Topology, choice: Choice) -> int:
    """Return how many subgroups a round brings together: the ranks of the smallest node, or 2."""
    return choice.levels[view.active[-1]].get("base", 0) or largest_base(view)


def largest_base(view: Topology) -> int:
    """Return the largest base with which every local rank receives one message in a round."""
    return max(2, min(map(len, nodes_of(view))))


def _nap_unfit(view: Topology, signature: Signature, choice: Choice) -> str | None:
    reason = _two_levels(view, signature, "nap", NAP) or _one_task(signature, choice, "nap")
    if reason is not None:
        return reason
    base, most = base_of(view, choice), largest_base(view)
    if base < 2:
        return f"nap: base {base}: 2 or more expected, or 0 for the ranks of the smallest node"
    if base > most:
        least = min(map(len, nodes_of(view)))
        return f"nap: base {base}, but the smallest node has {least} ranks: at most {most}"
    tasks = 2 * nap_of(view, choice).rounds + 1
    return None if tasks <= MOST_ROUNDS else f"nap: {tasks} tasks, at most {MOST_ROUNDS}"


def _nap_steps(view: Topology, signature: Signature, choice: Choice, fused: bool) -> Steps:
    inner, outer = view.active
    local = [("allreduce", inner)]
    return local + [("allreduce", outer), *local] * nap_of(view, choice).rounds


# ---- lanes --------------------------------------------------------------------------------------


def lanes_of(view: Topology, choice: Choice) -> int:
    """Return the number of lanes: by default the ranks of the smallest node."""
    return choice.levels[view.active[0]].get("lanes", 0) or min(map(len, nodes_of(view)))


def _lanes_unfit(view: Topology, signature: Signature, choice: Choice) -> str | None:
    reason = _two_levels(view, signature, "lanes", LANES)
    if reason is not None:
        return reason
    lanes, least = lanes_of(view, choice), min(map(len, nodes_of(view)))
    if lanes > least:
        return f"lanes: {lanes} lanes, but the smallest node has {least} ranks"
    if not signature.nbytes:
        return "lanes: a call without data has nothing to share out"
    return None


def _lanes_steps(view: Topology, signature: Signature, choice: Choice, fused: bool) -> Steps:
    inner, outer = view.active
    row = ROWS[signature.collective]
    first = "reduce_scatter" if row.reduces else "scatter"
    last = "gather" if row.reduces and row.rooted else "allgather"
    across = ("allreduce",) if fused else row.kinds
    return [(first, inner), *((kind, outer) for kind in across), (last, inner)]


# ---- the table ----------------------------------------------------------------------------------


def _two_levels(
    view: Topology, signature: Signature, name: str, collectives: Sequence[str]
) -> str | None:
    if signature.collective not in collectives:
        return f"{name} serves {', '.join(collectives)}, not {signature.collective}"
    if len(view.active) == 2:
        return None
    if view.depth == 1 or not any(view.shared[:-1]):
        return f"{name}: no level inside {view.names[-1]!r} has groups that share memory"
    nodes = nodes_of(view)
    if len(nodes) == 1:
        return f"{name}: all {view.size} ranks are on one node"
    return f"{name}: each of {len(nodes)} nodes has one rank"


def _one_task(signature: Signature, choice: Choice, name: str) -> str | None:
    if choice.segment is None or signature.nbytes <= max(choice.segment, signature.element):
        return None
    return f"{name} takes the message in one segment (segment: whole)"


def _flat_unfit(view: Topology, signature: Signature, choice: Choice) -> str | None:
    return f"flat does not serve {signature.collective}" if signature.by_blocks else None


TREE = "tree"
COMPOSITIONS: Mapping[str, Composition] = {
    TREE: Composition("reduce up the levels, broadcast down (HAN)"),
    "flat": Composition(
        "all ranks in one group on the outermost level", Topology.flat, _flat_unfit
    ),
    "nap": Composition(
        "allreduce inside nodes; every rank of a node exchanges with another node (Bienz)",
        Topology.two_levels,
        _nap_unfit,
        _nap_steps,
        (Need(("allreduce",), "everyone", NAP, repeats=True),),
        (Need(("allreduce",), "nap", NAP, repeats=True),),
    ),
    "lanes": Composition(
        "shares inside nodes; the ranks of one place in their nodes combine a share (Träff)",
        Topology.two_levels,
        _lanes_unfit,
        _lanes_steps,
        (Need(("reduce_scatter", "scatter", "gather", "allgather"), "everyone", LANES),),
        (
            Need(("allreduce",), "lane", ("allreduce",)),
            Need(("reduce", "bcast"), "lane", ("allreduce",)),
            Need(("reduce",), "lane", ("reduce",)),
            Need(("bcast",), "lane", ("bcast",)),
        ),
    ),
}


def describe(view: Topology, choice: Choice) -> str:
    """Return a line about a composition other than a tree; "" for a tree."""
    from han.common.units import plural

    nodes = plural(len(nodes_of(view)), "node")
    if choice.composition == "nap" and len(view.active) == 2:
        rounds = plural(nap_of(view, choice).rounds, "round")
        return f"nap: {nodes}, {rounds} with base {base_of(view, choice)}"
    if choice.composition == "lanes" and len(view.active) == 2:
        return f"lanes: {plural(lanes_of(view, choice), 'lane')} of {nodes}"
    return f"flat: one group of {plural(view.size, 'rank')}" if choice.composition == "flat" else ""


def composition(name: str) -> Composition:
    """Return a row of the table; calls that are left to the MPI library are trees without tasks.

    Raises KeyError for an unknown name.
    """
    return COMPOSITIONS[TREE if name == LEFT else name]
