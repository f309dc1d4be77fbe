"""Where a run happens: the checkout, the site's cores and addresses."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from wirespeed.recipe.model import Recipe, Site
from wirespeed.recipe.resolve import Place
from wirespeed.runner import java
from wirespeed.runner.fit import role_cores

LOOPBACK = "127.0.0.1"


def root() -> Path:
    """The checkout: $WIRESPEED_ROOT, else found by walking up from here or the current folder, else
    the installed tree that the command `bypass` belongs to."""
    if "WIRESPEED_ROOT" in os.environ:
        return Path(os.environ["WIRESPEED_ROOT"])
    for start in (Path(__file__).resolve(), Path.cwd()):
        for folder in (start, *start.parents):
            if (folder / "recipes").is_dir() and (folder / "wirespeed").is_file():
                return folder
    return installed() or Path.cwd()


def installed() -> Path | None:
    """The installed tree, found through the command `bypass` on the path: it lies in its
    target/release."""
    program = shutil.which("bypass")
    folder = Path(program).resolve().parents[2] if program else None
    return folder if folder and (folder / "INSTALLED").is_file() else None


def local(recipe: Recipe, recipe_file: Path, site: Site, checkout: Path) -> Place:
    cores = sorted(os.sched_getaffinity(0))
    here = Place(
        root=checkout,
        recipe_file=recipe_file,
        addresses=_addresses(site),
        role_cores=role_cores(recipe, site, cores),
        site=site,
    )
    return java.chosen(recipe, here)


def _addresses(site: Site) -> dict[str, str]:
    roles = {"server": site.server, "load": site.load, "origin": site.origin}
    return {
        role: own.addr if isinstance(own.addr, str) and own.addr else LOOPBACK
        for role, own in roles.items()
    }
