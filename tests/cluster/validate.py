"""Validate the simulator: predicted beside measured times, on one node and on emulated clusters.

    python validate.py build/validation
    python validate.py build/validation --places 8-ranks,rails --sizes 8,64KiB --rounds 3
    python validate.py build/validation --measured

Takes minutes, as root, on an idle machine. For each place it writes a machine file PLACE.yaml and
reports PLACE/*.json, for ``han validate --machine PLACE.yaml PLACE/*.json``, and prints a row of a
table of errors. The last form makes the table of what was measured before.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from launch import Cluster
from wiring import Links

from han.common.suggest import expect_known
from han.config.machine import load_machine
from han.model.measurements import read
from han.tuning.prediction import Where
from han.tuning.validation import Comparison, case_of, compared, measured_of

FLAT, TREE = ({"submodule": "sm", "algorithm": name} for name in ("flat", "kary"))
EXCHANGE = {"submodule": "exchange", "algorithm": "recursive_doubling"}
Choices = Mapping[str, dict[str, Any]]  # rules by name


def rule(segment: str, node: Any, network: Any = None, **when: str) -> dict[str, Any]:
    """Return a rule for all calls, or those of a collective."""
    levels = {"node": node} | ({"network": network} if network else {})
    return {"when": when, "use": {"segment": segment, "levels": levels}}


def tree(algorithm: str, segment: str) -> dict[str, Any]:
    """Return a rule for trees of messages between nodes."""
    return rule(segment, FLAT, {"submodule": "adapt", "algorithm": algorithm})


ON_NODE: Choices = {
    "flat-32KiB": rule("32KiB", FLAT), "flat-512KiB": rule("512KiB", FLAT),
    "tree-32KiB": rule("32KiB", TREE),
    "exchange": rule("whole", EXCHANGE, collective="allreduce"),
}  # fmt: skip
BETWEEN: Choices = {
    "chain-32KiB": tree("chain", "32KiB"), "chain-128KiB": tree("chain", "128KiB"),
    "binomial-128KiB": tree("binomial", "128KiB"), "binary-512KiB": tree("binary", "512KiB"),
    "exchange": rule("whole", FLAT, EXCHANGE, collective="allreduce"),
}  # fmt: skip


@dataclass(frozen=True)
class Place:
    """Ranks on nodes, and what differs there from a ready machine. Without links it is one node."""

    ppn: int
    machine: str
    node: Mapping[str, Any] = field(default_factory=dict)
    network: Mapping[str, Any] = field(default_factory=dict)
    links: Links | None = None

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return 4 if self.links else 1

    def model(self) -> dict[str, Any]:
        """Return the machine as its file has it."""
        record = load_machine(self.machine).to_mapping()
        record["node"] |= self.node
        record["levels"][-1] |= self.network
        return record | {"nodes": self.nodes, "ppn": self.ppn, "sources": {}}


SHARED = {"switch": "8us"}  # of a processor that several ranks share, as in emulated-1gbit
PLACES = {
    "2-ranks": Place(2, "two-cores"),
    "4-ranks": Place(4, "two-cores", SHARED),
    "8-ranks": Place(8, "two-cores", SHARED),
    "1gbit": Place(2, "emulated-1gbit", links=Links("1gbit")),
    "100mbit": Place(2, "emulated-1gbit", {"injection": "11.95MB/s", "burst": "3kB"},
                     links=Links("100mbit")),
    "latency": Place(2, "emulated-1gbit", {"injection": "2.4GB/s"}, {"latency": "5ms"},
                     Links(latency=5e-3)),
    "rails": Place(2, "emulated-1gbit", {"injection": "59.75MB/s", "burst": "64kB", "rails": 2},
                   links=Links("500mbit", rails=2)),
}  # fmt: skip


def measure(place: Place, folder: Path, sizes: str, rounds: int) -> None:
    """Measure all choices in turns, and write a report of each into a folder."""
    files = []
    for name, one in (BETWEEN if place.links else ON_NODE).items():
        files.append(folder / f"{name}.yaml")
        files[-1].write_text(yaml.safe_dump({"tuned": "off", "rules": [one]}), encoding="utf-8")
    program = Path(__file__).resolve().with_name("choices.py")
    command = [
        *("python", str(program), *map(str, files)),
        *("--sizes", sizes, "--rounds", str(rounds), "--out", str(folder)),
    ]
    env = {"HAN_CALIBRATE": "off"}
    if place.links:
        with Cluster(place.nodes, place.links) as cluster:
            done = cluster.run(command, ppn=place.ppn, timeout=1200, env=env, capture=False)
    else:
        mpiexec = Path(sys.executable).with_name("mpiexec")
        launch = [str(mpiexec), "-n", str(place.ppn), sys.executable, *command[1:]]
        done = subprocess.run(launch, env=os.environ | env, timeout=1200, check=False)
    done.check_returncode()


def comparison(place: Place, machine: Path, folder: Path) -> Comparison:
    """Compare the reports in a folder with predictions."""
    where = Where(load_machine(machine), place.nodes, place.ppn)
    measured = [one for path in sorted(folder.glob("*.json")) for one in measured_of(read(path))]
    return Comparison(tuple(compared(one, case_of(where, one), where.machine) for one in measured))


def row(name: str, found: Comparison) -> str:
    """Return a row of the table of errors."""
    same, clear, close = found.pairs()
    cells = [
        name, str(len(found.rows)), f"{found.error_of(0.5):.0%}", f"{found.error_of(0.9):.0%}",
        f"{same} of {clear}" + (f" ({same / clear:.0%})" if clear else ""), str(close),
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def main(
    out: Annotated[Path, typer.Argument(help="The folder of reports and machine files.")],
    places: Annotated[str, typer.Option(help=f"Some of {','.join(PLACES)}.")] = ",".join(PLACES),
    sizes: Annotated[str, typer.Option(help="As han bench takes them.")] = (
        "8,512,8KiB,64KiB,256KiB,1MiB"
    ),
    rounds: Annotated[int, typer.Option(help="Turns of each choice.")] = 9,
    measured: Annotated[bool, typer.Option("--measured", help="Measure nothing anew.")] = False,
) -> None:
    """Measure, predict and print the table of errors."""
    for name in places.split(","):
        expect_known("place", name, PLACES)
    rows = []
    for name in places.split(","):
        place, folder, machine = PLACES[name], out / name, out / f"{name}.yaml"
        folder.mkdir(parents=True, exist_ok=True)
        machine.write_text(yaml.safe_dump(place.model(), sort_keys=False), encoding="utf-8")
        if not measured:
            measure(place, folder.resolve(), sizes, rounds)
        rows.append(row(name, comparison(place, machine, folder)))
    print("| place | cases | median error | of 90 % at most | same winner | too close |")
    print("| --- " * 6 + "|", *rows, sep="\n")


if __name__ == "__main__":
    typer.run(main)
