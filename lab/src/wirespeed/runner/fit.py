"""Which cores the processes of one cell get on this site, or why the cell does not fit."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from wirespeed import topology
from wirespeed.recipe.model import ProcessSpec
from wirespeed.recipe.resolve import Resolver
from wirespeed.topology import Seat


@dataclass(frozen=True)
class Fitted:
    """label → seats; `problem` when the site cannot hold the cell."""

    seats: dict[str, list[Seat]] = field(default_factory=dict)
    problem: str = ""
    shared: bool = False


def fit(resolver: Resolver, mode: str) -> Fitted:
    roles = resolver.topology.roles
    if mode == "pairs":
        return _pairs(resolver, roles)
    seats: dict[str, list[Seat]] = {}
    taken = {role: 0 for role in roles}
    shared = False
    for process in resolver.recipe.process:
        part = _process(resolver, process, roles[process.role], taken, mode == "share")
        if part.problem:
            return part
        seats |= part.seats
        shared = shared or part.shared
    return Fitted(seats, shared=shared or _overlap(resolver, seats))


def _process(
    resolver: Resolver, process: ProcessSpec, seats: list[Seat], taken: dict[str, int], share: bool
) -> Fitted:
    count = resolver.count(process)
    pin = process.pin
    if pin is None or pin.cores == "all":
        return Fitted(_unpinned(process.name, count, seats))
    if isinstance(pin.cores, list):
        free = _named(resolver, seats, pin.cores)
        missing = set(pin.cores) - {seat.core for seat in free}
        if missing:
            return Fitted(
                problem=f"{process.name} is pinned to core {min(missing)}, not on this machine"
            )
    else:
        # "from N" only means "in order": the roles have cores of their own.
        free = _in_turns(_wished(resolver, process, seats))[taken[process.role] :]
        free = seats if share and not free else free
    per = (resolver.workers(process) or 1) * pin.per
    dealt = topology.deal(free, count, per, share)
    if dealt.problem:
        return Fitted(problem=_problem(resolver, process, count, per, len(free)))
    if not isinstance(pin.cores, list):
        taken[process.role] += count * per
    named = {f"{process.name}-{index}": own for index, own in enumerate(dealt.seats)}
    return Fitted(named, shared=dealt.shared)


def _unpinned(name: str, count: int, seats: list[Seat]) -> dict[str, list[Seat]]:
    """All cores of a host for each; hosts take turns."""
    hosts = list(dict.fromkeys(seat.host for seat in seats))
    return {
        f"{name}-{index}": [seat for seat in seats if seat.host == hosts[index % len(hosts)]]
        for index in range(count)
    }


def _named(resolver: Resolver, seats: list[Seat], cores: list[int]) -> list[Seat]:
    """The cores that a recipe names, on the hosts of the role, whoever else uses them there."""
    first = {seat.host: seat for seat in seats}
    return [
        replace(seat, core=core)
        for host, seat in first.items()
        for core in cores
        if core in resolver.topology.cores[host]
    ]


def _wished(resolver: Resolver, process: ProcessSpec, seats: list[Seat]) -> list[Seat]:
    """The seats that the process's `smt` and `numa` leave, in their order."""
    pin = process.pin
    if pin is not None and pin.smt == "avoid":
        seats = topology.one_a_core(seats, resolver.topology.threads)
    if pin is not None and pin.numa != "any":
        seats = topology.by_node(seats, resolver.topology.nodes, pin.numa)
    return seats


def _in_turns(seats: list[Seat]) -> list[Seat]:
    """In the order in which `deal` takes them, so that what is taken is a prefix."""
    return [seats_of[0] for seats_of in topology.deal(seats, len(seats), 1, share=False).seats]


def _problem(resolver: Resolver, process: ProcessSpec, count: int, per: int, have: int) -> str:
    needed = f"{count} × {process.name}" + (f" on {per} cores each" if per > 1 else "")
    cores = f"{have} core{'' if have == 1 else 's'}"
    return f"{needed}, but the {process.role} has {cores} here (--fit share lets them share)"


def _pairs(resolver: Resolver, roles: dict[str, list[Seat]]) -> Fitted:
    """One server and one generator share a core: how a stack scales without spare cores."""
    both = roles["server"] + roles["load"]
    cores = sorted({(resolver.topology.machine(seat.host), seat.core) for seat in both})
    found: dict[str, list[Seat]] = {}
    for process in resolver.recipe.process:
        count = resolver.count(process)
        first = roles[process.role][0]
        seats = [replace(first, core=core) for _, core in cores]
        if len({machine for machine, _ in cores}) > 1:
            return Fitted(problem="pairs need server and generator on one machine")
        if process.role == "origin" or process.pin is None:
            found |= {f"{process.name}-{index}": seats for index in range(count)}
            continue
        if count > len(cores):
            return Fitted(problem=f"{count} pairs, but there are {len(cores)} cores here")
        found |= {f"{process.name}-{index}": [seats[index]] for index in range(count)}
    return Fitted(found, shared=True)


def _overlap(resolver: Resolver, seats: dict[str, list[Seat]]) -> bool:
    """Whether a server and a generator would run on one core: on a machine with a single one."""
    used: dict[str, set[tuple[str, int]]] = {"server": set(), "load": set(), "origin": set()}
    for process in resolver.recipe.process:
        for index in range(resolver.count(process)):
            for seat in seats[f"{process.name}-{index}"]:
                used[process.role].add((resolver.topology.machine(seat.host), seat.core))
    return bool(used["server"] & used["load"])
