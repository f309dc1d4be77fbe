"""Where a run happens: the checkout, and the hosts of the site."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from wirespeed.errors import InputError
from wirespeed.recipe.model import Recipe, Site
from wirespeed.recipe.resolve import Place
from wirespeed.runner import java
from wirespeed.topology import Topology


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
    for folder in Path(program).resolve().parents[2:3] if program else ():
        if (folder / "INSTALLED").is_file():
            return folder
    return None


def runs_folder() -> Path:
    """Where runs are kept unless somebody says otherwise; nothing is written into an installed
    tree, which the next upgrade replaces."""
    checkout = root()
    if not (checkout / "INSTALLED").is_file():
        return checkout / "runs"
    try:
        data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    except RuntimeError:  # a container's user without a name and a home
        raise InputError("this user has no home for runs: name a folder with --runs") from None
    return Path(data) / "wirespeed" / "runs"


def at(recipe: Recipe, recipe_file: Path, site: Site, checkout: Path, topology: Topology) -> Place:
    """The place of a recipe's programs on a site."""
    here = Place(root=checkout, recipe_file=recipe_file, topology=topology, site=site)
    return java.chosen(recipe, here)
