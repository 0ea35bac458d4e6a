"""Stored plans: with ``HAN_WISDOM``, programs are read from files instead of being planned.

The name of a file holds a hash of everything that the program depends on. The file repeats it in
full, and the reader compares it. So a stored program equals a planned one bit for bit, and it does
not matter whether one rank reads while another one plans. Files that others could have written are
refused. A program is checked before it runs.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import re
import stat
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from han import _native
from han.config.rc import rc
from han.model.collectives import only_own
from han.model.program import Program
from han.tasks.signature import Signature
from han.tuning.planner import Planner

VARIABLE = "HAN_WISDOM"
MAGIC = b"han-wisdom 1 "
DIGEST = 32  # bytes of a hash
SUFFIX = ".plan"
NAME = (  # names of files and drafts; other files are neither listed nor removed
    rf"[a-z_]+-[0-9a-f]{{32}}\{SUFFIX}|\.[a-z_]+-[0-9a-f]{{32}}\{SUFFIX}\.[0-9]+\.[0-9a-f]{{8}}"
)
MOST = 256 << 20  # bytes in a folder; beyond, the least recently used files are removed
OFTEN = 64  # files written between two checks of the folder's size
STALE = 3600.0  # seconds; an older draft was left by a killed process
USED = 86400.0  # seconds between two updates of a file's time of use


class Unusable(ValueError):
    """A stored plan cannot be used; the message says why."""


def wisdom_folder(environ: Mapping[str, str] = os.environ) -> tuple[str, str | None]:
    """Return the folder of stored plans, and what is wrong with it or None.

    ``han.rc.wisdom`` names the folder, else HAN_WISDOM; "" if neither is set.
    """
    source, text = VARIABLE, environ.get(VARIABLE, "")
    if rc.wisdom is not None:
        source, text = "han.rc.wisdom", str(rc.wisdom)
    if not text:
        return "", None
    try:
        text = os.path.abspath(text)  # the program may change its directory later
        os.makedirs(text, mode=0o700, exist_ok=True)
        reason = _foreign(os.stat(text), "the folder")
    except (OSError, ValueError) as error:
        reason = f"cannot be made: {getattr(error, 'strerror', None) or error}"
    if reason is None and not os.access(text, os.W_OK | os.X_OK):
        reason = "this process may not write there"
    return text, reason and f"{source} = {text!r}: {reason}"


def _foreign(about: os.stat_result, what: str) -> str | None:
    """Return why other users could have written a file; None if only this user could."""
    if about.st_uid != os.geteuid():
        return f"{what} belongs to user {about.st_uid}, not to user {os.geteuid()} of this process"
    if about.st_mode & 0o022:
        return f"{what} can be written by others (chmod go-w)"
    return None


@functools.cache
def sources() -> str:
    """Return a hash of han's own files, including the compiled module."""
    digest = hashlib.blake2b(digest_size=DIGEST)
    root = Path(__file__).parents[1]
    for folder, folders, names in os.walk(root, followlinks=True):
        folders.sort()
        for name in sorted(names):
            if name.endswith(".py"):
                path = Path(folder, name)
                digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    digest.update(Path(_native.__file__).read_bytes())
    return digest.hexdigest()


def key_of(planner: Planner) -> dict[str, Any]:
    """Return what all programs of a communicator's rank depend on."""
    from mpi4py import MPI

    from han.common.version import __version__

    return {
        "han": __version__,
        "sources": sources(),
        "library": MPI.Get_library_version().strip("\0 \n"),
        "isa": _native.isa(),
        "bytes": sys.byteorder,
        **planner.key(),
    }


def complete(config: Any, more: Iterable[str] = ()) -> bool:
    """Return whether the hash of han's own files covers all that decides about programs.

    These are the table of collectives, the submodules that rules name, those in `more`, and han's
    own, which built-in choices name.
    """
    from han.submodules.registry import ROWS, is_own

    named = {use.submodule for rule in config.rules for use in rule.use.levels.values()}
    return only_own() and all(map(is_own, {*named, *more, *ROWS}))


@dataclass(frozen=True)
class Call:
    """What identifies a program of a communicator: signature, bytes for cells, and kind of plan."""

    signature: Signature
    memory: int
    blocking: bool
    rival: bool = False  # the program of the call's rival


