"""Measure the worth of each optimisation of ``sm``, by leaving it out of the built-in choice.

All variants take turns in one run (:mod:`han.measure.session`). Every result is compared with the
MPI library's. Source: Jain, sections VI-A and VI-B.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from mpi4py import MPI

from han.config.config import Config, load_config
from han.config.rules import Rule, When
from han.explain import make_signature
from han.measure.bench import Settings
from han.measure.bench_calls import Buffers, Case, prepare
from han.measure.modes import Mode
from han.measure.session import REFERENCE, Session
from han.model.channel_layout import PAGE
from han.model.collectives import ROWS
from han.model.topology import Topology
from han.submodules.sm.trees import ALGORITHMS
from han.tasks.choice import Choice, LevelChoice
from han.tasks.signature import Signature
from han.tuning.rules import RuleTable, use_of

KiB = 1024
COLLECTIVES = tuple(n for n, row in ROWS.items() if row.recv and not (row.by_blocks or row.prefix))
SMALL_CHUNK = 8 * KiB  # as in the paper
FLAT_RANKS = 4  # up to this number of ranks, one parent serves all others
BUILT_IN = "built-in"
Change = Callable[[LevelChoice, Topology], LevelChoice]


@dataclass(frozen=True)
class Variant:
    """The built-in choice with one change; it does not apply where nothing changes.

    It is for calls `of` some kind, and for levels with a tree, or with `trees` False for others;
    None: for both.
    """

    name: str
    about: str
    change: Change = lambda level, topology: level
    of: Callable[[Signature], bool] = lambda signature: True
    trees: bool | None = True
    policy: str | None = None  # the wait policy, if the variant changes it

    def changed(self, level: LevelChoice, signature: Signature, topology: Topology) -> LevelChoice:
        """Return what a level runs in this variant."""
        here = self.trees in (None, level.algorithm in ALGORITHMS)
        return self.change(level, topology) if here and self.of(signature) else level


def _with(level: LevelChoice, algorithm: str = "", **parameters: Any) -> LevelChoice:
    """Return a choice with another algorithm and parameters, for all kinds of tasks."""
    told = tuple(sorted({**dict(level.parameters), **parameters}.items()))
    kinds = tuple((kind, _with(own, algorithm, **parameters)) for kind, own in level.kinds)
    return replace(level, algorithm=algorithm or level.algorithm, parameters=told, kinds=kinds)


def _given(**parameters: Any) -> Change:
    return lambda level, topology: _with(level, **parameters)


def _small_chunks(level: LevelChoice, topology: Topology) -> LevelChoice:
    large = level.get("chunk", 0) > SMALL_CHUNK
    return _with(level, chunk=SMALL_CHUNK) if large else level


def _other_tree(level: LevelChoice, topology: Topology) -> LevelChoice:
    flat = level.algorithm == "flat"
    return _with(level.alike, "knomial", radix=2) if flat else _with(level.alike, "flat")


def _no_sockets(level: LevelChoice, topology: Topology) -> LevelChoice:
    """Reductions use the tree of releases."""
    return level.alike if "leaders" in dict(level.of("reduce").parameters) else level


def _two_hops(level: LevelChoice, topology: Topology) -> LevelChoice:
    return LevelChoice("sm", "flat" if topology.size <= FLAT_RANKS else "knomial")


VARIANTS = (
    Variant("one cell", "no pipelining: a single cell (III-C)", _given(cells=1),
            lambda s: s.nbytes > PAGE),
    Variant("no inlining", "small data in a cell, not beside the flag (III-D)",
            _given(inline=False), lambda s: s.nbytes <= PAGE),
    Variant("small chunks", "chunks of 8KiB", _small_chunks,
            lambda s: s.nbytes > SMALL_CHUNK, trees=None),
    Variant("other tree", "flat; binomial where flat is built in (III-A)", _other_tree),
    Variant("no socket trees", "reduction trees that ignore sockets (III-A)", _no_sockets,
            trees=None),
    Variant("children's flags", "parents write a flag for each child (III-B)",
            _given(read_parent_flag=False), lambda s: s.collective != "reduce"),
    Variant("copied result", "combined outside the receive buffer, then copied (III-E)",
            _given(in_recv=False), lambda s: s.reduces),
    Variant("trailing sync", "writers wait for their readers at the end (III-C)",
            _given(trailing=True)),
    Variant("gather+release", "allreduce as gather and release, not direct or split", _two_hops,
            trees=False),
    Variant("wait: yield", "waiting ranks yield the processor at once", policy="yield"),
)  # fmt: skip


def without(
    variant: Variant, choice: Choice, signature: Signature, topology: Topology
) -> Choice | None:
    """Return `choice` as the variant changes it; None if the variant does not apply."""
    if variant.policy is not None:
        return choice
    levels = list(choice.levels)
    for k in topology.active:
        if levels[k].submodule == "sm":
            levels[k] = variant.changed(levels[k], signature, topology)
    return None if tuple(levels) == choice.levels else replace(choice, levels=tuple(levels))


@dataclass(frozen=True)
class VariantResult:
    """One variant of one call: median microseconds, and its ratio to the built-in choice.

    `ratio`, `low` and `high` are the median, least and greatest ratio in one round.
    """

    collective: str
    nbytes: int
    variant: str
    us: float
    ratio: float
    low: float
    high: float


class Ablation(Session):
    """The communicators of all variants. Making one is collective; use it in ``with``."""

    def __init__(
        self, comm: MPI.Intracomm, config: Any, settings: Settings, cases: Iterable[Case]
    ) -> None:
        super().__init__(comm, settings.rounds, settings.iterations)
        self.settings, self.cases = settings, tuple(cases)
        self.han = self.add_han(replace(load_config(config), trials=False))
        self.comms: dict[str, MPI.Intracomm] = {REFERENCE: self.add_mpi(), BUILT_IN: self.han}
        self.changed: dict[tuple[Case, str], Choice] = {}
        for variant in VARIANTS:
            rules = [rule for case in self.cases for rule in self._rules(variant, case)]
            if rules:
                self.comms[variant.name] = self.add_han(self._config(variant, rules))

    def _rules(self, variant: Variant, case: Case) -> list[Rule]:
        """Return the rule of a variant for a case, or none if the variant does not apply."""
        table: RuleTable = self.han._han.parts.planner.rules
        op = getattr(MPI, case.op.upper())
        signature = make_signature(case.collective, case.nbytes, op, case.dtype, case.root)
        choice = without(variant, table.decide(signature).choice, signature, table.topology)
        if choice is None or table.objection(signature, choice) is not None:
            return []
        self.changed[case, variant.name] = choice
        return [_rule(case, choice, table.topology)]

    def _config(self, variant: Variant, rules: list[Rule]) -> Config:
        config: Config = self.han._han.parts.config
        wait = config.wait.under(variant.policy or config.wait.policy)
        return replace(config, rules=(*rules, *config.rules), wait=wait)

    def measure(self, case: Case) -> list[VariantResult]:
        """Measure a call under the built-in choice and all variants that apply; collective.

        Raises WrongResultError on all ranks.
        """
        buffers = Buffers(case, self.control.rank, self.control.size)
        variants = [BUILT_IN, *(v.name for v in VARIANTS if (case, v.name) in self.changed)]
        calls = {
            name: prepare(self.comms[name], buffers, Mode.BLOCKING).call
            for name in (REFERENCE, *variants)
        }
        self.compare(buffers, calls)
        timed = {name: calls[name] for name in variants}
        seconds = self.settings.batch_seconds
        us = self.in_turns(timed, {n: self.batch_size(c, seconds) for n, c in timed.items()})
        self.compare(buffers, calls)  # later calls take quicker paths than the first
        return [_result(case, name, us[name], us[BUILT_IN]) for name in variants]


def _rule(case: Case, choice: Choice, topology: Topology) -> Rule:
    """Return a rule that makes a choice for one call."""
    use = use_of(choice, dict(enumerate(topology.names)))
    return Rule(use, When.of((case.collective,), {"bytes": (case.nbytes, case.nbytes)}))


def _result(case: Case, name: str, us: Any, built_in: Any) -> VariantResult:
    ratios = us / built_in
    return VariantResult(
        case.collective, case.nbytes, name, float(np.median(us)), float(np.median(ratios)),
        float(ratios.min()), float(ratios.max()),
    )  # fmt: skip
