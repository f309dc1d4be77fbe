"""Other machines over ssh: the OpenSSH client carries the channel, with the user's own set-up.

Keys, jump hosts, ports and known hosts come from ssh_config; the target needs sshd and a Python.
"""

from __future__ import annotations

import math

from wirespeed.errors import InputError
from wirespeed.fleet.channel import Transport
from wirespeed.fleet.fleet import Fleet
from wirespeed.recipe.model import RoleSite, Site
from wirespeed.site.base import (
    Ask,
    Opened,
    addresses_of,
    by_role,
    check_cores,
    ids_of,
    links_of,
    seats,
)
from wirespeed.topology import Link, Seat, Topology, roles_of

# ssh takes the first value it meets, so a site's own options win. The first key exchange of OpenSSH
# costs ten times the CPU of this one, which matters for 24 hosts.
OPTIONS = (
    "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=15",  # with the key exchange
    "-o", "KexAlgorithms=^curve25519-sha256",
)  # fmt: skip
ALIVE_S = 2  # between two keep-alives, which find a cut cable


class Ssh:
    """One ssh client for each host."""

    def open(self, ask: Ask) -> Opened:
        hosts = hosts_of(ask.site, ask.has_origin)
        transports = [
            self.transport(ask.site, host)
            for host in dict.fromkeys(host for names in hosts.values() for host in names)
        ]
        fleet = Fleet(transports, ask.mark, ask.cgroups)
        try:
            return Opened(fleet, topology(ask.site, hosts, fleet))
        except BaseException:
            fleet.close()
            raise

    def transport(self, site: Site, host: str) -> Transport:
        return far_of(site, host)

    def foreseen(self, ask: Ask) -> Topology | None:
        return None


def far_of(site: Site, host: str) -> Transport:
    return Transport(
        host,
        ("ssh", *site.options, *OPTIONS, *alive(site.lease), "--", host),
        site.python,
        is_quoted=True,
        lease_s=site.lease,
        shares_files=False,
    )


def alive(lease_s: float) -> tuple[str, ...]:
    """Keep-alives that give up when the host's lease is over, and not before."""
    lost = max(3, math.ceil(lease_s / ALIVE_S))
    return ("-o", f"ServerAliveInterval={ALIVE_S}", "-o", f"ServerAliveCountMax={lost}")


def hosts_of(site: Site, has_origin: bool) -> dict[str, list[str]]:
    """role → its hosts; an origin without a host of its own lives with the generators."""
    hosts = {role: named(site_of_role, role) for role, site_of_role in by_role(site).items()}
    for role in ("server", "load"):
        if not hosts[role]:
            raise InputError(f'the site has no host for {role} (write {role} = {{ host = "…" }})')
    if not has_origin:
        hosts["origin"] = []
    elif not hosts["origin"]:
        hosts["origin"] = hosts["load"][:1]
    return hosts


def named(site: RoleSite, role: str) -> list[str]:
    hosts = [site.host, *site.hosts] if site.host else list(site.hosts)
    if role != "load" and len(hosts) > 1:
        raise InputError(f"the site's {role} has {len(hosts)} hosts (only load may have several)")
    return hosts


def topology(
    site: Site,
    hosts: dict[str, list[str]],
    fleet: Fleet,
) -> Topology:
    """Each host's cores go to its role; a host of several roles is split between them."""
    cores = {host.name: host.info["cores"] for host in fleet.all()}
    links = links_of(site) or {"network": Link("network")}
    addresses = {}
    for role, site_of_role in by_role(site).items():
        first = hosts[role][0] if hosts[role] else ""
        addresses[role] = addresses_of(site_of_role, list(links), first.rpartition("@")[2])
    return Topology(
        cores=cores,
        roles={
            role: [seat for host in hosts[role] for seat in _seats(site, role, host, hosts, cores)]
            for role in hosts
        },
        addresses=addresses,
        links=links,
        machines={host.name: host.info["boot_id"] for host in fleet.all()},
        has_onload=all(host.info["onload"] for host in fleet.all()),
        threads={host.name: ids_of(host.info, "threads") for host in fleet.all()},
        nodes={host.name: ids_of(host.info, "nodes") for host in fleet.all()},
    )


def _seats(
    site: Site, role: str, host: str, hosts: dict[str, list[str]], cores: dict[str, list[int]]
) -> list[Seat]:
    site_of_role = by_role(site)[role]
    if site_of_role.cores:
        check_cores(site_of_role.cores, cores[host], f"{role}.cores ({host})")
        return seats(host, site_of_role.cores)
    roles = [one for one in hosts if host in hosts[one]]
    if len(roles) > 1:
        return seats(host, roles_of(cores[host], "origin" in roles)[role])
    usable = [core for core in cores[host] if core not in site.housekeeping]
    # The first core is left for the agent, sshd and the kernel where there are others.
    return seats(host, usable[1:] if len(usable) >= 4 and not site.housekeeping else usable)
