"""JSON files that han writes: each names its format and version."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from han.common.errors import HanError

if TYPE_CHECKING:
    from pydantic import BaseModel

M = TypeVar("M", bound="BaseModel")


@dataclass(frozen=True)
class Format:
    """A format of JSON files, and the words and the error for a file that is not of it.

    `what` names the content, such as ``trace``; `again` is the verb for making it, ``record``. The
    versions `reads` are a part of this one.
    """

    name: str
    version: int
    what: str
    again: str
    error: type[HanError]
    reads: tuple[int, ...] = ()

    def read(self, path: Path) -> str:
        """Return a file's text; raise the error if it cannot be read."""
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise self.error(f"{path}: cannot be read: {reason}") from None

    def validate(self, model: type[M], text: str, place: str) -> M:
        """Return `text` as a `model`; raise the error with the first wrong key."""
        from pydantic import ValidationError

        self.record(text, place)
        try:
            return model.model_validate_json(text, strict=True)
        except ValidationError as error:
            first = error.errors()[0]
            key = ".".join(map(str, first["loc"])) or "the file"
            raise self.error(f"{place}: {key}: {first['msg']}") from None

    def record(self, text: str | bytes, place: str) -> dict[str, Any]:
        """Return the content of `text`; raise the error unless it is of this format and version.

        `place` names the file.
        """
        return self.checked(self.content(text, place), place)

    def content(self, text: str | bytes, place: str) -> Any:
        """Return what `text` holds, of whatever format; raise the error if it is not JSON."""
        try:
            return json.loads(text)
        except RecursionError:
            raise self.error(f"{place}: not a {self.what}: nested too deep") from None
        except ValueError as error:
            raise self.error(
                f"{place}: damaged, not JSON: {error}; {self.again} it again"
            ) from None

    def checked(self, record: Any, place: str) -> dict[str, Any]:
        """Return the content of a file; raise the error if it is of another format or version."""
        if not isinstance(record, dict) or record.get("format") != self.name:
            raise self.error(f"{place}: not a {self.what}: its format is not {self.name}")
        if record.get("version") not in (self.version, *self.reads):
            raise self.error(
                f"{place}: version {record.get('version')!r}, this han reads version "
                f"{self.version}; {self.again} it again with this han"
            )
        return record
