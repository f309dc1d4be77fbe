"""Where a run can happen: hosts, their cores and addresses on links, and how cores are assigned.

A seat is one core of one host, with the address that the host has on the link of the cell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

CoreIds = dict[int, int]
ROLES = ("server", "load", "origin")
LOOPBACK = "127.0.0.1"
LOCAL = "here"  # the name of this machine among hosts


@dataclass(frozen=True, order=True)
class Seat:
    """One core of one host, for one process."""

    host: str
    core: int
    address: str = LOOPBACK


@dataclass(frozen=True)
class Link:
    """A way between the hosts of a site, as it is declared."""

    name: str
    rate_bps: float | None = None  # bits per second; None: no cap is declared
    mtu: int | None = None
    speed: str = ""  # the published link that it stands for: 25G
    server: str = ""  # the interface on the server's host
    load: str = ""
    net: str = ""  # the first three numbers of its addresses
    queues: int | None = None  # of its interfaces, where the site makes them; None: its choice
    is_limit: bool = True  # False: it carries what the cores can move, and is never the limit
    is_shaped: bool = False  # the site keeps its rate by a queueing discipline of the kernel


@dataclass(frozen=True)
class Topology:
    """The hosts of each role, their cores, and their addresses on each link."""

    cores: dict[str, list[int]]  # host → its cores, for whoever has no cores of its own role
    roles: dict[str, list[Seat]]  # role → its seats, in the order in which they are dealt
    addresses: dict[str, dict[str, str]] = field(default_factory=dict)  # role → link → address
    links: dict[str, Link] = field(default_factory=dict)
    machines: dict[str, str] = field(default_factory=dict)  # host → its machine, where they share
    threads: dict[str, CoreIds] = field(default_factory=dict)  # host → core → its physical core
    nodes: dict[str, CoreIds] = field(default_factory=dict)  # host → core → its NUMA node
    has_onload: bool | None = None  # on every server and load host; None: this machine is asked

    def on(self, link: str) -> Topology:
        """The same seats with their addresses on this link."""
        return replace(
            self,
            roles={
                role: [replace(seat, address=self.address_of(role, link)) for seat in seats]
                for role, seats in self.roles.items()
            },
        )

    def address_of(self, role: str, link: str = "") -> str:
        """Where the role's first host is reached on this link."""
        by_link = self.addresses.get(role, {})
        return by_link.get(link) or next(iter(by_link.values()), LOOPBACK)

    def link_of(self, axes: Mapping[str, object]) -> str:
        """The link of a cell: the axis `link`, else the site's first."""
        return str(axes.get("link", next(iter(self.links), "")))

    def machine(self, host: str) -> str:
        return self.machines.get(host, host)

    def hosts(self, role: str) -> list[str]:
        return list(dict.fromkeys(seat.host for seat in self.roles.get(role, [])))

    @property
    def is_apart(self) -> bool:
        """Whether no host has both servers and generators: a link lies between them."""
        return not set(self.hosts("server")) & set(self.hosts("load"))


def one_host(roles: Mapping[str, Sequence[int]], address: str = LOOPBACK) -> Topology:
    """One machine for all roles, on its loopback."""
    seats = {role: [Seat(LOCAL, core, address) for core in own] for role, own in roles.items()}
    cores = sorted({seat.core for own in seats.values() for seat in own})
    return Topology({LOCAL: cores}, seats, {role: {"loopback": address} for role in ROLES})


def one_a_core(seats: Sequence[Seat], threads: Mapping[str, CoreIds]) -> list[Seat]:
    """The first hyper-thread of each physical core."""
    found: dict[tuple[str, int], Seat] = {}
    for seat in seats:
        found.setdefault((seat.host, threads.get(seat.host, {}).get(seat.core, seat.core)), seat)
    return list(found.values())


def by_node(seats: Sequence[Seat], nodes: Mapping[str, CoreIds], wish: str) -> list[Seat]:
    """`spread`: nodes take turns; `near`: the first node of each host only."""
    groups: dict[tuple[str, int], list[Seat]] = {}
    for seat in seats:
        groups.setdefault((seat.host, nodes.get(seat.host, {}).get(seat.core, 0)), []).append(seat)
    if wish == "near":
        first: dict[str, list[Seat]] = {}
        for (host, _), own in groups.items():
            first.setdefault(host, own)
        return [seat for own in first.values() for seat in own]
    longest = max(map(len, groups.values()), default=0)
    return [own[at] for at in range(longest) for own in groups.values() if at < len(own)]


@dataclass(frozen=True)
class Dealt:
    """The seats of each process, or why there are none."""

    seats: list[list[Seat]]
    problem: str = ""
    shared: bool = False


def roles_of(cores: Sequence[int], has_origin: bool) -> dict[str, list[int]]:
    """Splits one machine between the roles; with four cores or more the first is left for the lab.

    Below four cores an origin shares the generator's cores: it mostly waits.
    """
    usable = list(cores[1:]) if len(cores) >= 4 else list(cores)
    if len(usable) == 1:
        return {role: usable for role in ROLES}
    origin: list[int] = []
    if has_origin and len(usable) >= 4:
        quarter = max(1, len(usable) // 4)
        origin, usable = usable[-quarter:], usable[:-quarter]
    half = max(1, len(usable) // 2)
    server, load = usable[:half], usable[half:]
    return {"server": server, "load": load, "origin": origin or load}


def deal(seats: Sequence[Seat], count: int, per: int, share: bool) -> Dealt:
    """`count` processes of `per` cores each, one host a process; hosts take turns.

    Turns spread generators over hosts before they fill one. With `share` processes go round the
    cores again.
    """
    groups = _groups(seats, per)
    if count <= len(groups):
        return Dealt(groups[:count])
    if not share or not seats:
        have = f"{len(seats)} core{'s' if len(seats) != 1 else ''}"
        each = f" of {per} cores each" if per > 1 else ""
        return Dealt([], f"{count} processes{each} on {have}")
    groups = groups or _groups(seats, max(1, min(per, *map(len, _by_host(seats)))))
    return Dealt([groups[number % len(groups)] for number in range(count)], shared=True)


def _by_host(seats: Sequence[Seat]) -> list[list[Seat]]:
    by_host: dict[str, list[Seat]] = {}
    for seat in seats:
        by_host.setdefault(seat.host, []).append(seat)
    return list(by_host.values())


def _groups(seats: Sequence[Seat], per: int) -> list[list[Seat]]:
    """Groups of `per` seats of one host each: the first of every host, then the second, …"""
    cut = [
        [group[at : at + per] for at in range(0, len(group) - per + 1, per)]
        for group in _by_host(seats)
    ]
    longest = max(map(len, cut), default=0)
    return [group[number] for number in range(longest) for group in cut if number < len(group)]
