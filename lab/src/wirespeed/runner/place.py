"""Where a run happens: the checkout, the site's cores and addresses."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from wirespeed.recipe.model import Recipe, Site
from wirespeed.recipe.resolve import Place
from wirespeed.runner.fit import role_cores

LOOPBACK = "127.0.0.1"
JAVA_MAJOR_UNKNOWN = 17  # what the servers are built for


def root() -> Path:
    """The checkout: $WIRESPEED_ROOT, else found by walking up from here or the current folder."""
    if "WIRESPEED_ROOT" in os.environ:
        return Path(os.environ["WIRESPEED_ROOT"])
    for start in (Path(__file__).resolve(), Path.cwd()):
        for folder in (start, *start.parents):
            if (folder / "recipes").is_dir() and (folder / "wirespeed").is_file():
                return folder
    return Path.cwd()


def local(recipe: Recipe, recipe_file: Path, site: Site, checkout: Path) -> Place:
    cores = sorted(os.sched_getaffinity(0))
    return Place(
        root=checkout,
        recipe_file=recipe_file,
        addresses=_addresses(site),
        role_cores=role_cores(recipe, site, cores),
        site=site,
        java_major=java_major(),
    )


def _addresses(site: Site) -> dict[str, str]:
    roles = {"server": site.server, "load": site.load, "origin": site.origin}
    return {
        role: own.addr if isinstance(own.addr, str) and own.addr else LOOPBACK
        for role, own in roles.items()
    }


def java_major() -> int:
    """Read from the file beside the JVM: starting one to ask it costs a tenth of a second."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(f"{home}/bin/java" if home else "java")
    if not java:
        return JAVA_MAJOR_UNKNOWN
    release = Path(java).resolve().parent.parent / "release"
    for line in release.read_text().splitlines() if release.exists() else ():
        if line.startswith("JAVA_VERSION="):
            return int(line.split('"')[1].split(".")[0])
    return JAVA_MAJOR_UNKNOWN
