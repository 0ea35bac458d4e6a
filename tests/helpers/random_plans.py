"""Random machines and plans on them: every algorithm of every submodule has its turn.

Machines have 1 to 64 ranks in 1 to 4 levels, uneven and interleaved, with memory shared up to any
level or by nobody. An example depends on its number alone: `example(number)` makes it again.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from machines import PARTS as ALGORITHMS
from machines import (
    collectives_of,
    composition_of,
    draw_factors,
    draw_one_way,
    topology_of,
    values_of,
)
from plans import rules_of

from han.model.collectives import BY_BLOCKS, DATALESS, REDUCING, REPLACING, ROOTED, ROWS, UNEVEN
from han.model.topology import Topology
from han.submodules.registry import plan_of_choice, registered
from han.tasks.choice import Choice, LevelChoice
from han.tasks.compositions import COMPOSITIONS, TREE, as_called
from han.tasks.outline import levels_of
from han.tasks.plan import Plan
from han.tasks.signature import Signature
from han.tuning.built_in.choosing import NodeTraits, choose
from han.tuning.rules import RuleTable

KiB = 1024
SIZES = ((2, 8), (2, 12), (9, 24), (20, 64))  # ranges of a machine's ranks
MOST_OVER_NODES = 20  # ranks of calls by blocks: there are as many blocks as pairs of ranks
PIECES = 12  # that a message is cut into, about: more of the same proves little


@dataclass(frozen=True, order=True)
class Target:
    """What is to be proved."""

    submodule: str
    algorithm: str
    collective: str


TARGETS = [
    Target(name, algorithm, collective)
    for name, algorithm in ALGORITHMS
    for collective in collectives_of(name, algorithm)
]


@dataclass(frozen=True)
class Example:
    """Plans that run back to back on one communicator, and what they prove."""

    plans: tuple[Plan, ...]
    in_place: bool

    @property
    def proves(self) -> set[Target]:
        """The algorithms that have something to do."""
        found = set()
        for plan in self.plans:
            for level in plan.levels:
                choice = plan.choice.levels[level]
                collective = plan.signature.collective
                found.add(Target(choice.submodule, choice.algorithm, collective))
        return found

    def __str__(self) -> str:
        topology = self.plans[0].topology
        calls = "; ".join(f"{p.signature.describe()} by {p.choice}" for p in self.plans)
        return f"{topology.size} ranks, domains {topology.homes}: {calls}"


def example(number: int, refused: Counter[str] | None = None) -> Example:
    """Make an example that has its turn's target, and two to four other calls behind it."""
    draw = Random(number)
    refused = Counter() if refused is None else refused
    target = TARGETS[number % len(TARGETS)]
    while True:
        topology = draw_topology(draw)
        memory = draw.choice([1 << 16, 1 << 20, 1 << 22])
        first = draw_plan(draw, topology, memory, target, refused)
        if first is not None:
            break
    others = [
        plan
        for _ in range(draw.randint(2, 4))
        if (plan := draw_plan(draw, topology, memory, draw.choice(TARGETS), refused)) is not None
    ]
    plans = [first, *others, *[first] * max(1, 2 - len(others))]
    return Example(tuple(plans), draw.random() < 0.5)


def one_plan(number: int, most: int, memory: int) -> Plan:
    """Make a plan for a machine of at most so many ranks, with any algorithms."""
    draw, plan = Random(number), None
    while plan is None:
        topology = draw_topology(draw, [(1, most)])
        plan = draw_plan(draw, topology, memory, draw.choice(TARGETS), Counter())
    return plan


def draw_topology(
    draw: Random, sizes: Sequence[tuple[int, int]] = SIZES, depth: int = 0
) -> Topology:
    """Draw nested domains: as they stand, one for each in turn, or any; 0: of any depth."""
    size = draw.randint(*draw.choice(sizes))
    depth = depth or draw.randint(1, 4)
    domains = [[0] * size]
    for _ in range(depth - 1):
        width = draw.randint(1, 5)
        own = [draw.randrange(width) for _ in range(size)]
        match draw.randrange(3):
            case 0:
                own.sort()
            case 1:
                own = [r % width for r in range(size)]
        ids: dict[tuple[int, int], int] = {}
        outer = domains[0]
        domains.insert(0, [ids.setdefault(k, len(ids)) for k in zip(outer, own, strict=True)])
    topology = topology_of(domains, draw.randint(-1, depth - 1))
    sockets = tuple(draw.randrange(draw.choice([1, 2, 5])) for _ in range(size))
    return replace(topology, attach=draw.random() < 0.7, sockets=sockets)


