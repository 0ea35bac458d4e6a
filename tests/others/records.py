"""What each rank writes: lines of JSON."""

import json
import traceback
import zlib

KEPT = 1500  # characters of an error's stack
REVOKED = ("PeerError", "RevokedError")  # later calls on the communicator would fail too


class Records:
    """A file of records, which holds each of them at once: a rank may die at any time."""

    def __init__(self, lines):
        self._lines = lines
        self._left = False

    def put(self, **record):
        """Write a record."""
        self._lines.write(json.dumps(record) + "\n")
        self._lines.flush()

    def unusable(self, err) -> bool:
        """Return whether the ranks must start anew after an error, to try the tests behind it."""
        self._left |= err[0].__name__ in REVOKED
        return self._left

    def end(self) -> None:
        """Record that this rank ends, and whether it has tried all tests."""
        self.put(**{"left" if self._left else "done": True})


def failure(err, parameters: dict) -> dict:
    """Return what a record says of an exception."""
    return {
        "parameters": {name: str(value) for name, value in parameters.items()},
        "error": f"{err[0].__name__}: {err[1]}"[:300],
        "text": "".join(traceback.format_exception(*err))[-KEPT:],
    }


def wanted(spec: dict, name: str) -> bool:
    """Return whether a test is to run; all ranks answer alike."""
    if spec["only"]:
        return name in spec["only"] and name not in spec["skip"]
    parts, n = spec["share"]
    return zlib.crc32(name.encode()) % n in parts and name not in spec["skip"]
