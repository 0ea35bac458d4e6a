"""A machine model from the profile that a calibration measured."""

from __future__ import annotations

from typing import Any

from han.config.machine import MachineModel, load_machine
from han.tuning.profile import Profile

LEAST_SHARE = 0.1  # of a message's time that the network itself takes, at least
Record = dict[str, Any]


def machine_with(profile: Profile, base: str, nodes: int, ppn: int, made: str) -> Record:
    """Return a model as machine files have it: the values of a profile, all others from `base`.

    `base` is a ready machine, `made` the day of the calibration.
    """
    model = load_machine(base)
    record = model.to_mapping()
    node, inside, between = (
        record["node"], record["levels"][model.node_level], record["levels"][-1]
    )  # fmt: skip
    measured = _node(profile, node, inside)
    if between is not inside and profile.has_network:
        measured += _network(profile, node, between)
    record |= {"about": f"measured by han calibrate; else as {base}", "nodes": nodes, "ppn": ppn}
    how = f"measured by han calibrate, {made}"
    record["sources"] = _sources(model, record, measured, base, how)
    return record


def _node(profile: Profile, node: Record, inside: Record) -> list[str]:
    """Store what was measured inside nodes; return the names of these values."""
    node["cores"] = int(profile.cores)
    names = ["node.cores"]
    if profile.memory:
        node["memory"] = _rate(profile.memory)
        names.append("node.memory")
    rates = {"copy": profile.copy, "reduce": profile.reduce}
    for key, rate in rates.items() if profile.copy else ():
        part, owner = (inside, inside["name"]) if key in inside else (node, "node")
        part[key] = _rate(rate)
        names.append(f"{owner}.{key}")
    if profile.flag:
        inside["flag"] = _time(profile.flag)
        names.append(f"{inside['name']}.flag")
    return names


def _network(profile: Profile, node: Record, between: Record) -> list[str]:
    """Store what was measured between nodes; return the names of these values."""
    name, most = between["name"], (1 - LEAST_SHARE) / 2 * profile.latency
    overhead = min(profile.overhead, most)
    between["latency"] = _time(profile.latency - 2 * overhead)
    names = [f"{name}.latency"]
    if profile.overhead:
        between["overhead"] = _time(overhead)
        names.append(f"{name}.overhead")
    if not profile.bandwidth:  # links are long
        return names
    between["bandwidth"] = _rate(profile.bandwidth)
    node |= {"injection": _rate(max(profile.injection, profile.bandwidth)), "rails": 1}
    for part, key in ((node, "burst"), (node, "stripe"), (between, "copying")):
        part.pop(key, None)  # they explain rates, and the rates are measured
    return [*names, f"{name}.bandwidth", "node.injection", "node.rails"]


def _sources(
    model: MachineModel, record: Record, measured: list[str], base: str, how: str
) -> dict[str, str]:
    """Return where each value is from."""
    every = [*model.values(), *measured]
    known = load_machine({**record, "sources": {}}).values()
    names = (name for name in dict.fromkeys(every) if name in known)
    return {name: how if name in measured else f"assumed: as {base}" for name in names}


def _time(microseconds: float) -> str:
    return f"{1e3 * microseconds:.1f}ns"


def _rate(megabytes: float) -> str:
    return f"{megabytes:.1f}MB/s"
