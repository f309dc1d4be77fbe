"""Where a run happens: the checkout, and the hosts of the site."""

from __future__ import annotations

import os
from pathlib import Path

from wirespeed.recipe.model import Recipe, Site
from wirespeed.recipe.resolve import Place
from wirespeed.runner import java
from wirespeed.topology import Topology


def root() -> Path:
    """The checkout: $WIRESPEED_ROOT, else found by walking up from here or the current folder."""
    if "WIRESPEED_ROOT" in os.environ:
        return Path(os.environ["WIRESPEED_ROOT"])
    for start in (Path(__file__).resolve(), Path.cwd()):
        for folder in (start, *start.parents):
            if (folder / "recipes").is_dir() and (folder / "wirespeed").is_file():
                return folder
    return Path.cwd()


def at(recipe: Recipe, recipe_file: Path, site: Site, checkout: Path, topology: Topology) -> Place:
    """The place of a recipe's programs on a site."""
    here = Place(root=checkout, recipe_file=recipe_file, topology=topology, site=site)
    return java.chosen(recipe, here)
