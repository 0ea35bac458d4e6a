"""Compositions: through which steps a message passes, and which ranks form the groups of each step.

A step is a kind of task on a level. The groups of a step are of one family:

- ``leaders``: the leaders of the domains one level below, as in HAN;
- ``everyone``: all ranks of a domain, some of which may have no operand;
- ``lane``: the ranks that have one place in their nodes;
- ``nap``: the ranks that exchange partial results in one round;
- ``ring``: the leaders of nodes, which take tasks in pieces, and ``parts``: leaders inside them;
- ``blocks``: ranks that give each other blocks (:mod:`han.tasks.bundles`).

What a level carries out depends on its side: it is ``inside`` nodes, the ``node`` level,
``between`` nodes, or the ``outermost`` level.

An algorithm names the families that it serves. Nothing here names a transport.

Source: Luo et al. (HAN) for ``tree``, Bienz et al. for ``nap``, Jocksch et al. and Träff for
``lanes``, Thakur et al. for ``ring``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from han.model.collectives import BOTH, DOWN, ROWS, UP
from han.model.topology import Topology
from han.tasks.block_steps import BlockSteps
from han.tasks.bundles import Bundles
from han.tasks.canonical import NOT_CANONICAL
from han.tasks.choice import LEFT, Choice
from han.tasks.graph import Task
from han.tasks.lanes import folds, inner_levels, lanes_at, lanes_of, outer_levels, sizes_at
from han.tasks.nap import base_of, largest_base, nap_of
from han.tasks.outline import Cut, Outline, levels_of
from han.tasks.parcels import Parcels
from han.tasks.places import LanePlaces, NapPlaces, Places, RingPlaces, TreePlaces
from han.tasks.prefixes import of_scan
from han.tasks.ring import Span, parts_of
from han.tasks.signature import Signature
from han.tasks.steps import Steps, of_tree
from han.tasks.stream import Builder

Fused = Callable[[int], bool]  # whether the algorithm of a level does reduce and broadcast at once
BUNDLES_IN_LANES = ("allgather", "alltoall", "reduce_scatter")
IN_LANES = (*BUNDLES_IN_LANES, "alltoallv")  # by blocks
NAP, LANES = ("allreduce", "barrier"), ("bcast", "reduce", "allreduce")  # what they serve
FAMILIES = ("leaders", "everyone", "lane", "nap", "ring", "parts", "blocks")
MOST_TASKS = 256


class Need(NamedTuple):
    """The kinds of tasks that a level carries out, and the family of their groups."""

    kinds: tuple[str, ...]
    family: str
    collectives: tuple[str, ...]  # for which it is enough
    repeats: bool = False  # a segment has several of these tasks

    def of(self, kind: str) -> Need:
        """Return the same need of one kind of tasks."""
        return self._replace(kinds=(kind,))


@dataclass(frozen=True)
class Composition:
    """A row of the table of compositions.

    `steps` are those that a segment passes through, `places` say in which groups a rank is there.
    `view` returns the topology on which it works, `unfit` the reason why it cannot serve a call (a
    view, a signature and a choice) or None. `sides` say what levels carry out, by their side; in a
    tree all carry out the same. `cut` cuts a task into parts, in which ranks work on it.
    """

    about: str
    steps: Callable[[Topology, Signature, Choice, Fused], Steps]
    places: Callable[[Outline, Builder], Places]
    view: Callable[[Topology], Topology] = lambda topology: topology
    unfit: Callable[[Topology, Signature, Choice], str | None] = lambda *_: None
    sides: Mapping[str, tuple[Need, ...]] = field(default_factory=dict)
    cut: Cut | None = None
    collectives: tuple[str, ...] = ()  # that it serves; (): any

    def needs(self, side: str, collective: str = "") -> tuple[Need, ...]:
        """Return what a level may carry out instead of a tree's tasks; () for a tree.

        It is one of these needs, for a collective or for any.
        """
        needs = self.sides.get(side, ())
        return tuple(n for n in needs if not collective or collective in n.collectives)


def side_of(view: Topology, level: int) -> str:
    """Return the side of an active level: see above."""
    inner = inner_levels(view)
    if level in inner:
        return "node" if level == inner[-1] else "inside"
    return "outermost" if level == view.active[-1] else "between"


# ---- tree, flat ----------------------------------------------------------------------------------


def _tree_steps(view: Topology, signature: Signature, choice: Choice, fused: Fused) -> Steps:
    levels = levels_of(view, signature)
    if signature.by_blocks and levels and (view.whole is None or signature.own):
        steps = BlockSteps.of_call(view, signature, choice.composition).steps
        return [(kind, levels[-1] if between else levels[0]) for kind, between in steps]
    if signature.prefix and len(levels) > 1:
        return of_scan(signature.collective, *levels)
    return of_tree(signature.collective, levels, bool(levels) and fused(levels[-1]))


def _tree_unfit(view: Topology, signature: Signature, choice: Choice) -> str | None:
    if signature.prefix and view.ordered is not view:
        return f"{signature.collective} inside nodes needs nodes of consecutive ranks"
    if not signature.by_blocks or view.whole is not None:
        return None
    if not ROWS[signature.collective].bundled:
        names = " < ".join(view.names)
        return f"{signature.collective}: the {view.size} ranks share memory at no level ({names})"
    if not signature.reduces:
        return None
    if signature.canonical:
        return f"{choice.composition} of blocks on several nodes {NOT_CANONICAL}"
    in_order = signature.commutative or Bundles.of(view, choice.composition, 0).in_order
    return None if in_order else f"{signature.op} needs nodes of consecutive ranks"


def _flat_unfit(view: Topology, signature: Signature, choice: Choice) -> str | None:
    blocks = signature.own or signature.collective == "alltoall"
    if not signature.by_blocks:
        return None
    if not blocks or view.whole is not None:
        return f"flat does not serve {signature.collective} here"
    algorithm = choice.levels[-1].algorithm
    return None if algorithm == "linear" else f"flat sends blocks straight on, {algorithm} does not"


# ---- nap ----------------------------------------------------------------------------------------


def _nap_unfit(view: Topology, signature: Signature, choice: Choice) -> str | None:
    reason = _reorders(signature, "nap") or _no_nodes(view, signature, "nap", NAP)
    if reason is not None:
        return reason
    if choice.segment is not None and signature.nbytes > max(choice.segment, signature.element):
        return "nap takes the message in one segment (segment: whole)"
    base, most = base_of(view, choice), largest_base(view)
    if base < 2:
        return f"nap: base {base}: 2 or more expected, or 0 for the ranks of the smallest node"
    if base > most:
        least = min(map(len, view.node_ranks))
        why = f"the smallest node has {least} ranks"
        if len(inner_levels(view)) > 1 and not view.nodes_alike:
            why = "nodes differ in the levels inside them"
        return f"nap: base {base}, but {why}: at most {most}"
    tasks = 2 * len(inner_levels(view)) * (nap_of(view, choice).rounds + 1)
    return None if tasks <= MOST_TASKS else f"nap: {tasks} tasks, at most {MOST_TASKS}"


def _nap_steps(view: Topology, signature: Signature, choice: Choice, fused: Fused) -> Steps:
    local = of_tree("allreduce", inner_levels(view), fused=True)
    return local + [("allreduce", view.active[-1]), *local] * nap_of(view, choice).rounds


# ---- lanes --------------------------------------------------------------------------------------


def _lanes_unfit(view: Topology, signature: Signature, choice: Choice) -> str | None:
    if signature.singly:
        return "lanes: the blocks of this call travel by themselves"
    if signature.neighbours is not None and Parcels.of_call(view, signature, "lanes") is None:
        return "lanes: these neighbours have no parcels"
    if signature.by_blocks:
        reason = _no_nodes(view, signature, "lanes", (*LANES, *IN_LANES))
        return reason or _tree_unfit(view, signature, choice)
    reason = _no_nodes(view, signature, "lanes", LANES)
    if reason is not None:
        return reason
    *inside, node = inner_levels(view)
    most, lanes = sizes_at(view, node)[1], lanes_at(view, node, choice.levels[node])
    for level in inside:
        least, asked = sizes_at(view, level)[0], lanes_at(view, level, choice.levels[level])
        if asked > least:
            name = view.names[level]
            return f"lanes: {asked} lanes, but the smallest group of level {name!r} has {least}"
    if lanes > most:
        what = "parts" if inside else "ranks"
        return f"lanes: {lanes} lanes, but the largest node has {most} {what}"
    if not signature.nbytes:
        return "lanes: a call without data has nothing to share out"
    return None


def _lanes_steps(view: Topology, signature: Signature, choice: Choice, fused: Fused) -> Steps:
    if signature.by_blocks:
        return _tree_steps(view, signature, choice, fused)
    inner, outer, row = inner_levels(view), outer_levels(view), ROWS[signature.collective]
    first = "reduce_scatter" if row.reduces else "scatter"
    last = "gather" if row.reduces and row.rooted else "allgather"
    return [
        *((first, level) for level in inner),
        *of_tree(signature.collective, outer, fused(outer[-1])),
        *((last, level) for level in reversed(inner)),
    ]


# ---- ring ---------------------------------------------------------------------------------------


def _ring_unfit(view: Topology, signature: Signature, choice: Choice) -> str | None:
    if signature.collective not in LANES:
        return f"ring serves {', '.join(LANES)}, not {signature.collective}"
    if not view.active or (len(view.active) == 1 and view.shared[view.active[0]]):
        return f"ring: all {view.size} ranks are on one node"
    if signature.canonical:
        return _reorders(signature, "ring")
    return None if signature.nbytes else "ring: a call without data has nothing to send round"


def _ring_steps(view: Topology, signature: Signature, choice: Choice, fused: Fused) -> Steps:
    return of_tree(signature.collective, view.active, fused=True)


def _ring_cut(view: Topology, signature: Signature, choice: Choice, task: Task) -> list[Span]:
    groups = parts_of(view, signature, choice, task).groups
    return [part for group in groups for part in group]


# ---- the table ----------------------------------------------------------------------------------


def _no_nodes(
    view: Topology, signature: Signature, name: str, collectives: Sequence[str]
) -> str | None:
    """Return why a call or a topology without several nodes of several ranks is not served."""
    if signature.collective not in collectives:
        return f"{name} serves {', '.join(collectives)}, not {signature.collective}"
    if inner_levels(view) and outer_levels(view):
        return None
    if not any(view.shared[:-1]):
        return f"{name}: no level inside {view.names[-1]!r} has groups that share memory"
    nodes = view.node_ranks
    if len(nodes) == 1:
        return f"{name}: all {view.size} ranks are on one node"
    return f"{name}: each of {len(nodes)} nodes has one rank"


def _reorders(signature: Signature, name: str) -> str | None:
    """Return why a composition whose groups are no blocks serves no reproducible reduction."""
    if not signature.canonical:
        return None
    return f"{name} {NOT_CANONICAL}"


TREE, FLAT = "tree", "flat"
TO_ROOT = (Need(("reduce",), "lane", ("reduce",)), Need(("bcast",), "lane", ("bcast",)))
BY_TREES = (Need(("reduce", "bcast"), "lane", ("allreduce",)), *TO_ROOT)
ON_RING = tuple(
    Need(kinds, "ring", (name,))
    for kinds, name in ((("allreduce",), "allreduce"), (UP, "reduce"), (DOWN, "bcast"))
)
IN_PIECES = tuple(
    Need(kinds, "parts", (name,))
    for kinds, name in ((BOTH, "allreduce"), (UP, "reduce"), (DOWN, "bcast"))
)
IN_SHARES = (Need(("reduce_scatter", "scatter", "gather", "allgather"), "everyone", LANES),)
COMPOSITIONS: Mapping[str, Composition] = {
    TREE: Composition(
        "reduce up the levels, broadcast down (HAN)", _tree_steps, TreePlaces, unfit=_tree_unfit
    ),
    FLAT: Composition(
        "all ranks in one group on the outermost level",
        _tree_steps,
        TreePlaces,
        lambda topology: topology.flat,
        _flat_unfit,
        collectives=(
            *(n for n, row in ROWS.items() if row.kinds or row.prefix or row.own),
            "alltoall",
        ),
    ),
    "nap": Composition(
        "allreduce inside nodes; every rank of a node exchanges with another node (Bienz)",
        _nap_steps,
        NapPlaces,
        lambda topology: topology.one_network,
        _nap_unfit,
        collectives=NAP,
        sides={
            "inside": (Need(("reduce", "bcast"), "everyone", NAP, repeats=True),),
            "node": (Need(("allreduce",), "everyone", NAP, repeats=True),),
            "outermost": (Need(("allreduce",), "nap", NAP, repeats=True),),
        },
    ),
    "lanes": Composition(
        "shares inside nodes; the ranks of one place in their nodes combine a share (Träff)",
        _lanes_steps,
        LanePlaces,
        unfit=_lanes_unfit,
        collectives=(*LANES, *IN_LANES),
        sides={
            "inside": IN_SHARES,
            "node": (
                *IN_SHARES,
                Need(("gather", "scatter", *BUNDLES_IN_LANES), "blocks", BUNDLES_IN_LANES),
                Need(("alltoall", "scatter"), "blocks", ("alltoallv",)),
            ),
            "between": BY_TREES,
            "outermost": (
                Need(("allreduce",), "lane", ("allreduce",)),
                *BY_TREES,
                *(Need(ROWS[name].task_kinds, "blocks", (name,)) for name in IN_LANES),
            ),
        },
    ),
    "ring": Composition(
        "pieces go round all nodes, while nodes combine and broadcast others (ring, chain)",
        _ring_steps,
        RingPlaces,
        unfit=_ring_unfit,
        collectives=LANES,
        sides={
            **dict.fromkeys(("inside", "node", "between"), IN_PIECES),
            "outermost": ON_RING,
        },
        cut=_ring_cut,
    ),
}


def describe(view: Topology, choice: Choice) -> str:
    """Return a line about a composition other than a tree; "" for a tree."""
    from han.common.units import plural

    nodes = plural(len(view.node_ranks), "node")
    if choice.composition == "nap" and inner_levels(view):
        rounds = plural(nap_of(view, choice).rounds, "round")
        return f"nap: {nodes}, {rounds} with base {base_of(view, choice)}"
    if choice.composition == "lanes" and inner_levels(view):
        folded = ", which small nodes fold" if folds(view, choice) else ""
        rails = plural(view.rail_count, "rail")
        on_rails = f" on {rails}" if view.rail_count > 1 else ""
        return f"lanes: {plural(lanes_of(view, choice), 'lane')}{on_rails} of {nodes}{folded}"
    if choice.composition == "ring":
        return f"ring: {plural(view.widest(view.active[-1]), 'node')}" if view.active else ""
    return f"flat: one group of {plural(view.size, 'rank')}" if choice.composition == "flat" else ""


def composition(name: str) -> Composition:
    """Return a row of the table; calls that are left to the MPI library are trees without tasks.

    Raises KeyError for an unknown name.
    """
    return COMPOSITIONS[TREE if name == LEFT else name]


def as_called(topology: Topology, signature: Signature, name: str = TREE) -> Topology:
    """Return the topology of a call: with consecutive ranks in domains if operands keep order.

    In reproducible calls domains are whole blocks. It has the levels on which the composition
    `name` works; calls by blocks and scans know nodes and ranks only, scans of one node ranks only.
    """
    if signature.by_blocks:
        return topology if topology.whole is not None else topology.one_network
    if signature.prefix:
        return topology.two_levels if name == TREE and topology.whole is None else topology.flat
    if signature.reduces:
        if signature.canonical:
            topology = topology.aligned
        elif not signature.commutative:
            topology = topology.ordered
    return composition(name).view(topology)
