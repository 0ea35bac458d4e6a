"""Run MPI programs on the nodes of an emulated cluster, with the launcher of each MPI library.

In place of ssh, the launchers call an agent (agent.sh). It gives each node its own host name, hosts
file, IPC namespace and /dev/shm, so that only ranks of one node share memory.
"""

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import host
from binding import LOCAL_RANK, RAIL, rails_of
from host import STOP_S, EmulationError, stop
from network import HUB, Network
from wiring import BRIDGE, FIRST_RAIL, NETWORK


@dataclass(frozen=True)
class Library:
    """How to recognise and launch an MPI library, and let its ranks yield on few cores."""

    version: str  # text in the output of `mpiexec --version`
    arguments: str  # of mpiexec; {agent}, {hosts}, {machines} and {size} are filled in
    settings: Mapping[str, str]  # environment of the launcher and of every rank
    adapter: str  # variable that names the adapter of a rank


LIBRARIES: Mapping[str, Library] = {
    "mpich": Library(
        version="HYDRA",
        arguments=f"-launcher ssh -launcher-exec {{agent}} -localhost {HUB} -iface {BRIDGE}"
        " -bind-to none -hosts {hosts} -n {size}",
        # UCX carries messages between nodes; MPICH's own shared memory carries those within one.
        # All nodes have one boot id, so UCX might use cross-memory attach between them: allow TCP
        # only. MPICH yields by default. A switch that another program stops for half a minute
        # must not end connections: where UCX refuses to send, MPICH 5.0.2 writes to the request
        # that it has not made, and crashes.
        settings={"UCX_TLS": "tcp,self", "UCX_TCP_KEEPIDLE": "inf"},
        adapter="UCX_NET_DEVICES",
    ),
    "openmpi": Library(
        version="Open MPI",
        arguments="--allow-run-as-root --bind-to none --host {hosts} -n {size}",
        settings={
            "PRTE_MCA_plm_ssh_agent": "{agent}",
            "PRTE_MCA_prte_if_include": str(FIRST_RAIL),
            "OMPI_MCA_btl_tcp_if_include": str(NETWORK),
            "OMPI_MCA_pml": "ob1",
            "OMPI_MCA_btl": "^ofi",  # which looks for adapters for a second
            "OMPI_MCA_mpi_yield_when_idle": "1",
        },
        adapter="OMPI_MCA_btl_tcp_if_include",
    ),
    "impi": Library(
        version="Intel(R) MPI",
        # Its -hosts takes no number of ranks: with node0:3,node1:1 each node would get two.
        arguments=f"-localhost {HUB} -iface {BRIDGE} -machinefile {{machines}} -n {{size}}",
        settings={
            "I_MPI_HYDRA_BOOTSTRAP": "ssh",
            "I_MPI_HYDRA_BOOTSTRAP_EXEC": "{agent}",
            "I_MPI_FABRICS": "shm:ofi",
            "I_MPI_PIN": "0",
            "I_MPI_THREAD_YIELD": "2",
            "I_MPI_WAIT_MODE": "1",  # ranks sleep in waits: they outnumber the cores
            "FI_PROVIDER": "tcp",
        },
        adapter="FI_TCP_IFACE",
    ),
}


class Cluster(Network):
    """A network whose nodes run MPI programs."""

    def run(
        self,
        command: Sequence[str],
        *,
        ppn: int | Sequence[int] = 1,
        mpi: str | None = None,
        python: str | os.PathLike[str] | None = None,
        timeout: float = 300,
        env: Mapping[str, str] | None = None,
        bind: str = LOCAL_RANK,
        capture: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Run an MPI program on the nodes; its processes have ended when this returns.

        `ppn`: ranks per node, one number or one per node. `mpi`: a name in `LIBRARIES`, by default
        that of the `mpiexec` beside the interpreter. `python`: the interpreter that replaces a bare
        "python" in `command`, by default this one. `env`: variables of the launcher and the ranks,
        which override the library's settings. `bind`: the rails of the ranks, see `rails_of`, where
        nodes have several. `capture`: the result holds stdout and stderr.

        The status is that of mpiexec, which is the program's. Intel MPI's may be 255 if ranks of
        several nodes fail at once.

        Raises subprocess.TimeoutExpired if the program ran for `timeout` seconds and was killed,
        EmulationError if the request is wrong.
        """
        ranks = _ranks_per_node(ppn, len(self.nodes))
        command, mpiexec = _resolve(command, python)
        kind = mpi or detect(mpiexec)
        binding = self._binding(_library(kind), bind, max(ranks))
        arguments, settings = self._fill_in(_library(kind), ranks)
        assignments = [f"{k}={v}" for k, v in (settings | dict(env or {})).items()]
        launch = ["env", *assignments, str(mpiexec), *arguments]
        said = shlex.join([*launch, *binding])
        print(f"emulate: {self.links}, {kind}: {said}", file=sys.stderr, flush=True)
        # Launchers pass on different variables, so `env` sets them for each rank.
        return self._launch([*launch, "env", *assignments, *binding, *command], timeout, capture)

    def _binding(self, library: Library, bind: str, ppn: int) -> list[str]:
        """Return what comes before a rank's command to bind the rank to a rail, or nothing."""
        rails = rails_of(bind, ppn, self.links.rails)
        if self.links.rails == 1 or rails is None:
            return []
        adapters = ",".join(self.links.adapters[rail] for rail in rails)
        return ["sh", str(RAIL), library.adapter, adapters]

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
        self.check_switch()
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
            self.check_switch()
            raise subprocess.TimeoutExpired(list(command), timeout, out, err) from expired
        finally:
            self._end(process)
        return subprocess.CompletedProcess(list(command), process.returncode, out, err)

    def _end(self, launcher: subprocess.Popen[str]) -> None:
        """End the launcher, even before it is in its namespace, and all that it has started."""
        launcher.terminate()
        stop(self.spaces)  # not the switch
        launcher.wait(timeout=STOP_S)


def detect(mpiexec: Path) -> str:
    """Return the name of the library that an `mpiexec` belongs to, by its version.

    Raises EmulationError if it is not known.
    """
    text = host.run([str(mpiexec), "--version"])
    for kind, library in LIBRARIES.items():
        if library.version in text:
            return kind
    raise EmulationError(f"{mpiexec} belongs to none of {', '.join(LIBRARIES)}: {text[:80]!r}")


def _library(kind: str) -> Library:
    try:
        return LIBRARIES[kind]
    except KeyError:
        raise EmulationError(f"unknown MPI {kind!r}; known: {', '.join(LIBRARIES)}") from None


def _resolve(
    command: Sequence[str], python: str | os.PathLike[str] | None
) -> tuple[list[str], Path]:
    """Replace a bare "python" by the interpreter; return the command and the mpiexec beside it."""
    if not command:
        raise EmulationError("no command to run")
    first, *rest = command
    named = first if os.sep in first else sys.executable
    interpreter = Path(python or named).absolute()  # not resolved: a venv's python is a link
    mpiexec = interpreter.with_name("mpiexec")
    if not mpiexec.exists():
        raise EmulationError(f"no mpiexec beside {interpreter}; name an interpreter (--python)")
    return [str(interpreter) if first in ("python", "python3") else first, *rest], mpiexec


def _ranks_per_node(ppn: int | Sequence[int], nodes: int) -> tuple[int, ...]:
    ranks = (ppn,) * nodes if isinstance(ppn, int) else tuple(ppn)
    if len(ranks) != nodes or min(ranks) < 1:
        raise EmulationError(f"ppn {ranks}: a number from 1 up for each of {nodes} nodes expected")
    return ranks
