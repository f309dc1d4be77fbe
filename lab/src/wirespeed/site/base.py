"""The interface of every kind of site: its agents, and the topology of its hosts."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from wirespeed import units
from wirespeed.agent.facts import core_ids
from wirespeed.errors import InputError
from wirespeed.fleet.fleet import Fleet
from wirespeed.recipe.model import RoleSite, Site
from wirespeed.topology import CoreIds, Link, Seat, Topology, roles_of

IDS = {"threads": "topology/thread_siblings_list", "nodes": "node"}


@dataclass(frozen=True)
class Opened:
    """A site that stands: its agents run and its links are up."""

    fleet: Fleet
    topology: Topology


@dataclass(frozen=True)
class Ask:
    """What a run wants of a site."""

    name: str
    site: Site
    has_origin: bool
    mark: str = "plan"
    cgroups: bool = True
    folder: Path = field(default_factory=Path)  # of the site file, for relative paths in it


class Kind(Protocol):
    """One kind of site."""

    def open(self, ask: Ask) -> Opened:
        """Starts the agents; whoever opens closes the fleet."""

    def foreseen(self, ask: Ask) -> Topology | None:
        """The topology without starting anything; None where only the hosts know."""


def own_cores() -> list[int]:
    return sorted(os.sched_getaffinity(0))


def split(site: Site, cores: list[int], has_origin: bool) -> dict[str, list[int]]:
    """The cores of each role on one machine: the site's own words, else an even split."""
    usable = [core for core in cores if core not in site.housekeeping] or cores
    found = roles_of(usable, has_origin)
    for role, site_of_role in by_role(site).items():
        if site_of_role.cores:
            check_cores(site_of_role.cores, cores, f"{role}.cores")
            found[role] = site_of_role.cores
    return found


def ids_of(info: dict[str, Any], what: str) -> CoreIds:
    """core → physical core or NUMA node, as the agent reports it."""
    return {int(core): number for core, number in info[what].items()}


def own_ids(what: str) -> CoreIds:
    """The same of this machine, before an agent runs."""
    return ids_of({what: core_ids(IDS[what])}, what)


def check_cores(given: list[int], cores: list[int], key: str) -> None:
    missing = sorted(set(given) - set(cores))
    if missing:
        have = ", ".join(map(str, cores))
        raise InputError(f"the site's {key}: core {missing[0]} does not exist (cores: {have})")


def by_role(site: Site) -> dict[str, RoleSite]:
    return {"server": site.server, "load": site.load, "origin": site.origin}


def addresses_of(site: RoleSite, links: list[str], default: str) -> dict[str, str]:
    """link → address, from one address for all links or one for each."""
    each = site.addr if isinstance(site.addr, dict) else dict.fromkeys(links, site.addr)
    addresses = {link: each.get(link) or default for link in links}
    for address in addresses.values():
        if ":" in address:
            raise InputError(
                f"the site's address {address!r} cannot be part of a URL (write the host's IPv4 "
                'address or its name as addr = "…", without a port)'
            )
    return addresses


def seats(host: str, cores: list[int]) -> list[Seat]:
    return [Seat(host, core) for core in cores]


def links_of(site: Site) -> dict[str, Link]:
    return {
        name: Link(
            name,
            units.link_bits_per_second(link.rate) if link.rate else None,
            link.mtu,
            link.speed,
            link.server,
            link.load,
            link.net,
            link.queues,
        )
        for name, link in site.link.items()
    }
