"""The cells of a run: to be measured, or kept and shown with the reason why not."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from wirespeed.driver import stack
from wirespeed.errors import RecipeError
from wirespeed.recipe import sweep
from wirespeed.recipe.model import Recipe
from wirespeed.recipe.resolve import MODULES, Place, Resolver
from wirespeed.results.model import BY_ONLY, BY_RECIPE, CellState
from wirespeed.runner import fit
from wirespeed.topology import Seat


@dataclass(frozen=True)
class PlannedCell:
    """One cell: where its processes run, or why it is not measured."""

    cell: sweep.SweepPoint
    state: CellState = "planned"
    reason: str = ""
    seats: dict[str, list[Seat]] = field(default_factory=dict)
    shared_cores: bool = False
    over: str = ""  # the baseline's cell, with whose server this one's takes turns (duet.py)

    @property
    def is_measured(self) -> bool:
        return self.state == "planned"


def planned_cells(
    recipe: Recipe, place: Place, fit_mode: str, only: dict[str, list[Any]]
) -> list[PlannedCell]:
    """Every cell of the recipe, none dropped."""
    result = []
    for cell in sweep.cells(recipe):
        if any(cell.axes[name] not in values for name, values in only.items()):
            result.append(PlannedCell(cell, "thinned", BY_ONLY))
            continue
        if any(cell.matches(values) for values in recipe.plan.skip):
            result.append(PlannedCell(cell, "thinned", BY_RECIPE))
            continue
        result.append(_judged(recipe, cell, place, fit_mode))
    return result


def _judged(recipe: Recipe, cell: sweep.SweepPoint, place: Place, fit_mode: str) -> PlannedCell:
    problem = _link_problem(cell, place)
    if problem:
        return PlannedCell(cell, "not-runnable", problem)
    resolver = Resolver(recipe, cell, place)
    fitted = fit.fit(resolver, fit_mode)
    if fitted.problem:
        return PlannedCell(cell, "does-not-fit", fitted.problem)
    if unmet := resolver.unmet():
        return PlannedCell(cell, "not-runnable", f"not runnable here: {unmet}")
    for one in resolver.stacks():
        carrier = stack.provider(place.root, one)
        problem = carrier.problem or _apart_problem(resolver, carrier.name)
        if problem:
            return PlannedCell(cell, "not-runnable", f"not runnable here: {problem}")
    resolver.instances(fitted.seats)  # every placeholder of every cell, before anything starts
    resolver.files()
    return PlannedCell(cell, seats=fitted.seats, shared_cores=fitted.shared)


def _link_problem(cell: sweep.SweepPoint, place: Place) -> str:
    """An axis `link` names links of the site."""
    link, links = cell.axes.get("link"), place.topology.links
    if link is None or link in links:
        return ""
    return f"not runnable here: this site has no link {link} (links: {', '.join(links)})"


def _apart_problem(resolver: Resolver, carrier: str) -> str:
    """Why bypass cannot carry connections over the cell's link; empty where it has none, too."""
    topology = resolver.topology
    if carrier != "bypass" or not topology.is_apart:
        return ""
    link = topology.links.get(resolver.link)
    if link is None or not (link.server and link.load):
        return f"bypass needs the interfaces of link {resolver.link} (server and load in the site)"
    if link.is_shaped:
        return f"bypass would not keep the rate of link {link.name}: AF_XDP goes past tc"
    return ""


def needs(recipe: Recipe, place: Place, cells: list[PlannedCell]) -> list[str]:
    """Parts of the front door that the measured cells need."""
    parts: set[str] = set()
    for planned in cells:
        if planned.is_measured:
            resolver = Resolver(recipe, planned.cell, place)
            parts |= resolver.needs()
            if _wants_bypass(resolver, place) and stack.can_build(place.root):
                parts.add("bypass")
    return sorted(parts)


def _wants_bypass(resolver: Resolver, place: Place) -> bool:
    return any(stack.provider(place.root, one).name == "bypass" for one in resolver.stacks())


def without_unbuilt(recipe: Recipe, place: Place, cells: list[PlannedCell]) -> list[PlannedCell]:
    """After building: cells whose part is still not there are not runnable, with the remedy."""
    result = []
    for planned in cells:
        missing = _missing_part(recipe, place, planned) if planned.is_measured else ""
        if missing:
            reason = f"not runnable here: {missing} is not built; ./wirespeed build {missing}"
            planned = replace(planned, state="not-runnable", reason=reason)
        result.append(planned)
    return result


def _missing_part(recipe: Recipe, place: Place, planned: PlannedCell) -> str:
    resolver = Resolver(recipe, planned.cell, place)
    for name in sorted(resolver.needs() & set(MODULES)):
        jar = place.root / "servers" / name / "target" / f"{name}.jar"
        if not jar.exists():
            return name
    is_there = stack.is_built(place.root) or not _wants_bypass(resolver, place)
    return "" if is_there else "bypass"


def check_sessions(
    recipe: Recipe, place: Place, sessions: list[list[PlannedCell]], file: Path
) -> None:
    """Cells that share a server's session must need the same server."""
    for session in sessions:
        first: list[tuple[str, list[str], list[Seat]]] | None = None
        for planned in session:
            started = [
                (instance.label, instance.argv, instance.seats)
                for instance in Resolver(recipe, planned.cell, place).instances(planned.seats)
                if instance.role != "load"
            ]
            if first is not None and started != first:
                raise RecipeError(
                    file.name,
                    "plan.restart",
                    f"{recipe.plan.restart!r} keeps one server for cells that start it "
                    "differently; add the axis that its argv uses, or write trial",
                )
            first = started
