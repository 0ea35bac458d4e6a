"""Run MPICH's own tests of collectives from C, natively and under han's preloaded library.

Their sources are not here: give the folder of a clone of MPICH, whose ``test/mpi`` is read.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer
from job import DEFAULTS
from rich.console import Console
from rich.progress import track
from rich.table import Table
from sources import CACHE

LISTS = "coll,comm,topo,errors/coll,threads/coll"
LARGEST = 12  # GiB that a test may ask for
INCLUDED = (
    "STDARG_H STRING_H UNISTD_H SYS_TIME_H SYS_RESOURCE_H GETRUSAGE LONG_LONG LONG_LONG_INT "
    "LONG_DOUBLE _BOOL FLOAT__COMPLEX DOUBLE__COMPLEX LONG_DOUBLE__COMPLEX STDINT_H INT8_T "
    "INT16_T INT32_T INT64_T UINT8_T UINT16_T UINT32_T UINT64_T MPI_WIN_CREATE MPI_SPAWN "
    "PTHREAD_BARRIER_INIT PTHREAD_H ATOMIC"
)
FLAGS = ("-O1", "-w", "-std=gnu11", "-fcommon", "-rdynamic")
# A communicator's nonblocking calls are han's from its first blocking one on: tests begin with one.
SETTLED = """
#include <mpi.h>
static inline __attribute__((unused)) int settle_(int rc, MPI_Comm c) {
    int inter = 1, size = 0;
    if (!rc && c != MPI_COMM_NULL && !MPI_Comm_test_inter(c, &inter) && !inter)
        MPI_Comm_size(c, &size), size > 1 && MPI_Barrier(c);
    return rc;
}
#define SETTLED_(CALL, P) ({ MPI_Comm *p_ = (P); int rc_ = CALL; settle_(rc_, *p_); })
"""
MAKERS = {  # functions that make communicators, and the letters of their other arguments
    "Comm_dup": "a", "Comm_dup_with_info": "ai", "Comm_split": "ack", "Comm_split_type": "acki",
    "Comm_create": "ag", "Comm_create_group": "agt", "Intercomm_merge": "ah",
    "Cart_create": "andqr", "Cart_sub": "ar", "Graph_create": "anier",
    "Dist_graph_create": "ansdtwir", "Dist_graph_create_adjacent": "answmdxir",
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A line of a list."""

    folder: str
    name: str
    ranks: int
    words: tuple[str, ...]
    variables: tuple[str, ...]
    limit: float
    by_code: bool  # the exit code tells the result, and no text does
    memory: float

    def __str__(self) -> str:
        return " ".join((f"{self.folder}/{self.name}", str(self.ranks), *self.words))


@dataclass(frozen=True)
class Result:
    """How a test ended: passed, failed, hung, or skipped."""

    test: str
    state: str
    seconds: float
    text: str


def cases(tests: Path, lists: str, most: int, limit: float) -> Iterator[Case]:
    """Read the lists, each case once."""
    seen = set()
    for folder in lists.split(","):
        files = [tests / folder / name for name in ("testlist.in", "testlist")]
        for line in next(file for file in files if file.exists()).read_text().splitlines():
            words = re.sub(r"@\w+@", "", line).split()
            # Those of @coll_error@ are for an MPICH that compares the ranks' calls.
            if not words or words[0].startswith("#") or "@coll_error@" in line:
                continue
            case = _case(folder, words, most, limit)
            if case not in seen:
                seen.add(case)
                yield case


def _case(folder: str, words: list[str], most: int, limit: float) -> Case:
    said = [tuple(word.split("=", 1)) for word in words[2:] if "=" in word]
    told = dict(said)
    return Case(
        folder, words[0], min(int(words[1]), most),
        tuple(value for name, value in said if name == "arg"),
        tuple(value for name, value in said if name == "env"),
        max(limit, min(float(told.get("timeLimit", 0)), 300)),
        told.get("resultTest", "") in ("TestAllowWarnings", "TestStatus"),
        float(told.get("mem", 0)),
    )  # fmt: skip


def build(tests: Path, out: Path, compiler: str, folders: set[str]) -> None:
    """Compile what is not there yet; a program that cannot be compiled is missing afterwards."""
    (out / "util").mkdir(parents=True, exist_ok=True)
    defined = [f"#define HAVE_{name} 1" for name in INCLUDED.split()]
    defined.append("#define THREAD_PACKAGE_NAME THREAD_PACKAGE_POSIX")
    (out / "mpitestconf.h").write_text("\n".join(defined) + "\n")
    (out / "mtest_mpix.h").touch()
    (out / "settled.h").write_text(_settled())
    include = [f"-I{out}", f"-I{tests}/include", f"-I{tests}/dtpools/include"]
    command = [compiler, *FLAGS, *include, "-DUSE_STRICT_MPI", "-include", str(out / "settled.h")]

    def compiled(source: Path, target: Path, *more: object) -> None:
        if not target.exists():
            words = [*command, source, "-o", target, *more]
            subprocess.run([*map(str, words)], capture_output=True, check=False)

    util = tests / "util"
    sources = [*util.glob("mtest*.c"), util / "dtypes.c", *(tests / "dtpools/src").glob("*.c")]
    for source in (*sources, util / "run_mpitests.c"):
        compiled(source, out / "util" / f"{source.stem}.o", "-c")
    thread = "-DMTEST_USE_THREAD"
    compiled(util / "mtest.c", out / "util" / "mtest_t.o", "-c", thread)
    common = [out / "util" / f"{s.stem}.o" for s in sources if s.stem in ("mtest_common", "dtypes")]
    common += [out / "util" / f"{s.stem}.o" for s in sources if s.parent.name == "src"]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for folder in folders:
            (out / folder).mkdir(parents=True, exist_ok=True)
            several = folder.startswith("threads")
            own = ["mtest_t", "mtest_thread"] if several else ["mtest", "mtest_single"]
            objects = [*common, *(out / "util" / f"{name}.o" for name in own)]
            for source in (tests / folder).glob("*.c"):
                more = [*([thread] if several else []), *objects, "-lm", "-lpthread"]
                pool.submit(compiled, source, out / folder / source.stem, *more)


