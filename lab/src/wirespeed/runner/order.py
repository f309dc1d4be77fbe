"""The order of a run: rounds, in each of which each cell is measured once, in sessions of a server.

Interleaved: in each round the sessions come in random order, with compared ones next to
each other, so that drift of the machine falls on all of them alike. Blocked repeats the documents'
own order (all of one stack, then all of the next); its verdicts are withheld.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from wirespeed.recipe.model import Recipe
from wirespeed.runner.cells import PlannedCell


@dataclass(frozen=True)
class PlannedSession:
    """Trials of one round that share one server's session, in their order."""

    round: int
    cells: list[PlannedCell]  # of a duet (`over`) each after its baseline's


def session_axes(recipe: Recipe) -> list[str]:
    """The axes whose change means a new server."""
    axes = list(recipe.axes)
    restart = recipe.plan.restart
    if restart == "trial":
        return axes
    if restart == "ramp":
        return [name for name in axes if name not in recipe.ramps()]
    return restart.split("+")


def groups(recipe: Recipe, cells: Sequence[PlannedCell]) -> list[list[PlannedCell]]:
    """The measured cells by the server's session that they share."""
    names = session_axes(recipe)
    by_values: dict[tuple[Any, ...], list[PlannedCell]] = {}
    for cell in cells:
        if cell.is_measured:
            by_values.setdefault(_values(cell, names), []).append(cell)
    return list(by_values.values())


def units(recipe: Recipe, cells: Sequence[PlannedCell]) -> list[list[PlannedCell]]:
    """The same, where cells that take turns with their baseline's bring it along."""
    brought = {cell.over for cell in cells if cell.is_measured}
    shared = groups(recipe, [cell for cell in cells if cell.cell.id not in brought])
    split = [
        [cell for cell in group if bool(cell.over) == is_duet]
        for group in shared
        for is_duet in (True, False)
    ]
    return [group for group in split if group]


def sessions(
    recipe: Recipe, cells: Sequence[PlannedCell], repeat: int, seed: int
) -> list[PlannedSession]:
    chance = random.Random(seed)
    shared = units(recipe, cells)
    rounds = range(1, repeat + 1)
    if recipe.plan.order == "blocked":
        shared.sort(key=lambda group: _baseline_rank(recipe, group[0]))
        return [PlannedSession(number, list(group)) for group in shared for number in rounds]
    by_id = {cell.cell.id: cell for cell in cells}
    result = []
    for number in rounds:
        left = {cell.over for cell in cells if cell.over and cell.is_measured}
        for group in _shuffled(recipe, shared, chance):
            ordered = _within(recipe, group, random.Random(f"{seed}/{number}"))
            result.append(PlannedSession(number, _with_bases(ordered, by_id, left)))
    return result


def _with_bases(
    group: list[PlannedCell], by_id: dict[str, PlannedCell], left: set[str]
) -> list[PlannedCell]:
    """Before each cell of a duet its baseline's, which is measured alone once in a round."""
    result = []
    for cell in group:
        if cell.over in left:
            left.discard(cell.over)
            result.append(by_id[cell.over])
        result.append(cell)
    return result


def _shuffled(
    recipe: Recipe, shared: list[list[PlannedCell]], chance: random.Random
) -> list[list[PlannedCell]]:
    """Blocks in random order; inside a block, what is compared in random order."""
    compared = set(recipe.plan.baseline) | {t.columns for t in recipe.table if t.columns}
    names = [name for name in session_axes(recipe) if name not in compared]
    blocks: dict[tuple[Any, ...], list[list[PlannedCell]]] = {}
    for group in shared:
        blocks.setdefault(_values(group[0], names), []).append(group)
    ordered = list(blocks.values())
    chance.shuffle(ordered)
    for block in ordered:
        chance.shuffle(block)
    return [group for block in ordered for group in block]


def _within(recipe: Recipe, group: list[PlannedCell], chance: random.Random) -> list[PlannedCell]:
    """Ramps in their order, everything else in random order: the same one in all sessions of a
    round, so that the two windows of a ratio are one server's session apart and not up to two."""
    ramps = recipe.ramps()
    others = [name for name in recipe.axes if name not in ramps]
    walks: dict[tuple[Any, ...], list[PlannedCell]] = {}
    for cell in group:
        walks.setdefault(_values(cell, others), []).append(cell)
    ordered = list(walks.values())
    chance.shuffle(ordered)
    return [cell for walk in ordered for cell in walk]


def _values(cell: PlannedCell, names: Sequence[str]) -> tuple[Any, ...]:
    return tuple(cell.cell.axes[name] for name in names)


def _baseline_rank(recipe: Recipe, cell: PlannedCell) -> tuple[int, ...]:
    values = recipe.axis_values()
    compared = list(recipe.plan.baseline) or [t.columns for t in recipe.table if t.columns][:1]
    ranks = []
    for name in compared:
        value = cell.cell.axes[name]
        is_baseline = recipe.plan.baseline.get(name) == value
        ranks.append(-1 if is_baseline else values[name].index(value))
    return tuple(ranks)
