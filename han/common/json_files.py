"""JSON files that han writes: each names its format and version."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from han.common.errors import HanError

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True)
class Format:
    """A format of JSON files, and the words and the error for a file that is not of it.

    `what` names the content, such as ``trace``; `again` is the verb for making it, ``record``.
    """

    name: str
    version: int
    what: str
    again: str
    error: type[HanError]

    def read(self, path: Path) -> str:
        """Return a file's text; raise the error if it cannot be read."""
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise self.error(f"{path}: cannot be read: {reason}") from None

    def validate(self, model: type[M], text: str, place: str) -> M:
        """Return `text` as a `model`; raise the error with the first wrong key."""
        self.check(text, place)
        try:
            return model.model_validate_json(text, strict=True)
        except ValidationError as error:
            first = error.errors()[0]
            key = ".".join(map(str, first["loc"])) or "the file"
            raise self.error(f"{place}: {key}: {first['msg']}") from None

    def check(self, text: str, place: str) -> None:
        """Raise the error unless `text` is of this format and version; `place` names the file."""
        try:
            record = json.loads(text)
        except RecursionError:
            raise self.error(f"{place}: not a {self.what}: nested too deep") from None
        except ValueError as error:
            raise self.error(f"{place}: not JSON: {error}") from None
        if not isinstance(record, dict) or record.get("format") != self.name:
            raise self.error(f"{place}: not a {self.what}: its format is not {self.name}")
        if record.get("version") != self.version:
            raise self.error(
                f"{place}: version {record.get('version')!r}, this han reads version "
                f"{self.version}; {self.again} it again with this han"
            )