def _settled() -> str:
    lines = [SETTLED]
    for name, letters in MAKERS.items():
        given = ", ".join(letters)
        lines.append(f"#define MPI_{name}({given}, z) SETTLED_(MPI_{name}({given}, p_), z)")
    for name, given in (("Init", "a, b"), ("Init_thread", "a, b, c, d")):
        call = f"int rc_ = MPI_{name}({given}); settle_(rc_, MPI_COMM_WORLD);"
        lines.append(f"#define MPI_{name}({given}) ({{ {call} }})")
    return "\n".join(lines) + "\n"


def result(case: Case, tests: Path, out: Path, variables: dict[str, str]) -> Result:
    """Run a test."""
    program = out / case.folder / case.name
    if case.memory > LARGEST or not program.exists():
        reason = "not compiled" if case.memory <= LARGEST else f"needs {case.memory} GiB"
        return Result(str(case), "skipped", 0, reason)
    own = dict(word.split("=", 1) for word in case.variables)
    words = ["env", *(f"{name}={value}" for name, value in {**variables, **own}.items())]
    begun = time.monotonic()
    with tempfile.TemporaryFile("w+") as output:
        job = subprocess.Popen(
            ["mpiexec", "-n", str(case.ranks), *words, program, *case.words],
            cwd=tests / case.folder, env={**DEFAULTS, **os.environ}, stdin=subprocess.DEVNULL,
            stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            code = job.wait(case.limit)
        except subprocess.TimeoutExpired:
            code = None
            os.killpg(job.pid, signal.SIGKILL)
            subprocess.run(["pkill", "-KILL", "-f", str(program)], check=False)
            job.wait()
        output.seek(0)
        text = output.read()
    good = code == 0 and (case.by_code or "No Errors" in text)
    state = "hung" if code is None else "passed" if good else "failed"
    return Result(str(case), state, time.monotonic() - begun, text[-2000:])


def main(
    source: Annotated[Path, typer.Argument(help="A clone of MPICH.", exists=True)],
    lists: Annotated[str, typer.Option(help="Folders of test/mpi that have a list.")] = LISTS,
    only: Annotated[str, typer.Option(help="A pattern of tests.")] = "",
    most: Annotated[int, typer.Option(help="The most ranks.")] = 8,
    limit: Annotated[float, typer.Option(help="Seconds that a test may take.")] = 60,
    nodes: Annotated[str, typer.Option(help="HAN_CONFIG: 'virtual-2x2', say.")] = "",
    native: Annotated[Path | None, typer.Option(help="Results without han, of --json.")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the results.")] = None,
) -> None:
    """Run MPICH's tests by the mpiexec and the mpicc that are first on PATH.

    Without --native the tests run natively too, and with han those that passed. Exits with 1 if one
    of them fails or hangs with han.

    \b
    Examples:
        python tests/others/mpich_lists.py ~/mpich --only '^coll/allred' --json results.json
        python tests/others/mpich_lists.py ~/mpich --nodes virtual-2x2 --native results.json
    """
    console, tests = Console(soft_wrap=True), source / "test" / "mpi"
    compiler, library = shutil.which("mpicc"), _library()
    if compiler is None:
        raise typer.BadParameter("no mpicc on PATH")
    all_of_them = [c for c in cases(tests, lists, most, limit) if re.search(only, str(c))]
    out = CACHE / re.sub(r"\W+", "-", f"mpich tests {library}")
    build(tests, out, compiler, {case.folder for case in all_of_them})
    if native:
        before = [Result(**row) for row in json.loads(native.read_text())["native"]]
    else:
        before = [
            result(c, tests, out, {}) for c in track(all_of_them, "natively", console=console)
        ]
    good = {r.test for r in before if r.state == "passed"}
    variables = {"HAN_TEST_SETTLED": "0", **({"HAN_CONFIG": nodes} if nodes else {})}
    said = subprocess.run([sys.executable, "-m", "han", "preload"], capture_output=True, check=True)
    variables |= dict(word.split("=", 1) for word in said.stdout.decode().split())
    chosen = [case for case in all_of_them if str(case) in good]
    after = [
        result(case, tests, out, variables) for case in track(chosen, "with han", console=console)
    ]
    if json_file:
        rows = {"native": [*map(asdict, before)], "han": [*map(asdict, after)]}
        json_file.write_text(json.dumps({"library": library, "nodes": nodes, **rows}, indent=1))
    _show(console, library, before, after)
    raise typer.Exit(any(r.state != "passed" for r in after))


def _library() -> str:
    from mpi4py import rc

    rc.initialize = False
    from mpi4py.MPI import Get_library_version

    return " ".join(Get_library_version().strip("\0").split()[:3])


def _show(console: Console, library: str, before: list[Result], after: list[Result]) -> None:
    table = Table(title=f"MPICH's tests, {library}")
    states = ("passed", "failed", "hung", "skipped")
    for name in ("", *states):
        table.add_column(name)
    for name, results in (("natively", before), ("with han", after)):
        counts = Counter(r.state for r in results)
        table.add_row(name, *(str(counts[state]) for state in states))
    console.print(table)
    for r in after:
        if r.state != "passed":
            console.print(f"{r.state}: {r.test}\n{r.text}", markup=False)


if __name__ == "__main__":
    typer.run(main)
