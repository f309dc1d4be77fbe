"""Where a recipe has templates: the texts that are filled in, by the keys that lead to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from typing import Any

Path = tuple[str | int, ...]
#: `*` stands for a name or a number.
FILLED = (
    "process.*.argv.*", "process.*.count", "process.*.pin.workers", "process.*.stack",
    "process.*.env.*", "process.*.cwd", "process.*.ready.http", "process.*.ready.tcp",
    "process.*.ready.length", "process.*.netns.on", "process.*.netns.addr", "process.*.version.*",
    "process.*.prepare.*", "process.*.requires.java", "asset.*.at", "asset.*.mount.at",
    "asset.*.files.name", "asset.*.files.bytes", "stacks.*.profile",
)  # fmt: skip
VARIABLES = "axis"  # all below [axis.NAME.VALUE]
TITLES = "table.*.title"  # filled in when a report is made, from the axes alone
_PATTERNS = [tuple(pattern.split(".")) for pattern in FILLED]


def is_filled(path: Path) -> bool:
    """Whether the text there is filled in for each cell and process."""
    if path[:1] == (VARIABLES,):
        return len(path) > 3
    return any(_fits(path, pattern) for pattern in _PATTERNS)


def is_title(path: Path) -> bool:
    return _fits(path, tuple(TITLES.split(".")))


def _fits(path: Path, pattern: tuple[str, ...]) -> bool:
    return len(path) == len(pattern) and all(
        fnmatchcase(str(part), wanted) for part, wanted in zip(path, pattern, strict=True)
    )


def walk(data: Any, path: Path = ()) -> Iterator[tuple[Path, str]]:
    """Every text of a recipe."""
    if isinstance(data, str):
        yield path, data
    elif isinstance(data, dict):
        for key, value in data.items():
            yield from walk(value, (*path, key))
    elif isinstance(data, list):
        for number, value in enumerate(data):
            yield from walk(value, (*path, number))


def mapped(data: Any, change: Callable[[Path, str], str], path: Path = ()) -> Any:
    """The recipe with each text changed."""
    if isinstance(data, str):
        return change(path, data)
    if isinstance(data, dict):
        return {key: mapped(value, change, (*path, key)) for key, value in data.items()}
    if isinstance(data, list):
        return [mapped(value, change, (*path, number)) for number, value in enumerate(data)]
    return data
