"""Which cores the processes of one cell get on this site, or why the cell does not fit."""

from __future__ import annotations

from dataclasses import dataclass, field

from wirespeed.host import cpus
from wirespeed.recipe.model import Process, Recipe, Site
from wirespeed.recipe.resolve import Resolver


@dataclass(frozen=True)
class Fitted:
    """label → cores; `problem` when the machine cannot hold the cell."""

    cores: dict[str, list[int]] = field(default_factory=dict)
    problem: str = ""
    shared: bool = False


def role_cores(recipe: Recipe, site: Site, cores: list[int]) -> dict[str, list[int]]:
    """The cores of each role: the site's own words, else an even split of the machine."""
    usable = [core for core in cores if core not in site.housekeeping] or cores
    has_origin = any(process.role == "origin" for process in recipe.process)
    split = cpus.roles_of(usable, has_origin)
    for role, own in (("server", site.server), ("load", site.load), ("origin", site.origin)):
        if own.cores:
            split[role] = own.cores
    return split


def fit(resolver: Resolver, roles: dict[str, list[int]], mode: str) -> Fitted:
    if mode == "pairs":
        return _pairs(resolver, roles)
    found: dict[str, list[int]] = {}
    taken = {role: 0 for role in roles}
    shared = False
    for process in resolver.recipe.process:
        part = _process(resolver, process, roles[process.role], taken, mode == "share")
        if part.problem:
            return part
        found |= part.cores
        shared = shared or part.shared
    return Fitted(found, shared=shared or _overlap(resolver, found))


def _process(
    resolver: Resolver, process: Process, cores: list[int], taken: dict[str, int], share: bool
) -> Fitted:
    count = resolver.count(process)
    pin = process.pin
    if pin is None or pin.cores == "all":
        return Fitted({f"{process.name}-{index}": list(cores) for index in range(count)})
    if isinstance(pin.cores, list):
        missing = [core for core in pin.cores if core not in _all(resolver)]
        if missing:
            return Fitted(
                problem=f"{process.name} is pinned to core {missing[0]}, not on this machine"
            )
        free = pin.cores
    else:
        # On one machine "from N" only means "in order": the roles have cores of their own.
        free = cores[taken[process.role] :]
        free = cores if share and not free else free
    per = (resolver.workers(process) or 1) * pin.per
    dealt = cpus.deal(free, count, per, share)
    if dealt.problem:
        return Fitted(problem=_problem(resolver, process, count, per, len(free)))
    if not isinstance(pin.cores, list):
        taken[process.role] += count * per
    named = {f"{process.name}-{index}": core for index, core in enumerate(dealt.cores)}
    return Fitted(named, shared=dealt.shared)


def _all(resolver: Resolver) -> set[int]:
    return {core for cores in resolver.place.role_cores.values() for core in cores}


def _problem(resolver: Resolver, process: Process, count: int, per: int, have: int) -> str:
    wanted = f"{count} × {process.name}" + (f" on {per} cores each" if per > 1 else "")
    cores = f"{have} core{'' if have == 1 else 's'}"
    return f"{wanted}, but the {process.role} has {cores} here (--fit share lets them share)"


def _pairs(resolver: Resolver, roles: dict[str, list[int]]) -> Fitted:
    """One server and one generator share a core: how a stack scales without spare cores."""
    cores = sorted({core for role in ("server", "load") for core in roles[role]})
    found: dict[str, list[int]] = {}
    for process in resolver.recipe.process:
        count = resolver.count(process)
        if process.role == "origin" or process.pin is None:
            found |= {f"{process.name}-{index}": cores for index in range(count)}
            continue
        if count > len(cores):
            return Fitted(problem=f"{count} pairs, but there are {len(cores)} cores here")
        found |= {f"{process.name}-{index}": [cores[index]] for index in range(count)}
    return Fitted(found, shared=True)


def _overlap(resolver: Resolver, cores: dict[str, list[int]]) -> bool:
    """Whether a server and a generator would run on one core: on a machine with a single one."""
    used: dict[str, set[int]] = {"server": set(), "load": set(), "origin": set()}
    for process in resolver.recipe.process:
        for index in range(resolver.count(process)):
            used[process.role] |= set(cores[f"{process.name}-{index}"])
    return bool(used["server"] & used["load"])