class PlanStore:
    """The stored programs of one rank of a communicator; `base` is what all of them depend on."""

    def __init__(self, folder: str, base: Mapping[str, Any], most: int = MOST) -> None:
        self.folder, self.most = Path(folder), most
        self._base = json.dumps(base, sort_keys=True)[:-1]
        self._written = 0
        self._warned = False

    def key(self, call: Call) -> bytes:
        """Return everything that a program depends on, as one line of JSON."""
        return f'{self._base}, "call": {json.dumps(asdict(call), default=int)}}}\n'.encode()

    def path(self, call: Call) -> Path:
        """Return the path of a program's file, which need not exist."""
        digest = hashlib.blake2b(self.key(call), digest_size=16).hexdigest()
        return self.folder / f"{call.signature.collective}-{digest}{SUFFIX}"

    def read(self, call: Call, check: Callable[[Program], None]) -> Program | None:
        """Return the stored program of a call; None if there is none or `check` raises ValueError.

        Warns once about files that cannot be used.
        """
        from han.tasks.files import compact

        path = self.path(call)
        try:
            data = read_file(path)
            if data is None:
                return None
            program = compact.load(after_key(data, self.key(call)))
            check(program)
        except (ValueError, OSError) as error:
            self._warn(f"{path} is not used, but planned anew and replaced: {error}")
            return None
        return program

    def write(self, call: Call, program: Program) -> None:
        """Store a program; warns once if the folder cannot be written to."""
        from han.tasks.files import compact

        body = self.key(call) + compact.dump(program)
        try:
            write_file(self.path(call), MAGIC + _digest(body) + b"\n" + body)
            if self._written % OFTEN == 0:
                prune(self.folder, self.most)
            self._written += 1
        except OSError as error:
            self._warn(f"{VARIABLE}: plans cannot be stored in {self.folder}: {error.strerror}")

    def _warn(self, text: str) -> None:
        """Warn once: further files usually have the same problem."""
        if not self._warned:
            warnings.warn(text, UserWarning, stacklevel=2)
        self._warned = True


def _digest(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=DIGEST).hexdigest().encode()


# ---- files --------------------------------------------------------------------------------------


def read_file(path: Path) -> bytes | None:
    """Return the body of a file, without its hash; None if there is no file.

    Raises Unusable if the file is not this user's own, is damaged, or is no stored plan; OSError
    if it cannot be read.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    with open(fd, "rb") as file:
        about = os.fstat(fd)
        if not stat.S_ISREG(about.st_mode):
            raise Unusable("it is not a regular file")
        reason = _foreign(about, "it")
        if reason is not None:
            raise Unusable(reason)
        data = file.read()
        if time.time() - about.st_mtime > USED:
            with contextlib.suppress(OSError):
                os.utime(fd)
    line, _, body = data.partition(b"\n")
    if line != MAGIC + _digest(body):
        raise Unusable("it is damaged, or no plan of this version")
    return body


def after_key(body: bytes, key: bytes) -> bytes:
    """Return what follows the key; raises Unusable if the file has another key."""
    if not body.startswith(key):
        raise Unusable("it holds a plan for something else")
    return body[len(key) :]


def write_file(path: Path, data: bytes) -> None:
    """Write a file atomically: it appears as a whole or not at all, also with several writers."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(fd, "wb") as file:
            file.write(data)
        os.replace(draft, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(draft)
        raise


@dataclass(frozen=True)
class Stored:
    """A file of a folder of stored plans."""

    path: Path
    nbytes: int
    used: float  # seconds since 1970, up to a day too early

    @property
    def draft(self) -> bool:
        """Whether it is a draft: incomplete, or left by a killed process."""
        return self.path.name.startswith(".")


def stored(folder: Path) -> Iterator[Stored]:
    """Yield the stored plans and drafts in a folder; other files are ignored."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if re.fullmatch(NAME, entry.name) and entry.is_file(follow_symlinks=False):
                with contextlib.suppress(FileNotFoundError):
                    about = entry.stat(follow_symlinks=False)
                    yield Stored(Path(entry.path), about.st_size, about.st_mtime)


def prune(folder: Path, most: int) -> None:
    """Remove least recently used files until at most `most` bytes are left, and stale drafts."""
    files = sorted(stored(folder), key=lambda one: -one.used)
    room = most
    for one in files:
        if one.draft and time.time() - one.used < STALE:
            continue
        room -= one.nbytes
        if one.draft or room < 0:
            one.path.unlink(missing_ok=True)


def about(path: Path) -> dict[str, Any]:
    """Return the key of a stored program as a dictionary, or ``{"unusable": why}``."""
    try:
        body = read_file(path)
        line = (body or b"").partition(b"\n")[0]
        found = json.loads(line)
    except (ValueError, OSError) as error:
        return {"unusable": str(error)}
    return found if isinstance(found, dict) else {"unusable": "it is no stored plan"}
