"""The table of kinds: a new kind of site is one line here, or an entry point of a package."""

from __future__ import annotations

from wirespeed import extensions
from wirespeed.site.base import Ask, Kind, Opened
from wirespeed.site.exec import Exec
from wirespeed.site.local import Local
from wirespeed.site.netns import Netns
from wirespeed.site.slurm import Slurm
from wirespeed.site.ssh import Ssh
from wirespeed.topology import Topology

KINDS: dict[str, Kind] = {
    "local": Local(), "netns": Netns(), "ssh": Ssh(), "slurm": Slurm(), "exec": Exec(),
}  # fmt: skip


def _kind(name: str) -> Kind:
    added: Kind = KINDS.get(name) or extensions.load(extensions.SITES, name)
    return added


def open_site(ask: Ask) -> Opened:
    """Starts the site's agents and puts its links up."""
    return _kind(ask.site.kind).open(ask)


def topology(ask: Ask) -> Topology:
    """The site's topology; its hosts are asked where the site file does not say enough."""
    kind = _kind(ask.site.kind)
    foreseen = kind.foreseen(ask)
    if foreseen is not None:
        return foreseen
    opened = kind.open(ask)
    opened.fleet.close()
    return opened.topology
