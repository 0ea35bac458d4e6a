"""``HAN_WISDOM``: programs are kept in files, and read instead of planned in later runs.

A file is found by the hash of all that its program depends on, holds that in full, and is
compared: what is read is what planning would give, bit for bit. So a rank may read while another
plans. Files of other users are refused, and what is in a file is checked before it runs.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import re
import secrets
import stat
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from han import _native
from han.config.rc import rc
from han.model.collectives import COLLECTIVES
from han.model.program import Program
from han.tasks.signature import Signature
from han.tuning.planner import Planner

VARIABLE = "HAN_WISDOM"
MAGIC = b"han-wisdom 1 "
DIGEST = 32  # bytes of a hash, written as twice as many digits
SUFFIX = ".plan"
NAME = re.compile(  # of a file, or its draft: nobody else's is listed, nor removed
    rf"({'|'.join(COLLECTIVES)})-[0-9a-f]{{32}}\{SUFFIX}"
    rf"|\.({'|'.join(COLLECTIVES)})-[0-9a-f]{{32}}\{SUFFIX}\.[0-9]+\.[0-9a-f]{{8}}"
)
MOST = 256 << 20  # bytes in a folder; beyond, what was used longest ago goes
OFTEN = 64  # files written between two looks at how much there is
STALE = 3600.0  # seconds after which a draft is one that a killed process has left
USED = 86400.0  # seconds between two notes that a file is in use


class Unusable(ValueError):
    """A file of wisdom cannot be used: says why."""


def wisdom_folder(environ: Mapping[str, str] = os.environ) -> tuple[str, str | None]:
    """Return the folder that ``han.rc.wisdom`` or HAN_WISDOM names, and what is wrong with it."""
    said_by, text = VARIABLE, environ.get(VARIABLE, "")
    if rc.wisdom is not None:
        said_by, text = "han.rc.wisdom", str(rc.wisdom)
    if not text:
        return "", None
    try:
        text = os.path.abspath(text)  # the program may go elsewhere later
        os.makedirs(text, mode=0o700, exist_ok=True)
        reason = _foreign(os.stat(text), "the folder")
    except (OSError, ValueError) as error:
        reason = f"cannot be made: {getattr(error, 'strerror', None) or error}"
    if reason is None and not os.access(text, os.W_OK | os.X_OK):
        reason = "this process may not write there"
    return text, reason and f"{said_by} = {text!r}: {reason}"


def _foreign(about: os.stat_result, what: str) -> str | None:
    """Say why others could have written what is there; None if only this user can."""
    if about.st_uid != os.geteuid():
        return f"{what} belongs to user {about.st_uid}, not to {os.geteuid()} who runs this"
    if about.st_mode & 0o022:
        return f"{what} can be written by others (chmod go-w)"
    return None


@functools.cache
def sources() -> str:
    """Return a hash of han's own files, the executor's too: others plan differently."""
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
    """Return what all programs of a rank of a communicator depend on."""
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


def complete(config: Any) -> bool:
    """Whether the hash of han's own files covers all submodules that the rules name."""
    from han.submodules.registry import SUBMODULES

    uses = [use for rule in config.rules for use in rule.use.levels.values()]
    return all(use.submodule in SUBMODULES for use in uses)


@dataclass(frozen=True)
class Call:
    """One program: the signature of its call, and how it is run."""

    signature: Signature
    memory: int
    blocking: bool
    rival: bool = False  # the other way, that calls try


class PlanStore:
    """The stored programs of one rank of a communicator; `base` is what all of them depend on."""

    def __init__(self, folder: str, base: Mapping[str, Any], most: int = MOST) -> None:
        self.folder, self.most = Path(folder), most
        self._base = json.dumps(base, sort_keys=True)[:-1]
        self._written = 0
        self._warned = False

    def key(self, call: Call) -> bytes:
        """Return all that a program depends on, as one line."""
        return f'{self._base}, "call": {json.dumps(asdict(call), default=int)}}}\n'.encode()

    def path(self, call: Call) -> Path:
        """Return where a program is, if it is stored."""
        digest = hashlib.blake2b(self.key(call), digest_size=16).hexdigest()
        return self.folder / f"{call.signature.collective}-{digest}{SUFFIX}"

    def read(self, call: Call, check: Callable[[Program], None]) -> Program | None:
        """Return the stored program; None if there is none, or none that `check` lets pass."""
        from han.tasks.files import compact

        path = self.path(call)
        try:
            data = read_file(path)
            if data is None:
                return None
            program = compact.load(after_key(data, self.key(call)))
            check(program)
        except (ValueError, OSError) as error:
            self._warn(f"{path}: not used, but planned anew and replaced: {error}")
            return None
        return program

    def write(self, call: Call, program: Program) -> None:
        """Store a program; a folder that cannot be written to is told once."""
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
        """Warn once: the next file would be the same story."""
        if not self._warned:
            warnings.warn(text, UserWarning, stacklevel=2)
        self._warned = True


def _digest(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=DIGEST).hexdigest().encode()


# ---- files --------------------------------------------------------------------------------------


def read_file(path: Path) -> bytes | None:
    """Return what is behind a file's hash; None if there is no file.

    Raises Unusable when it is not this user's own, not whole, or something else; OSError.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    with open(fd, "rb") as file:
        about = os.fstat(fd)
        if not stat.S_ISREG(about.st_mode):
            raise Unusable("it is no file")
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
    """Return what follows the key; raises Unusable if it is another one."""
    if not body.startswith(key):
        raise Unusable("it holds the plan of something else")
    return body[len(key) :]


def write_file(path: Path, data: bytes) -> None:
    """Write a file: it is there as a whole, or not at all, whoever writes it too."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
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
    """A file in a folder of wisdom."""

    path: Path
    nbytes: int
    used: float  # seconds since 1970, to about a day

    @property
    def draft(self) -> bool:
        """Whether it is still being written, or has been left so."""
        return self.path.name.startswith(".")


def stored(folder: Path) -> Iterator[Stored]:
    """List the files of wisdom in a folder, drafts too, and nothing else that is there."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if NAME.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                with contextlib.suppress(FileNotFoundError):
                    about = entry.stat(follow_symlinks=False)
                    yield Stored(Path(entry.path), about.st_size, about.st_mtime)


def prune(folder: Path, most: int) -> None:
    """Remove what was used longest ago until at most `most` bytes are there, and old drafts."""
    files = sorted(stored(folder), key=lambda one: -one.used)
    room = most
    for one in files:
        if one.draft and time.time() - one.used < STALE:
            continue
        room -= one.nbytes
        if one.draft or room < 0:
            one.path.unlink(missing_ok=True)


def about(path: Path) -> dict[str, Any]:
    """Return a stored program's key, as far as it can be read: ``{"unusable": why}`` if not."""
    try:
        body = read_file(path)
        line = (body or b"").partition(b"\n")[0]
        found = json.loads(line)
    except (ValueError, OSError) as error:
        return {"unusable": str(error)}
    return found if isinstance(found, dict) else {"unusable": "it is no plan"}
