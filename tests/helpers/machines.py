"""Topologies of any shape, placements, algorithms of all submodules, and factors for exchanges."""

from collections.abc import Mapping
from math import prod
from random import Random
from typing import Any

from han.config.config import default_config
from han.config.machine import MachineModel, load_machine
from han.config.parameters import Parameter
from han.model.collectives import COLLECTIVES, FUSED, ROWS
from han.model.topology import Topology, virtual
from han.submodules.exchange.patterns import PRESETS
from han.submodules.parts.factors import primes
from han.submodules.registry import registered
from han.tasks.call import call_signature
from han.tasks.compositions import LANES
from han.tasks.plan import Plan
from han.tuning.built_in.choosing import NodeTraits
from han.tuning.planner import Planner

SYMBOLS = "snxyz"
SIMPLE: dict[str, Any] = {  # a model of a machine
    "about": "round numbers",
    "levels": [
        {"name": "node", "latency": "1us", "bandwidth": "1GB/s", "flag": "1us"},
        {"name": "network", "latency": "10us", "bandwidth": "100MB/s", "eager": "64KiB"},
    ],
    "node": {
        "level": "node", "copy": "1GB/s", "reduce": "500MB/s", "memory": "100GB/s",
        "injection": "100MB/s",
    },
}  # fmt: skip
PLACEMENTS = {  # the node of each of 8 ranks; fewer ranks take the first ones
    "one node": [0] * 8,
    "2 x 4": [0, 0, 0, 0, 1, 1, 1, 1],
    "4 x 2": [0, 0, 1, 1, 2, 2, 3, 3],
    "3 + 5": [0, 0, 0, 1, 1, 1, 1, 1],
    "in turn": [0, 1] * 4,
    "1 + 6 + 1": [0, 1, 1, 1, 1, 1, 1, 2],
    "one each": [*range(8)],
}
# Values that tests give to parameters, by name: small, so that small messages take many pieces.
# A test that needs only one value takes the first.
SIZES = (4096, 64, 256, 1000, 65536)
TRIED: dict[str, tuple[int, ...]] = {
    "block": (1000, 64, 1 << 16),
    "cells": (3, 1, 2, 4, 8),
    "inner": (0, 2, 3),
    "offload": (0, 1, 2, 64),
    "partition": (0, 64, 100, 1000),
    "ports": (0, 1, 7),
    "radix": (2, 3, 5),
    "socket_radix": (2, 3, 5),
    "whole": (0, 64, 4096),
    "window": (2, 1, 3, 8),
}
PARTS = tuple(
    (name, algorithm)
    for name, part in registered().items()
    if part.correct
    for algorithm, row in part.algorithms.items()
    if not row.own
)


def composition_of(name: str, algorithm: str) -> str:
    """Return the composition that an algorithm is made for; "" if it serves trees."""
    families = registered()[name].algorithms[algorithm].families
    if "leaders" in families:
        return ""
    return next((name for name in ("nap", "ring") if name in families), "lanes")


def numbers_of(key: str, row: Parameter) -> tuple[int, ...]:
    """Return the numbers that tests give to a parameter; () if they do not set it."""
    return TRIED.get(key, SIZES if row.kind == "size" else ())


def values_of(key: str, row: Parameter) -> tuple[Any, ...]:
    """Return all values that tests give to a parameter; () if they do not set it."""
    return (False, True) if row.kind == "bool" else row.choices or numbers_of(key, row)


