"""Emulate a cluster on one Linux machine (as root), with real network stacks between nodes.

Every node is a network namespace. A further one, the hub, holds the bridge that joins them
and the launcher, so nothing reaches the machine's own network and two runs cannot collide.
`tc tbf` limits both ends of each link: a node sends and receives at the rate, in full duplex.
In place of ssh the launchers call an agent that gives each node its own host name, hosts
file, IPC namespace and /dev/shm, so that memory is shared within a node and never across.

    python emulate.py run --nodes 4 --ppn 2 --rate 1gbit -- python prog.py
"""

import contextlib
import itertools
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Interface, IPv4Network
from pathlib import Path
from typing import Annotated

import typer

HUB = "hub"
BRIDGE = "br0"
NETWORK = IPv4Network("10.77.0.0/16")  # exists inside the namespaces only
AGENT = Path(__file__).with_name("agent.sh")
SHAPE = "burst 128kb latency 200ms"
TAG = re.compile(r"han-emulate-(?P<pid>\d+)-(?P<start>\d+)-\d+")
COMMAND_S = 20.0  # limit of one `ip`, `tc` or `mpiexec --version`
STOP_S = 10.0  # limit for the processes of a cluster to die


@dataclass(frozen=True)
class Library:
    """How one MPI library is told apart, launched, and made fair to peers on few cores."""

    version: str  # what `mpiexec --version` says
    arguments: str  # of mpiexec; {agent}, {hosts}, {machines} and {size} are filled in
    settings: Mapping[str, str]  # environment of the launcher and of every rank


LIBRARIES: Mapping[str, Library] = {
    "mpich": Library(
        version="HYDRA",
        arguments=f"-launcher ssh -launcher-exec {{agent}} -localhost {HUB} -iface {BRIDGE}"
        " -bind-to none -hosts {hosts} -n {size}",
        # UCX carries messages between nodes only; within one, MPICH's own shared memory does.
        # UCX must not cross by cross-memory attach where it sees one boot id (the separate
        # IPC namespaces already keep it from that here).
        # MPICH yields as shipped; MPIR_CVAR_POLLS_BEFORE_YIELD changes no time measurably.
        settings={"UCX_TLS": "tcp,self"},
    ),
    "openmpi": Library(
        version="Open MPI",
        arguments="--allow-run-as-root --bind-to none --host {hosts} -n {size}",
        settings={
            "PRTE_MCA_plm_ssh_agent": "{agent}",
            "PRTE_MCA_prte_if_include": str(NETWORK),
            "OMPI_MCA_btl_tcp_if_include": str(NETWORK),
            "OMPI_MCA_pml": "ob1",
            "OMPI_MCA_mpi_yield_when_idle": "1",
        },
    ),
    "impi": Library(
        version="Intel(R) MPI",
        # Its -hosts takes no number of ranks: node0:3,node1:1 would get two each.
        arguments=f"-localhost {HUB} -iface {BRIDGE} -machinefile {{machines}} -n {{size}}",
        settings={
            "I_MPI_HYDRA_BOOTSTRAP": "ssh",
            "I_MPI_HYDRA_BOOTSTRAP_EXEC": "{agent}",
            "I_MPI_FABRICS": "shm:ofi",
            "I_MPI_PIN": "0",
            "I_MPI_THREAD_YIELD": "2",
            "I_MPI_WAIT_MODE": "1",  # 8-byte allreduce, 8 ranks, 2 cores: 1.5 ms without it
            "FI_PROVIDER": "tcp",
        },
    ),
}


class EmulationError(RuntimeError):
    """This machine or this request cannot be emulated; the message says why."""


# --- the cluster -------------------------------------------------------------------------


