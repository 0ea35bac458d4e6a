"""Run others' tests on some ranks under one MPI library; go on after crashes and hangs."""

import json
import os
import signal
import subprocess
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

from sources import CACHE, ROOT

WORKER = Path(__file__).with_name("worker.py")
OUT = CACHE / "runs"
MOST = 6  # crashes and hangs of one module after which its rest is given up
# Ranks are more than cores, so waiting ranks must yield. Root may start Open MPI.
DEFAULTS = {
    "OMPI_MCA_mpi_yield_when_idle": "1", "I_MPI_THREAD_YIELD": "2",
    "OMPI_MCA_btl": "^ofi",  # which looks for adapters for a second
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_ALLOW_RUN_AS_ROOT": "1", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}  # fmt: skip


@dataclass(frozen=True)
class Job:
    """What to run, where, and whether with han."""

    suite: str
    tests: Path
    kind: str  # "unittest" or "pytest"
    modules: tuple[str, ...]
    environment: Path = ROOT / ".venv-mpich"
    library: str = "mpich"
    ranks: int = 2
    how: str = "han"  # or "native"
    only: frozenset[str] = frozenset()
    share: tuple[tuple[int, ...], int] = ((0,), 1)  # of so many parts of the tests, these
    hang: float = 60.0  # seconds without a record on any rank


@dataclass
class Outcome:
    """What the ranks saw of one test."""

    state: str = "passed"
    failures: list[dict] = field(default_factory=list)
    backends: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0


def run(job: Job) -> dict[str, Outcome]:
    """Return the outcome of each test; a test in which a rank dies or hangs has that state."""
    outcomes: dict[str, Outcome] = {}
    falls: Counter[str] = Counter()
    for number in count():
        ended, logs, output = _launch(job, number, set(outcomes))
        new = {name: o for name, o in _complete(logs).items() if name not in outcomes}
        outcomes.update(new)
        if ended == "done":
            break
        if ended == "left" and new:
            continue
        culprit = _culprit(logs, outcomes) or f"(launch {number})"
        outcomes[culprit] = _ended(ended, _evidence(job, number, output))
        module = culprit.split(".")[0]
        falls[module] += 1
        if module not in job.modules:  # the ranks did not start, or did not end
            break
        if falls[module] == MOST:
            outcomes[f"{module}.(rest)"] = _ended("given up")
            job = replace(job, modules=tuple(m for m in job.modules if m != module))
    return outcomes or {"(none)": _ended("no test ran")}


def _ended(how: str, text: str = "") -> Outcome:
    return Outcome(how, [{"backend": "", "error": how, "text": text}])


def _launch(job: Job, number: int, skip: set[str]) -> tuple[str, list[list[dict]], str]:
    """Launch the ranks once; return how it ended, what the ranks recorded, and their output."""
    OUT.mkdir(parents=True, exist_ok=True)
    prefix = _prefix(job, number)
    spec = {
        "how": job.how, "kind": job.kind, "tests": str(job.tests), "modules": job.modules,
        "out": str(prefix), "only": sorted(job.only), "skip": sorted(skip),
        "share": job.share,
    }  # fmt: skip
    path = prefix.with_name(prefix.name + ".spec.json")
    path.write_text(json.dumps(spec))
    logs = [prefix.with_name(f"{prefix.name}.{rank}.jsonl") for rank in range(job.ranks)]
    for log in logs:
        log.unlink(missing_ok=True)
    output = prefix.with_name(prefix.name + ".output")
    with open(output, "w") as sink:
        process = subprocess.Popen(
            ["mpiexec", "-n", str(job.ranks), "python", str(WORKER), str(path)],
            env=_environment(job), stdout=sink, stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL, start_new_session=True, cwd=OUT,
        )  # fmt: skip
        hung = False
        try:
            hung = _watch(process, logs, job.hang)
        finally:  # also where this process is ended: no rank is left behind
            if process.poll() is None:
                _stop(process, [_records(log) for log in logs])
    records = [_records(log) for log in logs]
    return _ending(process, hung, records), records, output.read_text(errors="replace")


def _ending(process: subprocess.Popen, hung: bool, records: list[list[dict]]) -> str:
    """Return "done", "left" (some rank found its communicator unusable), "hung" or "died"."""
    last = [key for log in records for key in (log or [{}])[-1]]
    if hung or len([key for key in last if key in ("done", "left")]) < len(records):
        return "hung" if hung else f"died ({process.returncode})"
    return "left" if "left" in last else "done"


def _prefix(job: Job, number: int) -> Path:
    return OUT / f"{job.suite}-{job.library}-{job.ranks}-{job.how}-{number}"


def _environment(job: Job) -> dict[str, str]:
    path = f"{job.environment / 'bin'}{os.pathsep}{os.environ['PATH']}"
    source = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {**DEFAULTS, **os.environ, "PATH": path, "PYTHONPATH": source}


def _watch(process: subprocess.Popen, logs: list[Path], hang: float) -> bool:
    """Wait for the end; return whether the ranks hang.

    Ranks that record nothing for ``hang`` seconds may be slow: they hang if their stacks do not
    change either, or after ten times as long.
    """
    sizes, since, looked = None, time.monotonic(), time.monotonic()
    while process.poll() is None:
        now = [log.stat().st_size if log.exists() else 0 for log in logs]
        if now != sizes:
            sizes, since = now, time.monotonic()
            looked = since
        if time.monotonic() - looked > hang:
            if time.monotonic() - since > 10 * hang or _stacks(logs) == _stacks(logs, 5):
                return True
            looked = time.monotonic()
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.25)
    return False


