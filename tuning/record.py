"""The record in a file of choices: JSON with the name and the version of its format."""

from __future__ import annotations

import json
from typing import Any, NamedTuple


class Format(NamedTuple):
    """The name of a format, its version, what a file of it is, and what helps if it is damaged."""

    name: str
    version: int
    what: str
    remedy: str = ""
    reads: tuple[int, ...] = ()  # earlier versions, which are a part of this one

    def record(self, text: str | bytes) -> dict[str, Any]:
        """Return the record of a text; raises ValueError, whose text says what is wrong."""
        return self.checked(self.content(text))

    def content(self, text: str | bytes) -> Any:
        """Return what a text holds, of whatever format; raises ValueError."""
        try:
            return json.loads(text)
        except RecursionError:
            raise ValueError(f"not a {self.what}: nested too deep") from None
        except ValueError as error:
            told = f"; {self.remedy}" if self.remedy else ""
            raise ValueError(f"damaged, not JSON: {error}{told}") from None

    def checked(self, record: Any) -> dict[str, Any]:
        """Return the content of a text, if it is of this format and version; raises ValueError."""
        if not isinstance(record, dict) or record.get("format") != self.name:
            raise ValueError(f"not a {self.what}: its format is not {self.name}")
        found = record.get("version")
        if found != self.version and found not in self.reads:
            told = f"; {self.remedy} with this han" if self.remedy else ""
            raise ValueError(f"version {found!r}, this han reads version {self.version}{told}")
        return record