def taken(name: str, algorithm: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """Return those of some parameters that an algorithm of a submodule reads."""
    reads = registered()[name].taken(algorithm)
    return {key: value for key, value in parameters.items() if key in reads}


def collectives_of(name: str, algorithm: str) -> tuple[str, ...]:
    """Return the collectives that an algorithm of a submodule carries out."""
    found = registered()[name].algorithms[algorithm]
    kinds = set(found.kinds)
    if "ring" in found.families and found.fuses:
        return ("allreduce",)
    if "leaders" not in found.families and not found.fuses:
        return LANES  # in parts
    apart = tuple(c for c in COLLECTIVES if set(ROWS[c].task_kinds) <= kinds)
    return apart or FUSED


def on_nodes(*sizes: int) -> Topology:
    """Return consecutive ranks on nodes of these sizes, which share memory inside them."""
    nodes = [n for n, size in enumerate(sizes) for _ in range(size)]
    return topology_of([nodes, [0] * len(nodes)], 0)


def simple_machine(link: Mapping[str, Any] | None = None, **node: Any) -> MachineModel:
    """Return the simple machine model with other values of its network and its nodes."""
    network = {**SIMPLE["levels"][1], **(link or {})}
    levels = [SIMPLE["levels"][0], network]
    return load_machine({**SIMPLE, "levels": levels, "node": {**SIMPLE["node"], **node}})


def planner_of(ranks: int, ppn: int, rank: int) -> Planner:
    """Return the planner of a rank on nodes of `ppn` ranks, which read each other's memory."""
    plain, memory = virtual(ranks, ppn), tuple(r // ppn for r in range(ranks))
    topology = Topology(("node", "network"), ("s", "i"), plain.domains, memory, attach=True)
    return Planner(topology, default_config(), NodeTraits(), rank, maps_arrays=False)


def plan_of_class(collective: str, size: str, planner: Planner) -> Plan:
    """Return the built-in plan of a call's class of sizes."""
    return planner.planned(planner.sized(call_signature(collective, size))).plan


def topology_of(domains: list[list[int]], shared_to: int) -> Topology:
    """Return a topology; the groups of level `shared_to` share memory (-1: no groups do)."""
    size, depth = len(domains[0]), len(domains)
    memory = tuple(range(size)) if shared_to < 0 else tuple(domains[shared_to])
    names = (*(f"level{k}" for k in range(depth - 1)), "network")
    symbols = (*SYMBOLS[: depth - 1], "i")
    made = tuple(tuple(d) for d in domains)
    return Topology(names, symbols, made, memory, attach=True)


def draw_factors(draw: Random, algorithm: str, members: int) -> dict[str, tuple[int, ...]]:
    """Draw signed factors that are valid for so many members, or no parameter."""
    if members < 2 or algorithm in PRESETS or draw.random() < 0.3:
        return {}
    if algorithm == "copyin":
        return {"factors": draw_reaching(draw, members)}
    if algorithm not in ("recursive", "tree", "shares"):
        scatter = tuple(-f for f in reversed(draw_reaching(draw, members)))
        return {"factors": scatter + draw_reaching(draw, members)}
    middle: tuple[int, ...] = ()
    if algorithm == "recursive" and draw.random() < 0.3:
        middle = draw_split(draw, members)[:1]
    left = members // prod(middle)
    if left == 1:
        return {"factors": middle}
    scatter = tuple(-f for f in draw_split(draw, left))
    return {"factors": scatter + middle + draw_split(draw, left)}


def draw_one_way(draw: Random, algorithm: str, members: int) -> dict[str, tuple[int, ...]]:
    """Draw positive factors that are valid for so many members, or no parameter."""
    if members < 2 or draw.random() < 0.3:
        return {}
    return {"factors": (draw_reaching if algorithm == "cyclic" else draw_split)(draw, members)}


def draw_split(draw: Random, members: int) -> tuple[int, ...]:
    """Draw factors whose product is a number: its primes in any order, some of them joined."""
    factors = primes(members)
    draw.shuffle(factors)
    for _ in range(draw.randrange(len(factors))):
        factors[:2] = [prod(factors[:2])]
        draw.shuffle(factors)
    return tuple(factors)


def draw_reaching(draw: Random, members: int) -> tuple[int, ...]:
    """Draw factors whose product reaches a number, but not without the last one."""
    factors: tuple[int, ...] = ()
    while prod(factors) < members:
        factors += (draw.randint(2, max(2, members)),)
    return factors


def slow_links() -> MachineModel:
    """Return four nodes of two ranks whose messages take long, as tests of searches need them."""
    record = load_machine("emulated-1gbit").to_mapping()
    record["levels"][1] |= {
        "latency": "22.5us", "bandwidth": "2.4GB/s", "overhead": "24us", "copying": "2.7GB/s"
    }  # fmt: skip
    record["node"]["switch"] = "20us"
    return load_machine(record)
