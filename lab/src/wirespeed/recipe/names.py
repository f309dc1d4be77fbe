"""The names that the templates of a recipe may use, in one cell and for one of its processes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from wirespeed import units
from wirespeed.recipe.model import ProcessSpec
from wirespeed.template import OMITTED, Later, arguments_of, is_template, named, to_text, value_of
from wirespeed.topology import ROLES

if TYPE_CHECKING:
    from wirespeed.recipe.resolve import Resolver

Names = Mapping[str, Any]
Functions = Mapping[str, Callable[[str], Any]]


def names_of(
    cell: Resolver, process: ProcessSpec | None, index: int, functions: Functions
) -> dict[str, Any]:
    """Of one thing by that name the value, and the parts of all: an axis `server` has the value
    `nginx`, its variables, and the address of the role. Variables come before processes, and these
    before roles."""
    names: dict[str, Any] = dict(functions)
    values = _values(cell, process, index)
    parts = _parts(cell, names)
    for name in dict.fromkeys([*values, *parts]):
        names[name] = _name(cell, name, values.get(name), parts.get(name))
    by_name = {one.name: _of_process(cell, one) for one in cell.recipe.process}
    names.setdefault("processes", named("processes", by_name))
    names.setdefault("axes", named("axes", {axis: names[axis] for axis in cell.cell.axes}))
    return names


def _name(cell: Resolver, name: str, value: Any, parts: Names | None) -> Any:
    if parts is None:
        return value
    process = cell.processes.get(name)
    at = partial(_of_process, cell, process) if process else None
    if isinstance(value, Later):
        return Later(lambda: named(name, parts, value.value(), at))
    return named(name, parts, value, at)


def _values(cell: Resolver, process: ProcessSpec | None, index: int) -> dict[str, Any]:
    plan, place = cell.recipe.plan, cell.place
    duration_s = plan.duration if place.duration_s is None else place.duration_s
    warmup_s = plan.warmup if place.warmup_s is None else place.warmup_s
    values: dict[str, Any] = {
        "duration": units.duration_text(duration_s),
        "warmup": units.duration_text(warmup_s),
    }
    if process:
        values |= {"i": index, "count": Later(partial(cell.count, process))}
        if process.port:
            values["port"] = Later(partial(cell.port_of, process, index))
    return {**values, **cell.cell.axes}


def _parts(cell: Resolver, names: Names) -> dict[str, dict[str, Any]]:
    link = cell.topology.links.get(cell.link)
    place = cell.place
    parts: dict[str, dict[str, Any]] = {
        role: {
            "addr": Later(partial(cell.address_of, role)),
            "cores": max(1, len(cell.topology.roles.get(role, []))),
        }
        for role in ROLES
    }
    parts["run"] = {"dir": place.run_dir, "tmp": place.run_tmp}
    parts["recipe"] = {"dir": Later(lambda: str(cell.file.resolve().parent))}
    parts["duration"] = {"seconds": Later(partial(_whole_seconds, cell))}
    parts["link"] = asdict(link) if link else {}
    for process in cell.recipe.process:
        parts[process.name] = {**parts.get(process.name, {}), **_parts_of(cell, process, 0)}
    for axis in cell.recipe.axis:
        parts[axis] = {**parts.get(axis, {}), **_variables(cell, axis, names)}
    return parts


def _whole_seconds(cell: Resolver) -> int:
    place = cell.place
    seconds = cell.recipe.plan.duration if place.duration_s is None else place.duration_s
    return math.ceil(units.duration_s(units.duration_text(seconds)))


def _of_process(cell: Resolver, process: ProcessSpec, index: int = 0) -> Any:
    path = f"{process.name}[{index}]" if index else process.name
    at = partial(_of_process, cell, process)
    return named(path, _parts_of(cell, process, index), None, at)


def _parts_of(cell: Resolver, process: ProcessSpec, index: int) -> dict[str, Any]:
    parts: dict[str, Any] = {
        "addr": Later(partial(cell.address_of, process.role)),
        "count": Later(partial(cell.count, process)),
    }
    if process.port:
        parts["port"] = Later(partial(cell.port_of, process, index))
    return parts


def _variables(cell: Resolver, axis: str, names: Names) -> dict[str, Any]:
    """Those of the axis' value in this cell; of another value's it has none, which is false."""
    declared = cell.recipe.axis[axis]
    value = cell.cell.axes.get(axis)
    values = declared.get(to_text(value)) or declared.get(str(value), {})  # 1.0 is `1`, too
    every = dict.fromkeys(name for variables in declared.values() for name in variables)
    return {name: _variable(f"{axis}.{name}", values.get(name), names) for name in every}


def _variable(path: str, value: Any, names: Names) -> Any:
    """A variable may hold templates itself."""
    if isinstance(value, dict):
        return named(path, {key: _variable(f"{path}.{key}", one, names)
                            for key, one in value.items()})  # fmt: skip
    if isinstance(value, str) and is_template(value):
        return Later(lambda: _filled(value, names))
    if isinstance(value, list) and any(isinstance(v, str) and is_template(v) for v in value):
        return Later(lambda: arguments_of([to_text(one) for one in value], names))
    return value


def _filled(text: str, names: Names) -> Any:
    value = value_of(text, names)
    return None if value is OMITTED else value
