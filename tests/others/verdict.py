"""Compare what fails with han with what fails natively, and show it as a table."""

import re
from collections import Counter
from dataclasses import dataclass

from job import Outcome
from rich.console import Console
from rich.table import Table

GOOD = ("passed", "skipped")
# mpi4py makes an object of its own class from a handle. Tests that compare its class exactly with
# that of a han.Comm, which extends it, cannot pass; nothing else of them is excused.
OWN_CLASS = re.compile(
    r"AssertionError: <class 'mpi4py\.MPI\.(\w+)'> (!=|is not) <class 'han\.comm\.(\w+)'>"
)


@dataclass(frozen=True)
class Verdict:
    """A suite's tests under one library on so many ranks."""

    suite: str
    library: str
    ranks: int
    han: dict[str, Outcome]
    native: dict[str, Outcome]  # at least of the tests that fail with han
    seconds: float

    def line(self) -> str:
        """Return a line about the job."""
        where = f"{self.suite} under {self.library} on {self.ranks} ranks"
        return f"{where}: {len(self.han)} tests, {len(self.differences())} differ"

    def failed(self, how: str) -> dict[str, Outcome]:
        """Return the tests that did not pass, with han or natively."""
        outcomes = self.han if how == "han" else self.native
        return {name: o for name, o in outcomes.items() if o.state not in GOOD}

    def differences(self) -> dict[str, list[dict]]:
        """Return what fails with han and not natively, by test; also tests that only han skips."""
        found = {name: self._new(name, o) for name, o in self.failed("han").items()}
        found = {name: fs for name, fs in found.items() if not _by_class(fs)}
        for name, outcome in self.native.items():
            if outcome.state != "skipped" and self.han.get(name, Outcome()).state == "skipped":
                found[name] = [{"backend": "", "error": "skipped with han only", "text": ""}]
        return {name: failures for name, failures in found.items() if failures}

    def by_class(self) -> list[str]:
        """Return the tests that fail only because a han.Comm has a class of its own."""
        return [name for name, o in self.failed("han").items() if _by_class(self._new(name, o))]

    def _new(self, name: str, outcome: Outcome) -> list[dict]:
        """Return failures with arrays of a kind that natively does not fail in that test."""
        native = self.native.get(name, Outcome())
        if native.state not in (*GOOD, "failed"):  # it dies or hangs natively too
            return []
        known = {f["backend"] for f in native.failures}
        failures = outcome.failures or [{"backend": "", "error": outcome.state, "text": ""}]
        return [f for f in failures if f["backend"] not in known]

    def by_backend(self) -> dict[str, tuple[int, int]]:
        """Return for each kind of array the subtests that ran and the tests that differ."""
        ran: Counter[str] = Counter()
        for outcome in self.han.values():
            ran.update(outcome.backends)
        different = {(n, f["backend"]) for n, fs in self.differences().items() for f in fs}
        wrong = Counter(backend for _, backend in different)
        return {kind: (ran[kind], wrong[kind]) for kind in sorted({*ran, *wrong}) if kind}

    def summary(self) -> dict:
        """Return what ``--json`` writes."""
        return {
            "suite": self.suite, "library": self.library, "ranks": self.ranks,
            "tests": len(self.han),
            "skipped": sum(o.state == "skipped" for o in self.han.values()),
            "native failures": sorted(self.failed("native")),
            "han failures": sorted(self.failed("han")),
            "own class": self.by_class(),
            "differences": self.differences(),
            "backends": {k: {"subtests": n, "different": d} for k, (n, d) in
                         self.by_backend().items()},
            "seconds": round(self.seconds, 1),
        }  # fmt: skip


def _by_class(failures: list[dict]) -> bool:
    return bool(failures) and all(OWN_CLASS.search(f["error"]) for f in failures)


def show(verdicts: list[Verdict], console: Console, details: bool) -> None:
    """Print the table, and each difference with its error."""
    table = Table(title="others' tests with han in the place of COMM_WORLD and COMM_SELF")
    for name in ("tests of", "library", "ranks", "tests", "skipped", "natively failed",
                 "failed with han", "own class", "differences", "seconds"):  # fmt: skip
        table.add_column(name, justify="left" if name in ("tests of", "library") else "right")
    for v in verdicts:
        s = v.summary()
        table.add_row(
            v.suite, v.library, str(v.ranks), str(s["tests"]), str(s["skipped"]),
            str(len(s["native failures"])), str(len(s["han failures"])),
            str(len(s["own class"])), str(len(s["differences"])), f"{v.seconds:.0f}",
        )  # fmt: skip
    console.print(table)
    if kinds := _kinds(verdicts):
        console.print("arrays: " + ", ".join(f"{k} {n} ({d} differ)" for k, (n, d) in kinds))
    for v in verdicts:
        for name, failures in v.differences().items():
            first = failures[0]
            console.print(f"{v.suite} {v.library} {v.ranks} {name}: {first['error']}", markup=False)
            if details:
                console.print(first["text"], markup=False)


def _kinds(verdicts: list[Verdict]) -> list[tuple[str, tuple[int, int]]]:
    ran: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    for verdict in verdicts:
        for kind, (n, d) in verdict.by_backend().items():
            ran[kind] += n
            wrong[kind] += d
    return [(kind, (ran[kind], wrong[kind])) for kind in sorted(ran)]
