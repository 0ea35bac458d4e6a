"""Predict calls on a machine model by simulation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from han.common.errors import ArgumentError
from han.common.units import format_size
from han.config import documents
from han.config.config import Config
from han.config.errors import Origin
from han.config.machine import MachineModel
from han.config.rules import KINDS, Rule
from han.model.program import Program
from han.model.timeline import Timeline, whole_tasks
from han.submodules.names import validate_names
from han.tasks.plan import Plan
from han.tasks.signature import Signature
from han.tasks.simulate import Simulation, simulate
from han.tuning.built_in.choosing import NodeTraits
from han.tuning.imagined import ImaginedMachine
from han.tuning.profile import profile_of


@dataclass(frozen=True)
class Where:
    """A machine model with `ppn` consecutive ranks on each of `nodes` nodes."""

    machine: MachineModel
    nodes: int
    ppn: int

    def __post_init__(self) -> None:
        if self.nodes > 1 and self.machine.node_level == len(self.machine.levels) - 1:
            raise ArgumentError(
                f"{self.nodes} nodes: the machine has no level beyond {self.machine.node.level!r}, "
                "so it is one node"
            )

    @property
    def size(self) -> int:
        """Number of ranks."""
        return self.nodes * self.ppn

    @cached_property
    def place(self) -> tuple[tuple[int, ...], ...]:
        """The domain of each rank on each level of the machine."""
        return self.machine.place(self.nodes, self.ppn)

    @property
    def oversubscribed(self) -> bool:
        """Whether ranks on a node outnumber its cores."""
        return self.machine.node.cores is not None and self.ppn > self.machine.node.cores

    def imagined(self) -> ImaginedMachine:
        """Return the machine for the planner; the level just inside nodes stands for sockets."""
        place = self.place
        sockets = place[max(0, self.machine.node_level - 1)]
        node = self.machine.node
        profile = profile_of(self.machine)
        traits = NodeTraits(self.oversubscribed, node.mesh, node.cores or 0, node.rdma, profile)
        return ImaginedMachine(place[self.machine.node_level], sockets, traits)


@dataclass(frozen=True)
class Predicted:
    """The plan of a call, and its predicted time."""

    plan: Plan
    simulation: Simulation
    runs: int
    levels: list[str]  # names of the machine's levels

    @property
    def seconds(self) -> float:
        """Seconds of a call; of several calls back to back, seconds a call."""
        return self.simulation.seconds if self.runs == 1 else self.simulation.each


def with_choice(
    config: Config,
    algorithms: Iterable[str],
    segment: str | None,
    composition: str | None = None,
) -> Config:
    """Return a configuration with one more rule, before its own rules and for all calls.

    An algorithm is ``LEVEL=SUBMODULE[.ALGORITHM][:PARAMETER=VALUE,...]``, or of one kind of tasks,
    behind that of its level, ``LEVEL.KIND=ALGORITHM[:PARAMETER=VALUE,...]``. Raises ArgumentError
    for another form or an unknown level, ConfigError for other unknown names.
    """
    levels: dict[str, dict[str, Any]] = {}
    for text in algorithms:
        level, kind, given = _level_use(text, config)
        if not kind:
            levels[level] = given
        elif level in levels:
            levels[level][kind] = given
        else:
            raise ArgumentError(f"--algorithm {text!r}: behind that of its level, {level}=...")
    more = {"segment": segment, "composition": composition}
    use: dict[str, Any] = {key: value for key, value in more.items() if value is not None}
    if not levels and not use:
        return config
    use["levels"] = levels
    origin = Origin("--algorithm, --segment, --composition")
    rule = Rule(**documents.checked(documents.Rule, {"use": use}, origin))
    chosen = replace(config, rules=(rule, *config.rules), origin=origin)
    return validate_names(chosen)


def _level_use(text: str, config: Config) -> tuple[str, str, dict[str, Any]]:
    """Return the level, the kind of tasks or "", and what they run, as in a document."""
    place, found, what = text.partition("=")
    level, dot, kind = place.partition(".")
    names = [one.name for one in config.levels]
    if not found or level not in names or (dot and kind not in KINDS):
        raise ArgumentError(
            f"--algorithm {text!r}: LEVEL=SUBMODULE[.ALGORITHM][:PARAMETER=VALUE,...] expected, as "
            f"in {names[-1]}=adapt.chain:segment=64KiB; levels: {', '.join(names)}"
        )
    name, _, rest = what.partition(":")
    pairs = [pair.partition("=") for pair in rest.split(",") if pair]
    parameters = {key: _value(value) for key, _, value in pairs}
    if kind:
        return level, kind, {"algorithm": name or None, **parameters}
    submodule, _, algorithm = name.partition(".")
    return level, "", {"submodule": submodule, "algorithm": algorithm or None, **parameters}


def _value(text: str) -> int | bool | str:
    if text in ("true", "false"):
        return text == "true"
    return int(text) if text.isdecimal() else text


def predict(
    where: Where,
    plan: Plan,
    *,
    programs: Sequence[Program] | None = None,
    runs: int = 1,
    spans: bool = False,
    tell: Callable[[], None] | None = None,
) -> Predicted:
    """Predict a plan; see ``simulate``. The plan is lowered unless `programs` are given."""
    found = simulate(
        plan, where.machine, where.place, runs=runs, programs=programs, spans=spans, tell=tell
    )
    return Predicted(plan, found, runs, where.machine.names)


def timeline_of(where: Where, machine: str, predicted: Predicted) -> Timeline:
    """Return the timeline of a prediction with spans, for ``han trace``."""
    title = f"{machine}, {where.nodes} nodes of {where.ppn}"
    nodes = where.place[where.machine.node_level]
    return Timeline("predicted", title, tuple(whole_tasks(predicted.simulation.spans)), nodes=nodes)


def plan_of(where: Where, config: Config, signature: Signature) -> Plan:
    """Plan a call on a machine by the rules of a configuration.

    Raises ArgumentError if the first rule that matches the call cannot serve it.
    """
    plan, decision = where.imagined().plan(config, signature)
    if decision.passed:
        rule, reason = decision.passed[0]
        raise ArgumentError(f"{signature.describe()}: {rule} cannot serve it: {reason}")
    return plan


def sized(signature: Signature, nbytes: int) -> Signature:
    """Return the same call with `nbytes` bytes.

    Raises ArgumentError if they are not a whole number of elements.
    """
    if nbytes % signature.element:
        raise ArgumentError(
            f"{format_size(nbytes)} is not a whole number of elements of {signature.element} bytes"
        )
    return replace(signature, count=nbytes // signature.element)
