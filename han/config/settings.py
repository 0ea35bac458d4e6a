"""Override values of a configuration by settings of the environment and of ``han.rc``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from han.config.errors import KeyPath
from han.config.rc import VARIABLES, rc
from han.config.source import Document

_TRUTHS = {"1": True, "true": True, "yes": True, "on": True}
_TRUTHS |= {"0": False, "false": False, "no": False, "off": False}
TRUTHS = ", ".join(_TRUTHS)


def _number(text: str) -> int | float | str:
    try:
        number = float(text)
    except ValueError:
        return text
    return int(number) if number.is_integer() else number


def as_truth(text: str) -> bool | str:
    """Return the truth that a text says; the text itself if it says none."""
    return _TRUTHS.get(text.strip().lower(), text)


class Setting(NamedTuple):
    """One setting: the key that it sets, the parser of its text, the values that it takes."""

    path: KeyPath
    read: Callable[[str], Any]
    takes: str


_SETTINGS = {
    "timeout": Setting(("wait", "timeout"), _number, "seconds; 0 = never"),
    "check": Setting(("check",), as_truth, TRUTHS),
    "trials": Setting(("trials",), as_truth, TRUTHS),
    "tuned": Setting(("tuned",), str.strip, "a file, auto or off"),
    "reproducible": Setting(("reproducible",), as_truth, TRUTHS),
    "wait": Setting(("wait", "policy"), str.strip, "auto, spin, yield, sleep, futex"),
    "progress": Setting(("wait", "progress"), str.strip, "auto, thread, off"),
    "spin": Setting(("wait", "spin"), _number, "polls, 0 or more"),
    "memory": Setting(("memory",), str.strip, "a size such as 16MiB"),
    "plans": Setting(("plans",), _number, "a number of plans, 1 or more"),
}


def with_settings(document: Document, environ: Mapping[str, str]) -> Document:
    """Return ``document`` with the settings of ``environ`` and, before these, of ``han.rc``.

    If the program gave the document as a mapping, values in the mapping come before both. The
    values are checked later, with the rest of the configuration.
    """
    if not isinstance(document.data, Mapping):
        return document
    data: Mapping[Any, Any] = document.data
    overrides = dict(document.origin.overrides)
    for name, place, value in _said(environ):
        setting = _SETTINGS[name]
        if document.explicit and _says(document.data, setting.path):
            continue
        data = _put(data, setting.path, setting.read(value) if isinstance(value, str) else value)
        overrides[setting.path] = f"{place} (takes {setting.takes})"
    origin = replace(document.origin, overrides=overrides)
    return replace(document, data=data, origin=origin)


def _said(environ: Mapping[str, str]) -> Iterator[tuple[str, str, Any]]:
    """Yield name, origin and value of each setting that has a value; the last value wins."""
    for name in _SETTINGS:
        if environ.get(VARIABLES[name]):
            yield name, f"environment variable {VARIABLES[name]}", environ[VARIABLES[name]]
        if getattr(rc, name) is not None:
            yield name, f"han.rc.{name}", getattr(rc, name)


def _says(data: object, path: KeyPath) -> bool:
    """Whether ``data`` sets ``path``; a value on the path that is not a mapping sets it too."""
    if not path or not isinstance(data, Mapping):
        return True
    return path[0] in data and _says(data[path[0]], path[1:])


def _put(data: Mapping[Any, Any], path: KeyPath, value: object) -> dict[Any, Any]:
    """Return ``data`` with ``value`` at ``path``, unless a value on it is not a mapping."""
    first, rest = path[0], path[1:]
    inner = data.get(first, {})
    if not rest:
        return {**data, first: value}
    return {**data, first: _put(inner, rest, value)} if isinstance(inner, Mapping) else dict(data)
