"""``han.install``: a program's ``MPI.COMM_WORLD`` and ``MPI.COMM_SELF`` become han.Comm."""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable, Iterator
from types import ModuleType, TracebackType
from typing import Any

from mpi4py import MPI

from han.comm import Comm
from han.common.errors import HanError
from han.message.unlocked import set_handle

NAMES = ("COMM_WORLD", "COMM_SELF")
OWN = ("mpi4py", "han")  # packages whose modules may keep MPI's communicators
MOST_NAMED = 8  # modules that a warning names

_plain: dict[str, MPI.Intracomm] = {}  # what was replaced, by name


class Installed:
    """What ``han.install`` returns. As a context manager, it uninstalls at the end of the block."""

    def __repr__(self) -> str:
        return f"<han.install: {'MPI.COMM_WORLD is ' + repr(MPI.COMM_WORLD) if _plain else 'over'}>"

    def __enter__(self) -> Installed:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        uninstall()


def install(config: Any = None) -> Installed:
    """Replace ``MPI.COMM_WORLD`` and ``MPI.COMM_SELF`` by a han.Comm each; collective.

    All ranks of the job call this, before they import modules that keep ``MPI.COMM_WORLD``. A
    warning names the modules that have kept it already. The second call does nothing. `config` is
    that of :class:`han.Comm`. ``with han.install(): ...`` ends with :func:`uninstall`.

    Raises HanError if MPI is not initialized or is finalized, otherwise as han.Comm does.
    """
    _expect_running()
    kept = [] if _plain else [*_keepers()]
    world = Comm(MPI.Intracomm(MPI.COMM_WORLD), config)
    if not _plain:
        _replace(config, world)
        if kept and not world.rank:
            warnings.warn(_told(kept), UserWarning, stacklevel=2)
    return Installed()


def uninstall() -> None:
    """Put MPI's own ``COMM_WORLD`` and ``COMM_SELF`` back; not collective.

    A han.Comm that a program has kept still works.
    """
    for name, comm in _plain.items():
        setattr(MPI, name, comm)
    _plain.clear()


def install_at_import() -> None:
    """Install right after mpi4py.MPI is imported, or, if the program does it, MPI initialized."""
    if _plain:
        return
    if MPI.Is_initialized():
        install()
        return
    _replace(None)
    for name in ("Init", "Init_thread"):
        setattr(MPI, name, _then_install(getattr(MPI, name)))


def _then_install(init: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(init)
    def call(*args: Any, **more: Any) -> Any:
        level = init(*args, **more)
        install()
        return level

    return call


def _replace(config: Any, world: Comm | None = None) -> None:
    """Replace both communicators. A han.Comm that is not made yet is made in its first call."""
    _plain.update((name, getattr(MPI, name)) for name in NAMES)
    made = {"COMM_WORLD": world} if world is not None else {}
    for name in NAMES:
        comm = made.get(name) or _at_first_use(_plain[name], config)
        comm._constant = True
        setattr(MPI, name, comm)


def _at_first_use(comm: MPI.Intracomm, config: Any) -> Comm:
    """Return a han.Comm that gets what han needs in its first call.

    The handle is copied as bytes, because mpi4py asks MPI about a communicator that it copies, and
    MPI may not be initialized yet.
    """
    later = MPI.Intracomm.__new__(Comm)
    set_handle(later, comm)
    later._state, later._config = None, config
    return later


def _expect_running() -> None:
    if MPI.Is_finalized():
        raise HanError("han.install: MPI is finalized, so there are no communicators any more")
    if not MPI.Is_initialized():
        raise HanError(
            "han.install: MPI is not initialized (mpi4py.rc.initialize is False): "
            "call MPI.Init() or MPI.Init_thread() first"
        )


# ---- modules that have kept a communicator ------------------------------------------------------


def _keepers() -> Iterator[str]:
    """Yield ``module.name`` of each global of a module that is a communicator to replace."""
    wanted = [getattr(MPI, name) for name in NAMES]
    for name, module in list(sys.modules.items()):
        if isinstance(module, ModuleType) and name.partition(".")[0] not in OWN:
            for key, value in list(vars(module).items()):
                if any(value is comm for comm in wanted):
                    yield f"{name}.{key}"


def _told(kept: list[str]) -> str:
    named = ", ".join(kept[:MOST_NAMED]) + (", ..." if len(kept) > MOST_NAMED else "")
    return (
        f"han.install: {named} had MPI's own communicator before; their calls stay MPI's. "
        "Call han.install() before these modules are imported, or start the program with 'han run'"
    )