def draw_plan(
    draw: Random, topology: Topology, memory: int, target: Target, refused: Counter[str],
    canonical: bool = False,
) -> Plan | None:  # fmt: skip
    """Draw a plan in which a level uses the target; None if it is refused.

    `canonical`: operands are to be combined in the canonical order.
    """
    unit = draw.choice([64, 1000, 4 * KiB, 20_000])
    signature = draw_signature(draw, topology.size, target.collective, unit)
    signature = replace(signature, canonical=canonical and signature.reduces)
    if signature.by_blocks and topology.whole is None and topology.size > MOST_OVER_NODES:
        return None
    name = composition_of(target.submodule, target.algorithm) or draw_composition(draw)
    table = rules_of(topology)
    choice = draw_choice(draw, topology, signature, unit, name)
    if table.objection(signature, choice) is not None:
        if composition_of(target.submodule, target.algorithm):
            return None
        choice = draw_choice(draw, topology, signature, unit, TREE)
    view = as_called(topology, signature, choice.composition)
    active = levels_of(view, signature)
    levels = dict.fromkeys(draw.sample(active, len(active)))
    for turn, level in enumerate(levels):
        name, algorithm = target.submodule, target.algorithm
        if turn:
            other = draw.choice(TARGETS)
            name, algorithm = other.submodule, other.algorithm
        wanted = list(choice.levels)
        members = view.widest(level)
        wanted[level] = draw_level(draw, name, algorithm, signature, members)
        wanted[level] = draw_kinds(draw, wanted[level], signature, members)
        tried = replace(choice, levels=tuple(wanted))
        reason = table.objection(signature, tried)
        if reason is None:
            choice = tried
        elif not turn:
            refused[f"{name} {algorithm}"] += 1
            return None
    return plan_of_choice(topology, signature, choice, memory)


def draw_signature(draw: Random, size: int, collective: str, unit: int) -> Signature:
    """Draw a call of no, one, two or many units."""
    nbytes = draw.choice([0, 8, 56, 4 * KiB, unit, 2 * unit, 7 * unit])
    root = draw.randrange(size)
    if collective in BY_BLOCKS:  # of a block: all together are as long as others' messages
        nbytes = draw.choice([min(nbytes, 8), nbytes // size // 8 * 8, nbytes // size])
    if collective in DATALESS:
        return Signature(collective)
    mapped = draw.random() < 0.5
    root = root if collective in ROOTED else 0
    if collective not in REDUCING:
        signature = Signature(collective, nbytes, root=root, mapped=mapped)
        return draw_blocks(draw, size, signature)
    commutes = draw.random() < 0.6
    element = 8 if commutes else draw.choice([8, 24, 32])
    count = nbytes // element
    signature = Signature(
        collective, count, element, "op", "u8", commutes, commutes, root, mapped
    )  # fmt: skip
    return draw_blocks(draw, size, signature)


def draw_blocks(draw: Random, size: int, signature: Signature) -> Signature:
    """Draw blocks of different sizes, some empty; or that results replace what was sent."""
    most = signature.count
    if signature.collective in UNEVEN and most and size > 1 and draw.random() < 0.4:
        counts = [draw.choice([0, most, draw.randint(0, most)]) for _ in range(size)]
        counts[draw.randrange(size)] = most
        return replace(signature, counts=tuple(counts))
    in_place = signature.collective in REPLACING and draw.random() < 0.3
    return replace(signature, in_place=in_place)


def draw_composition(draw: Random) -> str:
    """Draw a composition; most are trees."""
    return draw.choice([TREE, TREE, TREE, *COMPOSITIONS])


def draw_choice(
    draw: Random, topology: Topology, signature: Signature, unit: int, name: str
) -> Choice:
    """Draw segment and schedule; what is built in for all levels, while it serves."""
    traits = NodeTraits(draw.random() < 0.5, draw.random() < 0.5)
    built_in = choose(signature, topology, traits, name)
    choice = replace(
        built_in,
        segment=draw.choice([None, None, unit, max(8, unit // 2)]),
        schedule=draw.choice(["dataflow", "dataflow", "lockstep"]),
    )
    serves = RuleTable(None, topology, traits).objection(signature, choice) is None
    return choice if serves else built_in


def draw_kinds(draw: Random, level: LevelChoice, signature: Signature, members: int) -> LevelChoice:
    """Draw what tasks of one kind run, where they run otherwise on a level."""
    part = registered()[level.submodule]
    kinds = ROWS[signature.collective].task_kinds
    if part.algorithms[level.algorithm].fuses or len(kinds) < 2 or draw.random() < 0.4:
        return level
    kind = draw.choice(kinds)
    others = [name for name, about in part.algorithms.items() if kind in about.kinds]
    if not others:
        return level
    own = draw_level(draw, level.submodule, draw.choice(others), signature, members)
    kept = tuple((k, v) for k, v in own.parameters if not part.parameters[k].joint)
    return level.where(kind, replace(own, parameters=kept))


def draw_level(
    draw: Random, name: str, algorithm: str, signature: Signature, members: int
) -> LevelChoice:
    """Draw some of an algorithm's parameters."""
    part = registered()[name]
    taken, parameters = part.taken(algorithm), part.parameters
    known = {k: values_of(k, p) for k, p in sorted(parameters.items()) if k in taken}
    values = {k: of for k, of in known.items() if of}
    chosen = {k: draw.choice(v) for k, v in values.items() if draw.random() < 0.5}
    for size in chosen.keys() & {"chunk", "segment"}:
        chosen[size] = max(chosen[size], signature.nbytes // PIECES)
    if "factors" in taken:
        drawn = draw_one_way if name == "bundle" else draw_factors
        chosen |= drawn(draw, algorithm, members)
    return LevelChoice(name, algorithm, tuple(sorted(chosen.items())))
