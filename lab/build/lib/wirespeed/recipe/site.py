"""Sites: where things run. `here` is built in; others come from sites.toml."""

from __future__ import annotations

from pathlib import Path

from wirespeed.errors import InputError, RecipeError
from wirespeed.recipe.model import Site, Sites
from wirespeed.recipe.read import parse_toml, validated

HERE = Site(kind="local")


def find(name: str, folders: list[Path]) -> Site:
    """The named site of the first sites.toml that has it."""
    known = ["here"]
    for folder in folders:
        path = folder / "sites.toml"
        if not path.exists():
            continue
        sites = validated(Sites, parse_toml(path), path).site
        if name in sites:
            return _usable(name, sites[name], path)
        known += sites
    if name == "here":
        return HERE
    where = " or ".join(str(folder / "sites.toml") for folder in folders)
    raise InputError(f"--site: there is no site {name!r} in {where}; sites: {', '.join(known)}")


def _usable(name: str, site: Site, path: Path) -> Site:
    if site.kind != "local":
        raise RecipeError(
            path.name, f"site.{name}.kind", f'"{site.kind}" is not built yet; this lab runs "local"'
        )
    return site
