"""Run the tests of other projects with han, and report what fails that natively does not."""

import json
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import sources
import typer
from job import Job, run
from rich.console import Console
from suites import ALL, Suite
from verdict import Verdict, show

NONE: list[str] = []


def main(
    suite: Annotated[list[str], typer.Option(help=f"Of {', '.join(ALL)}.")] = list(ALL),  # noqa: B006
    mpi: Annotated[list[str], typer.Option(help="An MPI library.")] = NONE,
    ranks: Annotated[list[int], typer.Option(help="A number of ranks.")] = NONE,  # type: ignore
    modules: Annotated[str, typer.Option(help="A pattern of modules: 'cco_.*', 'op'.")] = "",
    test: Annotated[list[str], typer.Option(help="A test, as the report names it.")] = NONE,
    share: Annotated[
        int,
        typer.Option(help="Of so many parts of the tests each job runs some, each another.", min=1),
    ] = 1,
    native: Annotated[bool, typer.Option(help="Run all tests natively too.")] = False,
    environments: Annotated[
        Path, typer.Option(help="The folder that has .venv-mpich and the others.")
    ] = sources.ROOT,
    hang: Annotated[float, typer.Option(help="Seconds without progress that are a hang.")] = 60.0,
    details: Annotated[bool, typer.Option(help="Print the stack of each difference.")] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the results.")] = None,
) -> None:
    """Run others' tests with han.Comm as COMM_WORLD and COMM_SELF.

    Options that may be repeated: suite, mpi, ranks, test. What fails is run natively as well: what
    fails there too may fail. Exits with 1 if anything else fails, hangs or dies.

    \b
    Examples:
        python tests/others/run.py --suite mpi4py --mpi mpich --ranks 2 --modules cco_obj
        python tests/others/run.py --suite mpi4py --test test_op.TestOp.testCall --details
    """
    console = Console(width=max(Console().width, 120), soft_wrap=True)
    verdicts, failed = [], False
    for chosen in (ALL[name] for name in suite):
        if mpi and not {*mpi} & {*chosen.libraries}:
            continue
        try:
            folder = chosen.folder(environments.absolute())
        except sources.Unreachable as reason:
            console.print(f"=== tests of {chosen.name} skipped: {reason}", markup=False)
            failed |= sources.required()
            continue
        wanted = tuple({t.split(".")[0]: None for t in test}) or chosen.modules(folder, modules)
        plain = Job(chosen.name, folder, chosen.kind, wanted, only=frozenset(test), hang=hang)
        for job in jobs(plain, chosen, mpi, ranks, environments.absolute()):
            parts = {k % share for k in chosen.parts(job.library, job.ranks)}
            verdicts.append(judge(replace(job, share=(tuple(parts), share)), native))
            console.print(verdicts[-1].line(), markup=False)
    show(verdicts, console, details)
    if json_file:
        json_file.write_text(json.dumps([v.summary() for v in verdicts], indent=1))
    count = sum(len(v.differences()) for v in verdicts)
    console.print(f"=== tests of others, differences: {count}", markup=False)
    sys.exit(failed or count > 0)


def jobs(
    plain: Job, suite: Suite, mpi: list[str], ranks: list[int], environments: Path
) -> Iterator[Job]:
    """Return the jobs of a suite; a library without a wheel for this processor has none."""
    for library in suite.libraries:
        place = environments / suite.environment.format(mpi=library)
        if (mpi and library not in mpi) or (place / ".skipped").exists():
            continue
        for size in suite.ranks:
            if not ranks or size in ranks:
                yield replace(plain, environment=place, library=library, ranks=size)


def judge(job: Job, everything: bool) -> Verdict:
    """Run with han, and natively what failed or everything."""
    since = time.monotonic()
    han = run(job)
    failed = frozenset(name for name, outcome in han.items() if outcome.state != "passed")
    native = {}
    if everything:
        native = run(replace(job, how="native"))
    elif failed:
        modules = tuple(m for m in job.modules if any(n.split(".")[0] == m for n in failed))
        native = run(replace(job, how="native", only=failed, modules=modules, share=((0,), 1)))
    return Verdict(job.suite, job.library, job.ranks, han, native, time.monotonic() - since)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    typer.run(main)
