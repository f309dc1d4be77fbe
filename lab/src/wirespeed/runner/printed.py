"""Files of printed figures that tables show beside ours: found, and kept with the run."""

from __future__ import annotations

import shutil
from pathlib import Path

from wirespeed.errors import InputError
from wirespeed.recipe.model import Recipe

FOLDER = "published"  # of a run directory


def check(recipe: Recipe, recipe_file: Path, root: Path) -> None:
    """Refuses a recipe that names a file which is nowhere."""
    for number, table in enumerate(recipe.table):
        if table.published and not _found(table.published.file, recipe_file, root):
            known = ", ".join(sorted(path.name for path in _shipped(root).glob("*.csv")))
            raise InputError(
                f"{recipe_file.name}: table[{number}].published.file: there is no "
                f"{table.published.file!r} beside the recipe, nor among the kit's: {known}"
            )


def keep(recipe: Recipe, recipe_file: Path, root: Path, run_dir: Path) -> None:
    """Copies them into the run directory, so that its report can be made anywhere, and later."""
    for table in recipe.table:
        path = _found(table.published.file, recipe_file, root) if table.published else None
        if path:
            (run_dir / FOLDER).mkdir(exist_ok=True)
            shutil.copyfile(path, run_dir / FOLDER / path.name)


def _found(name: str, recipe_file: Path, root: Path) -> Path | None:
    """Beside the recipe, else one of the kit's."""
    if Path(name).name != name:
        return None
    places = [recipe_file.parent / name, _shipped(root) / name]
    return next((place for place in places if place.is_file()), None)


def _shipped(root: Path) -> Path:
    return root / "recipes" / "published"
