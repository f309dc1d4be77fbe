"""Which comparisons of a run are duets: contender and baseline alive at once, taking turns.

Each contender has duets of its own with the baseline. Where two cannot live next to each other on
one host they are measured in separate trials, and the plan says why.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from wirespeed.driver import nginx
from wirespeed.recipe.model import Recipe
from wirespeed.recipe.resolve import Instance, Place, Resolver
from wirespeed.runner.cells import PlannedCell

PAIRS = 6  # of fresh servers, where the recipe does not say how many
SIDE = "b"  # of the contender: its labels and ports
OVERHEAD_S = 0.6  # of a duet besides its slices: generators start, connect and stop
_RATES = ("-R", "--rate")
_UNHELD = ("--replay", "--probe")
_PORT_NAMES = ("port", "address", "ports")


def paired(
    recipe: Recipe, place: Place, cells: list[PlannedCell]
) -> tuple[list[PlannedCell], list[str]]:
    """The cells, with `over` set in those compared by a duet: the cell that has the baseline's
    value and the same other axes. And a sentence for each reason for separate trials."""
    cells = [replace(cell, over="") for cell in cells]
    if recipe.plan.method != "duet":
        return cells, []
    ((axis, over),) = recipe.plan.baseline.items()
    bases = {_rest(cell, axis): cell for cell in cells if cell.cell.axes[axis] == over}
    result: list[PlannedCell] = []
    reasons: dict[str, int] = {}
    for cell in cells:
        base = bases.get(_rest(cell, axis))
        if base is None or base is cell or not (cell.is_measured and base.is_measured):
            result.append(cell)
            continue
        problem = why_not(recipe, place, base, cell)
        if problem:
            reasons[problem] = reasons.get(problem, 0) + 1
        result.append(cell if problem else replace(cell, over=base.cell.id))
    sentences = [
        f"{count} of {len(cells)} cells are compared by separate trials, not by duets: {reason}."
        for reason, count in reasons.items()
    ]
    return result, sentences


def _rest(cell: PlannedCell, axis: str) -> str:
    return repr([(name, value) for name, value in cell.cell.axes.items() if name != axis])


def why_not(recipe: Recipe, place: Place, base: PlannedCell, cell: PlannedCell) -> str:
    """Why these two cannot take turns; empty when they can."""
    sides = [
        Resolver(recipe, one.cell, replace(place, side=side)).instances(one.seats)
        for one, side in ((base, ""), (cell, SIDE))
    ]
    everyone = [instance for side in sides for instance in side]
    if len({instance.host for instance in everyone}) > 1:
        return "server and generator are on different hosts"
    if any(instance.netns for instance in everyone):
        return "their processes have network namespaces of their own"
    if any(asset.mount for asset in recipe.asset):
        return "their files are on a file system that is mounted for the run"
    for instance in everyone:
        if instance.role == "load" and instance.tool != "load":
            return f"{instance.tool} cannot be held back between requests; wirespeed-load can"
        if instance.role == "load" and any(word.startswith(_RATES) for word in instance.argv):
            return "a generator with a fixed rate (open loop) cannot be held back"
        if instance.role == "load" and any(word.startswith(_UNHELD) for word in instance.argv):
            return "a generator with --replay or --probe cannot be held back"
    if not {"server", "load"} <= {instance.role for instance in sides[1]}:
        return "a cell has no server, or no generator"
    for instance in sides[1]:
        if instance.role != "load" and not _has_own_port(recipe, place, cell, instance):
            return f"the command of {instance.name} does not use its port, and two cannot share one"
    return ""


def _has_own_port(recipe: Recipe, place: Place, cell: PlannedCell, instance: Instance) -> bool:
    """Whether the second of two listens elsewhere than the first: its command, its environment or
    a file made for it has another port in it."""
    alone = Resolver(recipe, cell.cell, place).instances(cell.seats)
    first = next(i for i in alone if (i.name, i.index) == (instance.name, instance.index))
    if instance.port is None:
        return False
    labels = (first.label, instance.label)
    argv = [[word.replace(label, "") for word in one.argv]
            for one, label in zip((first, instance), labels, strict=True)]  # fmt: skip
    if argv[0] != argv[1] or first.env != instance.env:
        return True
    return any(
        nginx.names_of(place.recipe_file.parent / source).intersection(_PORT_NAMES)
        for source in instance.template.values()
    )


def is_any(cells: Sequence[PlannedCell]) -> bool:
    return any(cell.over for cell in cells)


def seconds(recipe: Recipe) -> float:
    """Of one duet."""
    return recipe.plan.duet.pair + OVERHEAD_S
