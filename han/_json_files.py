"""What files of JSON that han writes have in common: a format and a version."""

from __future__ import annotations

import json
from dataclasses import dataclass

from han.errors import HanError


@dataclass(frozen=True)
class Format:
    """`what` the file holds, how a file of another version is to be made `again`."""

    name: str
    version: int
    what: str
    again: str
    error: type[HanError]

    def check(self, text: str, place: str) -> None:
        """Raise the error unless `text` is of this format and version; `place` says whose it is."""
        try:
            record = json.loads(text)
        except RecursionError:
            raise self.error(f"{place}: no {self.what}: nested too deep") from None
        except ValueError as error:
            raise self.error(f"{place}: no JSON: {error}") from None
        if not isinstance(record, dict) or record.get("format") != self.name:
            raise self.error(f"{place}: not a {self.what}: it has no format: {self.name}")
        if record.get("version") != self.version:
            raise self.error(
                f"{place}: version {record.get('version')!r}, this han reads version "
                f"{self.version}; {self.again} it again with this han"
            )
