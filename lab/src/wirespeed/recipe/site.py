"""Sites: where things run. `here` and `netns` are built in; others come from sites.toml."""

from __future__ import annotations

from pathlib import Path

from wirespeed.errors import InputError
from wirespeed.recipe.model import Site, Sites
from wirespeed.recipe.read import parse_toml, validated

# The links of the published tables, a tenth of their speed: what one machine can carry.
SHIPPED = {
    "here": Site(kind="local"),
    "netns": Site.model_validate(
        {
            "kind": "netns",
            "link": {
                "veth": {"mtu": 1500, "queues": 1},
                "25G": {"rate": "2.5gbit", "mtu": 1500, "speed": "25G"},
                "100G": {"rate": "10gbit", "mtu": 1500, "speed": "100G"},
            },
        }
    ),
}


def find(name: str, folders: list[Path]) -> Site:
    """The named site of the first sites.toml that has it, else a shipped one."""
    known = list(SHIPPED)
    for folder in folders:
        path = folder / "sites.toml"
        if not path.exists():
            continue
        sites = validated(Sites, parse_toml(path), path).site
        if name in sites:
            return sites[name]
        known += sites
    if name in SHIPPED:
        return SHIPPED[name]
    where = " or ".join(str(folder / "sites.toml") for folder in dict.fromkeys(folders))
    raise InputError(
        f"--site: unknown site {name!r} (sites in {where}: {', '.join(dict.fromkeys(known))})"
    )
