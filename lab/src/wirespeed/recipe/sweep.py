"""Cells: the product of a recipe's axes, each with the name under which its trials are kept."""

from __future__ import annotations

import hashlib
import itertools
import json
from dataclasses import dataclass
from typing import Any

from wirespeed.errors import InputError
from wirespeed.recipe.model import Recipe


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
    wanted: dict[str, list[Any]] = {}
    values = recipe.axis_values()
    name = ""
    for piece in filter(None, (piece.strip() for piece in text.split(","))):
        left, equals, right = piece.partition("=")
        if equals:
            name, piece = left.strip(), right.strip()
        if name not in values:
            axes = ", ".join(values) or "none"
            if not equals and piece in values:
                raise InputError(f"--only: {piece!r} has no value (write {piece}=VALUE)")
            raise InputError(f"--only: unknown axis {name or piece!r} (axes: {axes})")
        known: dict[str, Any] = {value: value for value in recipe.axis.get(name, {})}
        known |= {_as_text(value): value for value in values[name]}
        if piece not in known:
            raise InputError(
                f"--only: unknown value {piece!r} of axis {name} (values: {', '.join(known)})"
            )
        wanted.setdefault(name, []).append(known[piece])
    return wanted


def _as_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
