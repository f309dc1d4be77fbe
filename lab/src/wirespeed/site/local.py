"""This machine: server and generators on its loopback."""

from __future__ import annotations

import sys

from wirespeed.fleet.channel import Transport
from wirespeed.fleet.fleet import Fleet
from wirespeed.site.base import (
    Ask,
    Opened,
    addresses_of,
    by_role,
    links_of,
    own_cores,
    own_ids,
    seats,
    split,
)
from wirespeed.topology import LOCAL, LOOPBACK, Link, Topology

LOOPBACK_LINK = "loopback"


class Local:
    """One agent, started with this interpreter."""

    def open(self, ask: Ask) -> Opened:
        topology = self.foreseen(ask)
        return Opened(
            Fleet([Transport(LOCAL, python=sys.executable)], ask.mark, ask.cgroups), topology
        )

    def foreseen(self, ask: Ask) -> Topology:
        cores = own_cores()
        links = {LOOPBACK_LINK: Link(LOOPBACK_LINK), **links_of(ask.site)}
        return Topology(
            cores={LOCAL: cores},
            roles={
                role: seats(LOCAL, own)
                for role, own in split(ask.site, cores, ask.has_origin).items()
            },
            addresses={
                role: addresses_of(own, list(links), LOOPBACK)
                for role, own in by_role(ask.site).items()
            },
            links=links,
            threads={LOCAL: own_ids("threads")},
            nodes={LOCAL: own_ids("nodes")},
        )
