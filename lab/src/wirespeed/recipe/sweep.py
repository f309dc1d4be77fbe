"""Cells: the product of a recipe's axes, each with the name under which its trials are kept."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Any

from wirespeed.errors import InputError
from wirespeed.recipe.model import Recipe
from wirespeed.template import to_text


@dataclass(frozen=True)
class SweepPoint:
    """One point of the sweep; `id` is the same in every run of the same recipe name and axes."""

    id: str
    axes: dict[str, Any]

    def matches(self, values: dict[str, Any]) -> bool:
        return all(self.axes.get(name) == value for name, value in values.items())


def cells(recipe: Recipe) -> list[SweepPoint]:
    """Every cell in the recipe's order; the last axis turns fastest."""
    values = recipe.axis_values()
    points = itertools.product(*values.values())
    return [cell(recipe.name, dict(zip(values, point, strict=True))) for point in points]


def cell(recipe_name: str, axes: dict[str, Any]) -> SweepPoint:
    # A letter in front: a spreadsheet takes 1234567890 and 12e4567890 for numbers.
    return SweepPoint("c" + digest([recipe_name, sorted(axes.items())]), axes)


def trial_key(cell_id: str, round_number: int) -> str:
    return "t" + digest([cell_id, round_number])


def digest(data: Any) -> str:
    return hashlib.blake2b(json.dumps(data).encode(), digest_size=5).hexdigest()


def parse_only(text: str, recipe: Recipe) -> dict[str, list[Any]]:
    """`payload=16,128,stack=kernel` as axis → wanted values, checked against the recipe."""
    chosen: dict[str, list[Any]] = {}
    values = recipe.axis_values()
    name, pieces = "", text.split(",")
    while pieces:
        left, equals, right = (word.strip() for word in pieces[0].partition("="))
        if not (left or equals):
            del pieces[0]
            continue
        # A value may be `/search?q=1`: then the part before = is a value too.
        if equals and (left in values or not _taken(pieces, _values_of(recipe, name))):
            name, pieces[0] = left, right
        if name not in values:
            axes = ", ".join(values) or "none"
            if not equals and left in values:
                raise InputError(f"--only: {left!r} has no value (write {left}=VALUE)")
            raise InputError(f"--only: unknown axis {name or left!r} (axes: {axes})")
        known = _values_of(recipe, name)
        count = _taken(pieces, known)
        if not count:
            raise InputError(
                f"--only: unknown value {pieces[0].strip()!r} of axis {name} "
                f"(values: {', '.join(known)})"
            )
        chosen.setdefault(name, []).append(known[_joined(pieces[:count])])
        del pieces[:count]
    return chosen


def _values_of(recipe: Recipe, name: str) -> dict[str, Any]:
    """The values of an axis, by the texts that mean them."""
    known: dict[str, Any] = {value: value for value in recipe.axis.get(name, {})}
    values = recipe.axis_values().get(name, [])
    known |= {to_text(value): value for value in values}  # 1.0 as its variables may name it: `1`
    return known | {_as_text(value): value for value in values}


def _taken(pieces: Sequence[str], known: Container[str]) -> int:
    """How many of the pieces are the longest value, which may hold commas; 0: none is."""
    counts = range(len(pieces), 0, -1)
    return next((count for count in counts if _joined(pieces[:count]) in known), 0)


def _joined(pieces: Sequence[str]) -> str:
    return ",".join(pieces).strip()


def _as_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
