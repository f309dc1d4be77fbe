"""The capacity of a site's links: measured at a run's start, compared with what is declared."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass

from wirespeed.errors import HostError
from wirespeed.fleet.fleet import Fleet
from wirespeed.fleet.host import Host
from wirespeed.topology import Link, Topology

SECONDS = 0.4
TOLERANCE = 0.1  # of the declared rate; the rest is headers and a short measurement
PORTS = (20_000, 31_999)  # below the ephemeral range


@dataclass(frozen=True)
class Capacity:
    """One link as it was found, seen from the server's host."""

    link: Link
    interface: str
    to_load_bps: float
    to_server_bps: float
    mtu: int

    def text(self) -> str:
        declared = [f"{self.link.rate_bps / 1e9:g} Gb/s"] if self.link.rate_bps else []
        declared += [f"MTU {self.link.mtu}"] if self.link.mtu else []
        measured = (
            f"measured {self.to_load_bps / 1e9:.3g} Gb/s to the load, "
            f"{self.to_server_bps / 1e9:.3g} Gb/s to the server, MTU {self.mtu}"
        )
        return f"declared {', '.join(declared)}; {measured}" if declared else measured

    def differences(self) -> list[str]:
        """How it is not what the site file says; nothing when it is."""
        sentences = []
        link, rates = self.link, (self.to_load_bps, self.to_server_bps)
        if link.rate_bps and min(rates) < (1 - TOLERANCE) * link.rate_bps:
            sentences.append(
                f"link {link.name} is declared with {link.rate_bps / 1e9:g} Gb/s, "
                f"one stream reached {min(rates) / 1e9:.3g} Gb/s"
            )
        if link.rate_bps and max(rates) > (1 + TOLERANCE) * link.rate_bps:
            sentences.append(
                f"link {link.name} is declared with {link.rate_bps / 1e9:g} Gb/s "
                f"and carries {max(rates) / 1e9:.3g} Gb/s"
            )
        if link.mtu and link.mtu != self.mtu:
            declared = f"link {link.name} is declared with MTU {link.mtu}"
            sentences.append(f"{declared}, its MTU is {self.mtu}")
        return sentences

    def share(self, received_bps: float, sent_bps: float) -> float:
        """How full it is in its fuller direction, when the server's end receives and sends so much.

        A link is full at the rate that it is declared with, whatever one stream reached: in so
        short a time that is a few per cent more or less. 0 where only cores limit it, and where no
        rate is declared and it carries more than that stream: then its capacity is unknown.
        """
        if not self.link.is_limit:
            return 0.0
        shares = (received_bps / self._full(self.to_server_bps, received_bps),
                  sent_bps / self._full(self.to_load_bps, sent_bps))  # fmt: skip
        is_known = self.link.rate_bps is not None or max(shares) <= 1 + TOLERANCE
        return max(shares) if is_known else 0.0

    def _full(self, reached_bps: float, carried_bps: float) -> float:
        """The rate of one stream, at most the declared one, unless it is proven wrong;
        what is declared where one stream fell far short of it."""
        declared = self.link.rate_bps
        if declared is None or carried_bps > (1 + TOLERANCE) * declared:
            return max(reached_bps, 1.0)
        is_short = reached_bps < (1 - TOLERANCE) * declared
        return declared if is_short else min(reached_bps, declared)


def measured(fleet: Fleet, topology: Topology, names: Iterable[str]) -> dict[str, Capacity]:
    """Each of these links between the server's host and the first load host."""
    server, load = (fleet[topology.hosts(role)[0]] for role in ("server", "load"))
    capacities = {}
    for name in names:
        address = topology.address_of("server", name)
        back = one_way(fleet, load, server, address)
        capacities[name] = Capacity(
            topology.links[name],
            back[1],
            one_way_back(fleet, server, load, address),
            back[0],
            back[2],
        )
    return capacities


def one_way(fleet: Fleet, source: Host, sink: Host, address: str) -> tuple[float, str, int]:
    """(bits a second towards an address of the sink, the sink's interface, the path's MTU)."""
    port = random.randint(*PORTS)
    questions = [
        (sink, "link_receive", {"address": address, "port": port}),
        (source, "link_transmit", {"address": address, "port": port, "seconds": SECONDS}),
    ]
    try:
        sent = fleet.together(questions)[source.name]
    except HostError as error:
        raise HostError(
            f"{source.name} cannot reach {sink.name} at {address}: {error}; check the address of "
            "the server in the site file"
        ) from error
    return sent["bps"], sink.ask("interface_of", address=address), sent["mtu"]


def one_way_back(fleet: Fleet, source: Host, sink: Host, address: str) -> float:
    """Bits a second from the server: the address of the other end is asked of its own kernel."""
    back = sink.ask("source_of", address=address)
    return one_way(fleet, source, sink, back)[0]
