"""Entry points of other Python packages, which add to the lab: docs/extensions.md has each."""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from wirespeed.errors import InputError

GENERATORS = "wirespeed.generators"
SITES = "wirespeed.sites"
REPORTERS = "wirespeed.reporters"


@cache
def _entries(group: str) -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=group)}


def names(group: str) -> list[str]:
    """The names that installed packages add to a group."""
    return sorted(_entries(group))


def load(group: str, name: str) -> Any:
    """The object that an entry point names. InputError when it cannot be imported."""
    entry = _entries(group)[name]
    try:
        return entry.load()
    except Exception as error:  # its module runs whatever it holds
        source = entry.dist.name if entry.dist else entry.value
        raise InputError(
            f"{group} {name!r} of the package {source}: cannot be imported: {error} "
            "(install another version of it, or remove it)"
        ) from error
