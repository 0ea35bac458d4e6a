"""The machine, the MPI library and the settings under which a measurement ran."""

from __future__ import annotations

import os
import platform
import re
import sys
import sysconfig
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import mpi4py
from mpi4py import MPI

from han.comm import Comm
from han.common.units import plural, spans
from han.common.version import __version__
from han.ranks.autogroup import autogroup, describe
from han.ranks.machine import cpu_model, library_name, library_text

# Variables that change how a library waits, or which transports and algorithms it uses.
TELLING = re.compile(
    r"OMPI_MCA_(mpi_yield_when_idle|pml|btl.*|coll.*|mtl|smsc)|I_MPI_(THREAD_YIELD|WAIT_MODE"
    r"|FABRICS|ADJUST_.*|SPIN_COUNT)|UCX_TLS|UCX_NET_DEVICES|FI_PROVIDER|MPIR_CVAR_.*|HAN_.*"
)
WIDTH = 80  # letters of a line
PLAIN = ("version", "library", "for", "linux", "os", "r")  # words that identify no library


@dataclass(frozen=True)
class Machine:
    """The machine, the MPI library and the ranks of a run."""

    cpu: str
    cores: int
    allowed: str  # processors that the ranks may use
    library: str
    library_version: str
    mpi4py: str
    python: str
    ranks: int
    nodes: int
    topology: str = ""
    config: str = ""
    wait: str = ""
    autogroups: int = 0  # automatic groups of the scheduler, see han/ranks/autogroup.py
    oversubscribed: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """Return lines for the head of a table."""
        more = ", more ranks than processors" if self.oversubscribed else ""
        lines = [
            f"machine   {self.cpu}, {plural(self.cores, 'core')}, CPUs {self.allowed}",
            f"library   {described(self.library, self.library_version)}, mpi4py {self.mpi4py}",
            f"ranks     {self.ranks} on {plural(self.nodes, 'node')}{more}",
        ]
        if self.config:
            lines += [
                f"levels    {self.topology}",
                f"config    {self.config}; wait {self.wait}",
            ]
        if self.autogroups > 1:
            lines.append(f"yields    {describe(self.autogroups)}")
        if self.settings:
            lines.append("settings  " + " ".join(f"{k}={v}" for k, v in self.settings.items()))
        return lines


def look(comm: MPI.Intracomm, han: Comm | None) -> Machine:
    """Describe the run; collective over `comm`. `han` is the communicator of han's side."""
    hosts = comm.allgather(MPI.Get_processor_name())
    machine = Machine(
        cpu=cpu_model(),
        cores=os.cpu_count() or 1,
        allowed=allowed_cpus(comm),
        library=library_name(),
        library_version=library_text(),
        mpi4py=mpi4py.__version__,
        python=_python(),
        ranks=comm.size,
        nodes=len(set(hosts)),
        settings=settings(os.environ),
    )
    if han is None:
        return machine
    return replace(
        machine,
        topology=_topology(han),
        config=han._han.parts.config.source,
        wait=describe_wait(han),
        autogroups=autogroups(han),
        oversubscribed=han._han.parts.conditions.oversubscribed,
    )


def _python() -> str:
    """Return Python's version, and whether a free-threaded one has turned its lock on."""
    version = platform.python_version()
    if not sysconfig.get_config_var("Py_GIL_DISABLED"):
        return version
    on = getattr(sys, "_is_gil_enabled", lambda: True)()
    return f"{version} (free-threaded, lock {'on' if on else 'off'})"


def settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables that affect a measurement."""
    return {k: v for k, v in sorted(environ.items()) if TELLING.fullmatch(k)}


def _topology(comm: Comm) -> str:
    topology = comm._han.parts.topology
    counts = [topology.size] + [len(set(domains)) for domains in topology.domains]
    levels = [plural(counts[k + 1], name) for k, name in reversed(list(enumerate(topology.names)))]
    return f"{' > '.join(levels)} > {plural(topology.size, 'rank')}"


def autogroups(comm: Comm) -> int:
    """Count the scheduler's automatic groups of the ranks, on the node with the most; collective.

    Returns 0 if no node is oversubscribed, because ranks then need not yield to each other.
    """
    node = MPI.Get_processor_name()
    found = {pair for pair in comm.allgather((node, autogroup())) if pair[1]}
    if not comm._han.parts.conditions.oversubscribed:
        return 0
    return max(Counter(node for node, _ in found).values(), default=0)


def describe_wait(comm: Comm) -> str:
    """Describe how ranks wait on a communicator."""
    wait, conditions = comm._han.parts.config.wait, comm._han.parts.conditions
    if wait.policy != "auto":
        return str(wait.policy)
    if conditions.oversubscribed:
        return "auto (more ranks than processors: yields early, then sleeps)"
    quota = "the container's quota is below the number of ranks"
    slept = f", then sleeps: {quota}" if conditions.rationed else ""
    return f"auto ({wait.spin} polls, then yields{slept})"


def allowed_cpus(comm: MPI.Intracomm) -> str:
    """Return the processors that any of the ranks may use, as text; collective."""
    masks = comm.allgather(frozenset(os.sched_getaffinity(0)))
    alike = len(set(masks)) == 1
    return f"{spans(frozenset().union(*masks))} allowed{'' if alike else ' (ranks are bound)'}"


def described(name: str, text: str) -> str:
    """Return a library's name, and its version text if that says more than the name."""
    known = _words(name)
    new = [w for w in _words(text) if not any(k.startswith(w) for k in (*known, *PLAIN))]
    return f"{name} ({text})" if new else name


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z]+|[0-9][0-9.]*", text.lower())


def heading(command: str, about: str, machine: Machine, *notes: str) -> str:
    """Return the comment lines above the tables of a command.

    `about` says what is measured, `notes` how to read the tables.
    """
    lines = [f"han {__version__} {command}: {about}", *machine.lines(), *notes]
    return "\n".join(
        textwrap.fill(
            line, WIDTH, initial_indent="# ", subsequent_indent="#           ",
            break_long_words=False, break_on_hyphens=False,
        )
        for line in lines
    )  # fmt: skip


def document(
    name: str, version: int, machine: Machine, rows: Iterable[Mapping[str, Any]], **about: object
) -> dict[str, Any]:
    """Return the JSON document of a measurement: format, version, machine, `about`, rows."""
    return {
        "format": name,
        "version": version,
        "han": __version__,
        "unit": "us",
        "machine": asdict(machine),
        **about,
        "rows": list(rows),
    }
