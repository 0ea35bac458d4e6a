"""YAML files: their data, and the line of each key. Imported if there is a file to read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from han.common.errors import ConfigError
from han.config.errors import KeyPath, Origin, Problem, config_error


def read_yaml(path: Path) -> tuple[Any, Origin]:
    """Return the data of a file, and its origin; raises ConfigError."""
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


def _parse(text: str, name: str) -> tuple[Any, Origin]:
    loader = yaml.SafeLoader(text)
    node = loader.get_single_node()
    if node is None:
        return {}, Origin(name)
    written: dict[KeyPath, list[int]] = {}
    for path, line in _written(node, (), set()):
        written.setdefault(path, []).append(line)
    origin = Origin(name, {path: lines[0] for path, lines in written.items()})
    _reject_repeats(written, origin)
    return _construct(loader, node, name), origin


def _construct(loader: yaml.SafeLoader, node: yaml.Node, name: str) -> Any:
    try:
        return loader.construct_document(node)
    except ValueError as error:  # PyYAML raises it for dates that do not exist
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
