"""Content of a YAML file, and the line of a setting in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, SequenceNode

from kernel_core.errors import ConfigError, NotFound

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The one in C takes an eighth of the time."""


def load_yaml(path: Path) -> Any:
    """Return a YAML file's content. Raises `NotFound` or `ConfigError` for a missing or broken file."""
    try:
        return yaml.load(path.read_text(), Loader=_LOADER)
    except OSError as error:
        raise NotFound(f"cannot read {path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        where = getattr(error, "problem_mark", None)
        line = f", line {where.line + 1}" if where is not None else ""
        problem = getattr(error, "problem", None) or "not text"
        raise ConfigError(f"{path}{line} is not YAML: {problem}") from error


def line_of(file: Path, path: tuple[str | int, ...]) -> int | None:
    """The line of the last part of a path that the file has, counted from 1; None if it has none of it.

    A number counts the items of a list; a list without a number is searched item by item.
    Anchors and merge keys (`<<`) lead to the line where the setting is written.
    """
    root = yaml.compose(file.read_text(), Loader=yaml.SafeLoader)
    return _search(root, path) if root is not None else None


def fault_at(file: Path, path: tuple[str | int, ...], message: str) -> ConfigError:
    """Return the error of a setting, with its file and line."""
    line = line_of(file, path)
    return ConfigError(f"{file}, line {line}: {message}" if line is not None else f"{file}: {message}")


def _search(node: Node, path: tuple[str | int, ...]) -> int | None:
    if not path:
        return None
    first, rest = path[0], path[1:]
    if isinstance(node, SequenceNode):
        items = [node.value[first]] if isinstance(first, int) else node.value
        for item in items:
            if isinstance(first, int):
                return _search(item, rest) or item.start_mark.line + 1
            if (line := _search(item, path)) is not None:
                return line
        return None
    for key, value in _entries(node):
        if key.value == str(first):
            return _search(value, rest) or key.start_mark.line + 1
    return None


def _entries(node: Node) -> Iterator[tuple[Node, Node]]:
    """Keys and values of a mapping, its own before those merged into it."""
    if not isinstance(node, MappingNode):
        return
    merged: list[Node] = []
    for key, value in node.value:
        if key.value == "<<":
            merged += value.value if isinstance(value, SequenceNode) else [value]
        else:
            yield key, value
    for mapping in merged:
        yield from _entries(mapping)