class Cluster:
    """`nodes` nodes joined by links of `rate` (as `tc` writes it), for as long as it is open."""

    _count = itertools.count()

    def __init__(self, nodes: int, rate: str = "1gbit"):
        if not 1 <= nodes <= 250:
            raise EmulationError(f"a cluster has 1 to 250 nodes, not {nodes}")
        self.rate = rate
        self.nodes = tuple(f"node{i}" for i in range(nodes))
        self.tag = f"han-emulate-{os.getpid()}-{_start_time(os.getpid())}-{next(self._count)}"
        self.directory = _directory(self.tag)
        self.agent = self.directory / "agent.sh"

    def __enter__(self) -> "Cluster":
        try:
            self.up()
        except BaseException:
            self.down()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.down()

    def namespace(self, node: str) -> str:
        """Name the network namespace of `node`."""
        return f"{self.tag}-{node}"

    def up(self) -> None:
        """Make the namespaces, the bridge, the links and the agent."""
        self._write_agent()
        hub = self.namespace(HUB)
        addresses = self._addresses()
        _ip(f"netns add {hub}")
        _ip(f"-n {hub} link set lo up")
        _ip(f"-n {hub} link add {BRIDGE} type bridge forward_delay 0")
        _ip(f"-n {hub} address add {addresses[HUB]} dev {BRIDGE}")
        _ip(f"-n {hub} link set {BRIDGE} up")
        for node in self.nodes:
            self._attach(node, addresses[node])

    def down(self) -> None:
        """Remove all that this cluster made, and end what still runs in it."""
        remove(self.tag)

    def run(
        self,
        command: Sequence[str],
        *,
        ppn: int | Sequence[int] = 1,
        mpi: str | None = None,
        python: str | os.PathLike[str] | None = None,
        timeout: float = 300,
        env: Mapping[str, str] | None = None,
        capture: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Run an MPI program on the nodes; its processes are gone when this returns.

        `ppn`: ranks per node, one number or one per node. `mpi`: a name in `LIBRARIES`, by
        default what the `mpiexec` beside the interpreter says it is. `python`: the
        interpreter that a bare "python" in `command` means, by default this one. `env` goes
        to launcher and ranks and wins over the library's settings. With `capture` the
        result holds stdout and stderr; a program that outlives `timeout` seconds is killed
        and `subprocess.TimeoutExpired` raised. The status is that of mpiexec, which is the
        program's (but Intel MPI's may say 255 where ranks of several nodes fail at once).
        """
        ranks = _ranks_per_node(ppn, len(self.nodes))
        command, mpiexec = _resolve(command, python)
        kind = mpi or detect(mpiexec)
        arguments, settings = self._fill_in(_library(kind), ranks)
        assignments = [f"{k}={v}" for k, v in (settings | dict(env or {})).items()]
        launch = ["env", *assignments, str(mpiexec), *arguments]
        print(f"emulate: {self.rate}, {kind}: {shlex.join(launch)}", file=sys.stderr, flush=True)
        # Launchers differ in what they pass on, so `env` hands the settings to each rank.
        return self._launch([*launch, "env", *assignments, *command], timeout, capture)

    def _fill_in(self, library: Library, ranks: Sequence[int]) -> tuple[list[str], dict[str, str]]:
        """Return the arguments of `mpiexec` and the settings for `ranks` on these nodes."""
        hosts = [f"{node}:{count}" for node, count in zip(self.nodes, ranks, strict=True)]
        machines = self.directory / "machines"
        machines.write_text("\n".join(hosts) + "\n")
        words = {
            "agent": self.agent,
            "hosts": ",".join(hosts),
            "machines": machines,
            "size": sum(ranks),
        }
        settings = {key: value.format(**words) for key, value in library.settings.items()}
        return library.arguments.format(**words).split(), settings

    def _launch(
        self, command: Sequence[str], timeout: float, capture: bool
    ) -> subprocess.CompletedProcess[str]:
        pipe = subprocess.PIPE if capture else None
        arguments = [str(self.agent), HUB, shlex.join(command)]
        process = subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            text=True,
            start_new_session=True,
        )
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired as expired:
            self._end(process)
            out, err = process.communicate(timeout=STOP_S)
            raise subprocess.TimeoutExpired(list(command), timeout, out, err) from expired
        finally:
            self._end(process)
        return subprocess.CompletedProcess(list(command), process.returncode, out, err)

    def _end(self, launcher: subprocess.Popen[str]) -> None:
        """End the launcher, even one not yet in its namespace, and all that it started."""
        launcher.terminate()
        _stop(_namespaces(self.tag))
        launcher.wait(timeout=STOP_S)

    def _addresses(self) -> dict[str, IPv4Interface]:
        names = (HUB, *self.nodes)
        return {
            name: IPv4Interface((address, NETWORK.prefixlen))
            for name, address in zip(names, NETWORK.hosts(), strict=False)
        }

    def _write_agent(self) -> None:
        self.directory.mkdir(mode=0o755)
        hosts = self.directory / "hosts"
        lines = [f"{address.ip} {name}" for name, address in self._addresses().items()]
        hosts.write_text("\n".join(["127.0.0.1 localhost", *lines]) + "\n")
        shutil.copy(AGENT, self.agent)  # with its mode

    def _attach(self, node: str, address: IPv4Interface) -> None:
        """Make one node and its link; a port of the bridge is named after its node."""
        name, hub = self.namespace(node), self.namespace(HUB)
        _ip(f"netns add {name}")
        _ip(f"-n {name} link set lo up")
        _ip(f"-n {name} link add eth0 type veth peer name {node} netns {hub}")
        _ip(f"-n {name} address add {address} dev eth0")
        _ip(f"-n {hub} link set {node} master {BRIDGE}")
        for space, link in ((name, "eth0"), (hub, node)):
            _command(f"tc -n {space} qdisc replace dev {link} root tbf rate {self.rate} {SHAPE}")
            _ip(f"-n {space} link set {link} up")


def remove(tag: str) -> None:
    """Remove the cluster of that tag, whole or in part, and end the processes in it."""
    names = _namespaces(tag)
    _stop(names)
    for name in names:
        _ip(f"netns delete {name}")
    shutil.rmtree(_directory(tag), ignore_errors=True)


def stale() -> list[str]:
    """List the tags of clusters whose owner no longer runs."""
    names = [*_namespaces(), *(p.name for p in _directory("").iterdir())]
    found = {match[0]: match for name in names if (match := TAG.match(name))}
    return [tag for tag, m in found.items() if _start_time(int(m["pid"])) != int(m["start"])]


def check() -> str | None:
    """Say why this machine cannot emulate a cluster, or None if it can, by making a small one."""
    if not sys.platform.startswith("linux"):
        return f"network namespaces are Linux's, this is {sys.platform}"
    if os.geteuid() != 0:
        return "network namespaces need root"
    if missing := [tool for tool in ("ip", "tc", "unshare", "mount") if not shutil.which(tool)]:
        return f"not found: {', '.join(missing)} (packages iproute2, util-linux)"
    try:
        with Cluster(nodes=1) as cluster:
            _run([str(cluster.agent), cluster.nodes[0], "true"])
    except (EmulationError, OSError) as error:
        return str(error)
    return None


# --- launching ---------------------------------------------------------------------------


def detect(mpiexec: Path) -> str:
    """Tell which library an `mpiexec` belongs to, by its version."""
    text = _run([str(mpiexec), "--version"])
    for kind, library in LIBRARIES.items():
        if library.version in text:
            return kind
    raise EmulationError(f"{mpiexec} is of none of {', '.join(LIBRARIES)}: {text[:80]!r}")


def _library(kind: str) -> Library:
    try:
        return LIBRARIES[kind]
    except KeyError:
        raise EmulationError(f"unknown MPI {kind!r}; known: {', '.join(LIBRARIES)}") from None


def _resolve(
    command: Sequence[str], python: str | os.PathLike[str] | None
) -> tuple[list[str], Path]:
    """Put the interpreter in the place of a bare "python"; find the mpiexec beside it."""
    if not command:
        raise EmulationError("no command to run")
    first, *rest = command
    named = first if os.sep in first else sys.executable
    interpreter = Path(python or named).absolute()  # not resolved: links lead out of a venv
    mpiexec = interpreter.with_name("mpiexec")
    if not mpiexec.exists():
        raise EmulationError(f"no mpiexec beside {interpreter}; name an interpreter (--python)")
    return [str(interpreter) if first in ("python", "python3") else first, *rest], mpiexec


def _ranks_per_node(ppn: int | Sequence[int], nodes: int) -> tuple[int, ...]:
    ranks = (ppn,) * nodes if isinstance(ppn, int) else tuple(ppn)
    if len(ranks) != nodes or min(ranks) < 1:
        raise EmulationError(f"ppn {ranks}: one number from 1 for each of {nodes} nodes expected")
    return ranks


# --- the machine -------------------------------------------------------------------------


def _run(arguments: Sequence[str]) -> str:
    """Run a short command away from the terminal's Ctrl-C; return its output."""
    try:
        done = subprocess.run(
            arguments,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    except subprocess.TimeoutExpired as error:
        raise EmulationError(str(error)) from error
    if done.returncode:
        said = done.stderr.strip() or done.stdout.strip()
        raise EmulationError(f"{shlex.join(arguments)}: status {done.returncode}: {said}")
    return done.stdout


def _command(line: str) -> str:
    return _run(line.split())


def _ip(line: str) -> str:
    return _command(f"ip {line}")


def _directory(tag: str) -> Path:
    return Path(tempfile.gettempdir(), tag)


def _namespaces(tag: str = "") -> list[str]:
    """List our namespaces, of one cluster or of all."""
    names = [line.split()[0] for line in _ip("netns list").splitlines() if line]
    return [n for n in names if (match := TAG.match(n)) and tag in ("", match[0])]


def _start_time(pid: int) -> int | None:
    """Say when a process started, in clock ticks; None if there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return int(stat.rpartition(")")[2].split()[19])


def _stop(namespaces: Sequence[str]) -> None:
    """End every process in these namespaces: SIGTERM first, then SIGKILL."""
    began = time.monotonic()
    while pids := [int(p) for name in namespaces for p in _ip(f"netns pids {name}").split()]:
        elapsed = time.monotonic() - began
        if elapsed > STOP_S:
            raise EmulationError(f"processes {pids} do not end")
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM if elapsed < 1 else signal.SIGKILL)
        time.sleep(0.1)


# --- the command line --------------------------------------------------------------------

app = typer.Typer(help=__doc__, add_completion=False, no_args_is_help=True)
Nodes = Annotated[int, typer.Option(help="Number of nodes.")]
Rate = Annotated[str, typer.Option(help="Rate of each link, each way, as tc writes it.")]


@contextlib.contextmanager
def _failures_as_exits() -> Iterator[None]:
    """Turn the first signal into an exit that cleans up, and known errors into a line."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def leave(number: int, _frame: object) -> None:
        for each in numbers:
            signal.signal(each, signal.SIG_IGN)
        raise SystemExit(128 + number)

    for number in numbers:
        signal.signal(number, leave)
    try:
        yield
    except EmulationError as error:
        print(f"emulate: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except subprocess.TimeoutExpired as error:
        print(f"emulate: killed after {error.timeout:g} s", file=sys.stderr)
        raise SystemExit(124) from None


def _parse_counts(text: str) -> list[int]:
    if not re.fullmatch(r"\d+(,\d+)*", text):
        raise EmulationError(f"--ppn {text!r}: a number, or one per node as in 3,1,2, expected")
    return [int(count) for count in text.split(",")]


def _parse_settings(pairs: Sequence[str]) -> dict[str, str]:
    if wrong := [pair for pair in pairs if "=" not in pair]:
        raise EmulationError(f"--env {wrong[0]!r}: K=V expected")
    return dict(pair.split("=", 1) for pair in pairs)


@app.command()
def up(nodes: Nodes = 4, rate: Rate = "1gbit") -> None:
    """Make a cluster that stays until `down`; print the namespaces of its nodes."""
    with _failures_as_exits(), contextlib.ExitStack() as undo:
        cluster = undo.enter_context(Cluster(nodes, rate))
        print(f"emulate: run there: {cluster.agent} NODE COMMAND", file=sys.stderr)
        print("\n".join(cluster.namespace(node) for node in cluster.nodes))
        undo.pop_all()


@app.command()
def down() -> None:
    """Remove the clusters that their owners left: those of `up` and of killed runs."""
    with _failures_as_exits():
        for tag in stale():
            remove(tag)
            print(tag)


@app.command("check")
def check_machine() -> None:
    """Say whether this machine can emulate a cluster; exit 1 with the reason if not."""
    with _failures_as_exits():
        reason = check()
    print(reason or "this machine can emulate a cluster")
    raise SystemExit(1 if reason else 0)


@app.command()
def run(
    command: Annotated[list[str], typer.Argument(help="The program; put -- before it.")],
    nodes: Nodes = 4,
    rate: Rate = "1gbit",
    ppn: Annotated[str, typer.Option(help="Ranks per node: 2, or 3,1,2 node by node.")] = "1",
    mpi: Annotated[str | None, typer.Option(help=f"{', '.join(LIBRARIES)}.")] = None,
    python: Annotated[str | None, typer.Option(help="Interpreter beside the mpiexec.")] = None,
    timeout: Annotated[float, typer.Option(help="Seconds, then killed with status 124.")] = 300,
    env: Annotated[list[str] | None, typer.Option(help="K=V for launcher and ranks.")] = None,
) -> None:
    """Make a cluster, run an MPI program on it, remove it; exit with the program's status."""
    with _failures_as_exits():
        counts, settings = _parse_counts(ppn), _parse_settings(env or ())
        with Cluster(nodes, rate) as cluster:
            done = cluster.run(
                command,
                ppn=counts if len(counts) > 1 else counts[0],
                mpi=mpi,
                python=python,
                timeout=timeout,
                env=settings,
                capture=False,
            )
    raise SystemExit(done.returncode)


if __name__ == "__main__":
    app()
