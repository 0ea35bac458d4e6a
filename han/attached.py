"""The State of a communicator, kept in an attribute of MPI's.

A communicator that is not used yet has what it inherits from its parent in its place.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from mpi4py import MPI

from han.common.errors import ConfigError
from han.common.uncaught import print_once
from han.config.environment import warn_of_unknown
from han.ranks.discover import try_to_load
from han.runtime.inherited import Inherited
from han.runtime.state import State
from han.runtime.tuned import tell_problem

if TYPE_CHECKING:
    from han.config.config import Config

PERMANENT = (MPI.COMM_WORLD, MPI.COMM_SELF)  # MPI does not free them
_keyval: list[int] = []  # MPI's key of the attribute that holds a State; made at first use


def _key() -> int:
    if not _keyval:
        _keyval.append(MPI.Comm.Create_keyval(delete_fn=_delete))
    return _keyval[0]


def _delete(comm: MPI.Comm, keyval: int, what: State | Inherited) -> None:
    if isinstance(what, State) and not MPI.Is_finalized():
        what.close(free=comm not in PERMANENT)


def kept(comm: MPI.Comm) -> State | Inherited | None:
    """Return the State of a communicator, or what it inherits, or None; not collective."""
    return comm.Get_attr(_key())  # type: ignore[return-value]


def keep(comm: MPI.Comm, what: State | Inherited) -> None:
    """Let other han.Comm of the same communicator find its State or what it inherits."""
    comm.Set_attr(_key(), what)


def drop(comm: MPI.Comm) -> None:
    """Close the State of a communicator if it is not closed; forget it."""
    comm.Delete_attr(_key())


def attach(comm: MPI.Intracomm, config: Any) -> State:
    """Return the communicator's State; make it if there is none (collective)."""
    found = kept(comm)
    if found is not None:
        _expect_same(found.config, config)
        config = found
    if isinstance(config, State):
        return config
    if isinstance(config, Inherited):
        return _counted(comm, State(comm, config.config, config))
    try:
        state = _counted(comm, _agreed(comm, config))
    finally:
        if not comm.Get_rank():
            warn_of_unknown(os.environ)  # if it raises, the ranks are in step all the same
    tell_problem(state.tuned, comm.Get_rank())
    return state


def _counted(comm: MPI.Intracomm, state: State) -> State:
    """Attach a State to its communicator, and count its calls if statistics are wanted."""
    keep(comm, state)
    if state.statistics:
        from han.statistics import count_calls

        count_calls(comm, state.statistics)
    return state


def _agreed(comm: MPI.Intracomm, config: Any) -> State:
    """Make a State; rank 0 prints a ConfigError, which all ranks raise."""
    try:
        return State(comm, config)
    except ConfigError as error:
        print_once(error, comm.Get_rank())
        raise


def _expect_same(own: Config, config: Any) -> None:
    """Raise ConfigError if a communicator's han.Comm has another configuration than `config`."""
    if config is None or isinstance(config, Inherited):
        return
    loaded, problem = try_to_load(config)
    if problem is not None:
        raise problem
    if loaded.fingerprint() != own.fingerprint():
        raise ConfigError(
            "this communicator already has a han.Comm with another configuration; "
            "duplicate it first: han.Comm(comm.Dup(), config=...)"
        )
