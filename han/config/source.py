"""Find and read configurations: YAML files, ready ones by name, mappings."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from han.common.errors import ConfigError
from han.common.suggest import unknown
from han.config.errors import KeyPath, Origin, Problem, config_error

READY = Path(__file__).parents[1] / "configs"


@dataclass(frozen=True)
class Document:
    """What was read, before any check, and where it was written."""

    data: Any
    origin: Origin
    explicit: bool = False


def ready_configs() -> dict[str, Path]:
    """Return the configurations that come with han, by name."""
    return {path.stem: path for path in sorted(READY.glob("*.yaml"))}


def read_document(
    source: object, said_by: str = "config", ready: Mapping[str, Path] | None = None
) -> Document:
    """Return what ``source`` says: a mapping, a YAML file, the name of a ready one.

    ``said_by`` names who gave the source, for the error of a source that does not exist; ``ready``
    are the files that have names, han's configurations unless others are given.
    """
    if source is None:
        return Document({}, Origin("default configuration"))
    if isinstance(source, Mapping):
        return Document(dict(source), Origin(said_by), explicit=True)
    if isinstance(source, (str, os.PathLike)):
        return _read_yaml(_find(source, said_by, ready_configs() if ready is None else ready))
    raise ConfigError(
        f"{said_by} = {source!r}: expected a file, the name of a ready configuration, "
        f"a mapping or a han.config.Config, not {type(source).__name__}"
    )


def _find(source: str | os.PathLike[str], said_by: str, ready: Mapping[str, Path]) -> Path:
    """Return the file of ``source``: a ready one's bare name comes before a path."""
    if isinstance(source, str) and source in ready:
        return ready[source]
    path = Path(source).expanduser()
    if path.exists():
        return path
    kind = "machine" if said_by == "machine" else "configuration"
    hint = unknown(f"ready {kind}", source, ready)
    raise ConfigError(f"{said_by} = {os.fspath(source)!r}: no such file; {hint}")


def _read_yaml(path: Path) -> Document:
    try:
        return _parse(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not UTF-8 text: {error}") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{path}:{mark.line + 1}" if mark else str(path)
        what = ", ".join(part for part in (error.context, error.problem) if part)
        raise ConfigError(f"{place}: is not YAML: {what}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: is not YAML: {error}") from error


def _parse(text: str, name: str) -> Document:
    loader = yaml.SafeLoader(text)
    node = loader.get_single_node()
    if node is None:
        return Document({}, Origin(name))
    written: dict[KeyPath, list[int]] = {}
    for path, line in _written(node, (), set()):
        written.setdefault(path, []).append(line)
    origin = Origin(name, {path: lines[0] for path, lines in written.items()})
    _reject_repeats(written, origin)
    return Document(_construct(loader, node, name), origin)


def _construct(loader: yaml.SafeLoader, node: yaml.Node, name: str) -> Any:
    try:
        return loader.construct_document(node)
    except ValueError as error:  # of dates that do not exist, which PyYAML lets through
        raise ConfigError(f"{name}: a value cannot be read: {error}") from error


def _written(node: yaml.Node, path: KeyPath, seen: set[int]) -> Iterator[tuple[KeyPath, int]]:
    """Yield each key path under ``node`` with its line; an alias counts where it is defined."""
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield (*path, str(key.value)), key.start_mark.line + 1
            yield from _written(value, (*path, str(key.value)), seen)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield (*path, index), item.start_mark.line + 1
            yield from _written(item, (*path, index), seen)


def _reject_repeats(written: Mapping[KeyPath, list[int]], origin: Origin) -> None:
    """Raise if a key is written twice in one mapping; YAML would silently take the last."""
    repeated = {path: lines for path, lines in written.items() if len(lines) > 1}
    problems = [
        Problem(path, f"is written more than once, in lines {', '.join(map(str, lines))}")
        for path, lines in repeated.items()
        if path[:-1] not in repeated
    ]
    if problems:
        raise config_error(problems, origin)
