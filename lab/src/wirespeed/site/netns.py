"""Several hosts on one machine: network namespaces and veth links with a declared rate and MTU.

The namespaces have no names: each lives as long as the processes in it, and its interfaces with it,
so that nothing is left however a run ends. Generators beyond the first host get macvlan interfaces
on its end of the link, as several hosts on one cable.
"""

from __future__ import annotations

import re
import sys
from dataclasses import replace

from wirespeed.errors import HostError, InputError
from wirespeed.fleet.channel import Transport
from wirespeed.fleet.fleet import Fleet
from wirespeed.fleet.host import Host
from wirespeed.site.base import Ask, Opened, links_of, own_cores, own_ids, seats, split
from wirespeed.topology import Link, Topology

MACHINE = "machine"  # the agent outside the namespaces, for settings of the kernel
SERVER, ORIGIN = "server", "origin"
NETS_MAX = 60  # 10.77.0 to 10.77.59 for links
ORIGIN_ADDRESS = "10.77.100.2"
DIRECT_NET = "10.77.101"  # between generators and origin
BURST_S = 0.002  # of a capped link: what may pass at once; smaller bursts do not reach the rate
BURST_BYTES_MIN = 256 << 10  # segments of 64 KiB travel whole
QUEUES_MAX = 8


class Netns:
    """One agent in each namespace, and one outside."""

    def open(self, ask: Ask) -> Opened:
        topology = self.foreseen(ask)
        transports = [Transport(MACHINE, python=sys.executable, is_seat=False)]
        for name in topology.cores:
            transports.append(
                Transport(name, ("unshare", "--net", "--"), sys.executable, has_own_network=True)
            )
        try:
            fleet = Fleet(transports, ask.mark, ask.cgroups)
        except HostError as error:
            raise HostError(f"the site {ask.name} needs root for its namespaces: {error}") from None
        try:
            wire(fleet, topology)
        except BaseException:
            fleet.close()
            raise
        return Opened(fleet, topology)

    def foreseen(self, ask: Ask) -> Topology:
        cores = own_cores()
        count = ask.site.load.count
        generators = ["load"] if count == 1 else [f"load-{number}" for number in range(count)]
        hosts = [SERVER, *generators, *([ORIGIN] if ask.has_origin else [])]
        parts = split(ask.site, cores, ask.has_origin)
        links = _numbered(links_of(ask.site))
        return Topology(
            cores={host: cores for host in hosts},
            roles={
                "server": seats(SERVER, parts["server"]),
                "load": [seat for host in generators for seat in seats(host, parts["load"])],
                "origin": seats(ORIGIN, parts["origin"]) if ask.has_origin else [],
            },
            addresses={
                "server": {name: f"{link.net}.1" for name, link in links.items()},
                "load": {name: f"{link.net}.101" for name, link in links.items()},
                "origin": {name: ORIGIN_ADDRESS for name in links},
            },
            links=links,
            machines={host: MACHINE for host in hosts},
            threads={host: own_ids("threads") for host in hosts},
            nodes={host: own_ids("nodes") for host in hosts},
        )


def _numbered(links: dict[str, Link]) -> dict[str, Link]:
    """Each link with a network and interfaces of its own."""
    links = links or {"veth": Link("veth")}
    if len(links) > NETS_MAX:
        raise InputError(f"a site has at most {NETS_MAX} links")
    named: dict[str, Link] = {}
    taken = {"lo", "origin", "direct"}
    for number, (name, link) in enumerate(links.items()):
        interface = re.sub(r"[^A-Za-z0-9]", "", name)[:10] or f"link{number}"
        interface = f"{interface}x{number}" if interface in taken else interface
        taken.add(interface)
        named[name] = replace(
            link,
            server=interface,
            load=interface,
            net=f"10.77.{number}",
            is_limit=link.rate_bps is not None,
            is_shaped=link.rate_bps is not None,
        )
    return named


def wire(fleet: Fleet, topology: Topology) -> None:
    """Puts up the interfaces; the first host of each pair makes the pair."""
    for host in fleet.seats:
        run(host, "ip link set lo up")
        do_not_pace(host)
    server = fleet[SERVER]
    generators = [fleet[name] for name in topology.hosts("load")]
    for link in topology.links.values():
        cable(server, generators, link)
    if topology.roles["origin"]:
        origin, first = fleet[ORIGIN], next(iter(topology.links.values()))
        pair(server, origin, "origin", "10.77.100.1", ORIGIN_ADDRESS, replace(first, rate_bps=None))
        # Cells without the server: generators reach the origin over a link like that to the server.
        cable(origin, generators, replace(first, load="direct", server="direct", net=DIRECT_NET))
        for host in generators:
            run(host, f"ip route add {ORIGIN_ADDRESS} via {DIRECT_NET}.1")


def do_not_pace(host: Host) -> None:
    """Gives a namespace of a machine with BBR another congestion control, until a recipe says more.

    BBR's timer for each segment makes the kernel's stack look several times slower than it is on a
    link without queues. Not every machine lets a namespace have CUBIC; Reno is always allowed.
    """
    control = "/proc/sys/net/ipv4/tcp_congestion_control"
    change = f"grep -q bbr {control} || exit 0; echo cubic >{control} || echo reno >{control}"
    done = host.ask("run", argv=["sh", "-c", change], env={"PATH": "/usr/bin:/bin"})
    if done["code"] != 0:
        raise HostError(f"{host.name}: congestion control: {done['err'].strip()}")


def cable(near: Host, generators: list[Host], link: Link) -> None:
    """One end at `near`, the other shared by all generators; the first has the interface."""
    first, *others = generators
    pair(near, first, link.load, f"{link.net}.1", f"{link.net}.101", link)
    for number, host in enumerate(others, 102):
        pid = host.info["pid"]
        run(first, f"ip link add mv{number} link {link.load} netns {pid} type macvlan mode bridge")
        run(host, f"ip link set mv{number} name {link.load}")
        run(host, f"ip address add {link.net}.{number}/24 dev {link.load}")
        run(host, f"ip link set {link.load} up")


def pair(near: Host, far: Host, name: str, near_ip: str, far_ip: str, link: Link) -> None:
    """A veth pair between two namespaces, with the link's MTU and rate in both directions."""
    queues = link.queues or min(QUEUES_MAX, len(near.info["cores"]))
    several = f"numtxqueues {queues} numrxqueues {queues}"
    pid = far.info["pid"]
    run(near, f"ip link add {name} {several} type veth peer name {name} netns {pid} {several}")
    for host, address in ((near, near_ip), (far, far_ip)):
        if link.mtu:
            run(host, f"ip link set {name} mtu {link.mtu}")
        run(host, f"ip address add {address}/24 dev {name}")
        run(host, f"ip link set {name} up")
        if link.rate_bps:
            burst = int(max(BURST_BYTES_MIN, link.rate_bps / 8 * BURST_S))
            run(
                host,
                f"tc qdisc replace dev {name} root tbf rate {int(link.rate_bps)}bit "
                f"burst {burst} latency 5ms",
            )


def run(host: Host, command: str) -> None:
    argv = command.split()
    done = host.ask("run", argv=argv, env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"})
    if done["code"] != 0:
        raise HostError(f"{host.name}: {command}: {done['err'].strip()}")
