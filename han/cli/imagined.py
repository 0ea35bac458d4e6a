"""Calls on imagined machines, for the commands that plan without MPI."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from han.cli.common import rank
from han.cli.words import Call
from han.common.errors import ArgumentError
from han.config.config import Config, load_config
from han.config.machine import load_machine
from han.model.topology import Topology
from han.submodules.names import validate_names
from han.submodules.registry import plan_of_choice
from han.tasks.call import call_signature
from han.tasks.choice import LEFT
from han.tasks.plan import Plan
from han.tasks.size_classes import bound_of, bounds_of, class_around, class_of
from han.tuning.built_in.choosing import NodeTraits
from han.tuning.explanation import Explanation
from han.tuning.imagined import PLAIN, ImaginedMachine
from han.tuning.prediction import Where
from han.tuning.rules import Decision
from han.tuning.tuned.measurements import predicted_record

USUAL_PPN = 8


class Shape(NamedTuple):
    """The ranks of an imagined machine, those of each node, and what its nodes are."""

    ranks: int
    ppn: int
    traits: NodeTraits = PLAIN
    sockets: int = 1  # of a node


def described(
    nodes: int | None, ppn: int | None, ranks: int | None, machine: str | None,
    traits: NodeTraits, sockets: int,
) -> Shape | None:  # fmt: skip
    """Return the machine that options describe; None if they name no machine and no shape."""
    if machine is not None:
        if any(traits) or sockets > 1:
            raise ArgumentError("--machine takes no other option that says what its nodes are")
        model = load_machine(machine)
        where = Where(model, nodes or model.nodes, ppn or model.ppn)
        node = where.imagined()
        nodes, ppn, traits, sockets = where.nodes, where.ppn, node.traits, len({*node.sockets})
    if nodes is None and ppn is None:
        return None
    nodes, ppn = nodes or 1, ppn or USUAL_PPN
    most, least = nodes * ppn, (nodes - 1) * ppn + 1
    if not least <= (ranks or most) <= most:
        raise ArgumentError(f"--ranks {ranks}: {nodes} nodes of {ppn} have {least} to {most}")
    return Shape(ranks or most, ppn, traits, sockets)


def usual(
    nodes: int | None, ppn: int | None, ranks: int | None, machine: str | None,
    traits: NodeTraits, sockets: int,
) -> Shape:  # fmt: skip
    """Return the machine that options describe, or one node of some ranks."""
    found = described(nodes, ppn, ranks, machine, traits, sockets)
    return found or Shape(USUAL_PPN, USUAL_PPN, traits, sockets)


def imagine_on(
    shape: Shape, config: str | None, call: Call, leaves: bool = False
) -> Explanation:  # fmt: skip
    """Explain a call on the machine that options describe; see :func:`imagine`."""
    return imagine(shape.ranks, shape.ppn, config, call, shape.traits, leaves, shape.sockets)


def imagine(
    ranks: int, ppn: int, config: str | None, call: Call,
    traits: NodeTraits = PLAIN, leaves: bool = False, sockets: int = 1,
) -> Explanation:  # fmt: skip
    """Explain a call on an imagined machine of `ranks` ranks, `ppn` on each node of `sockets`.

    Warns of levels of the configuration on which no rank has a peer. Raises NoRuleError if no rule
    can serve it; with `leaves`, only if no communicator would leave it to the MPI library.
    """
    collective, nbytes, op, dtype, root = call
    signature = call_signature(collective, nbytes, op, dtype, root)
    if not 0 <= root < ranks:
        raise ArgumentError(f"root {root} is not in 0..{ranks - 1}")
    machine = ImaginedMachine.even(ranks, ppn, traits, sockets)
    found = Explanation(*machine.plan(known_config(config), signature, leaves))
    if config is not None:
        _warn_of_idle_levels(found.plan.topology)
    return found


def _warn_of_idle_levels(topology: Topology) -> None:
    """Say on standard error which levels have one member, so that they do nothing."""
    idle = [name for k, name in enumerate(topology.names) if k not in topology.active]
    if idle and topology.size > 1 and not rank():
        print(
            f"Warning: level {', '.join(idle)}: each domain has one member, so nothing runs there; "
            "--ppn and --sockets say how many nodes and sockets the ranks are on",
            file=sys.stderr,
        )


def known_config(source: str | None) -> Config:
    """Load a configuration, and check its names against the submodules. Raises ConfigError."""
    return validate_names(load_config(source))


def class_of_call(found: Explanation, config: str | None) -> tuple[Plan, int] | None:
    """Return the plan for all sizes of a call's class, and the bytes above which they are.

    Returns None for a call that has a plan of its own.
    """
    plan, settings = found.plan, known_config(config)
    bounds = bounds_of(settings.thresholds(plan.topology.size))
    bound = bound_of(plan.signature, bounds)
    if not bound or plan.signature.own or found.decision.choice.composition == LEFT:
        return None
    signature, choice = class_of(plan.signature, bound), found.decision.choice
    above, _ = class_around(bound, bounds)
    return plan_of_choice(plan.topology, signature, choice, settings.memory), above


def explanation_record(found: Explanation) -> dict[str, Any]:
    """Return an explanation as plain data."""
    plan, choice = found.plan, found.decision.choice
    return {
        "call": asdict(plan.signature),
        "rule": found.rule,
        "predicted": _predicted(found.decision),
        "passed": [list(one) for one in found.decision.passed],
        "segment": choice.segment,
        "schedule": choice.schedule,
        "composition": choice.composition,
        "levels": {
            name: level.record()
            for name, level in zip(plan.topology.names, choice.levels, strict=True)
        },
        "stages": found.stages(),
        "tasks": [{"label": str(task), **task._asdict()} for task in found.plan.tasks],
        "edges": _edges(found),
    }


def _predicted(decision: Decision) -> dict[str, Any] | None:
    """Return from which shapes a choice is predicted; None: it is not."""
    told = None if decision.row is None else decision.row.predicted
    return None if told is None else predicted_record(told)


def _edges(found: Explanation) -> Sequence[Sequence[str]]:
    edges = found.graph.edges(data=True)
    return [[str(a), str(b), str(edge["why"])] for a, b, edge in edges]