def _stacks(logs: list[Path], delay: float = 0) -> list[str]:
    """Return each rank's stack after so many seconds."""
    time.sleep(delay)
    files = [log.with_suffix(".stacks") for log in logs]
    before = [file.stat().st_size if file.exists() else 0 for file in files]
    _signal([r[0]["pid"] for r in map(_records, logs) if r], signal.SIGUSR1)
    time.sleep(1)
    return [
        file.read_text(errors="replace")[size:] if file.exists() else ""
        for file, size in zip(files, before, strict=True)
    ]


def _stop(process: subprocess.Popen, records: list[list[dict]]) -> None:
    """End the job and its ranks."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(5)
    _signal([r[0]["pid"] for r in records if r], signal.SIGKILL)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _signal(pids: list[int], number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _records(log: Path) -> list[dict]:
    """Return a rank's records; the last line may be incomplete."""
    found = []
    for line in log.read_text().splitlines() if log.exists() else ():
        with suppress(json.JSONDecodeError):
            found.append(json.loads(line))
    return found


def _complete(logs: list[list[dict]]) -> dict[str, Outcome]:
    """Return the tests that ended on all ranks, with what went wrong on any."""
    ends = [{r["end"]: r for r in log if "end" in r} for log in logs]
    return {
        name: _merged([end[name] for end in ends])
        for name in (ends[0] if ends else ())
        if all(name in end for end in ends)
    }


def _merged(records: list[dict]) -> Outcome:
    order = ("failed", "unexpected success", "passed", "skipped")
    state = min((r["state"] for r in records), key=order.index)
    failures = [{"rank": i, **f} for i, r in enumerate(records) for f in r["failures"]]
    seconds = max(r["seconds"] for r in records)
    return Outcome(state, failures, records[0]["backends"], seconds)


def _culprit(logs: list[list[dict]], outcomes: dict[str, Outcome]) -> str | None:
    """Return the test that the rank farthest behind was in."""
    running = []
    for log in logs:
        started = [r["start"] for r in log if "start" in r]
        ended = {r["end"] for r in log if "end" in r}
        running += [(len(ended), name) for name in started if name not in ended]
        running += [(len(ended), n) for n in ended if n not in outcomes]  # a peer has not ended it
    return min(running)[1] if running else None


def _evidence(job: Job, number: int, output: str) -> str:
    """Return the end of the output and the ranks' stacks."""
    prefix = _prefix(job, number)
    stacks = [
        f"rank {rank}:{path.read_text(errors='replace').rpartition('Current thread')[2][:1200]}"
        for rank in range(job.ranks)
        if (path := prefix.with_name(f"{prefix.name}.{rank}.stacks")).exists()
    ]
    return "\n".join([output[-800:], *stacks])
