"""Files of published results that tables show next to the measured ones, kept with the run."""

from __future__ import annotations

import csv
import math
import shutil
from pathlib import Path

from wirespeed.errors import InputError
from wirespeed.recipe.model import Recipe

FOLDER = "published"  # of a run directory
COLUMNS = ("metric", "value", "unit")  # without which a row is not a figure
NUMBERS = ("value", "link_gbps")


def check(recipe: Recipe, recipe_file: Path, root: Path) -> None:
    """Refuses a recipe that names a file which is nowhere."""
    for number, table in enumerate(recipe.table):
        path = _found(table.published.file, recipe_file, root) if table.published else None
        if path and (problem := _problem(path)):
            where = f"{recipe_file.name}: table[{number}].published.file: {path.name}"
            raise InputError(f"{where}: {problem}")
        if table.published and not path:
            known = ", ".join(sorted(path.name for path in _shipped(root).glob("*.csv")))
            raise InputError(
                f"{recipe_file.name}: table[{number}].published.file: {table.published.file!r} "
                f"not found next to the recipe (files of the kit: {known})"
            )


def _problem(path: Path) -> str:
    """Why a file holds no figures that a report could show; empty when it does."""
    try:
        with path.open(newline="", encoding="utf-8") as lines:
            reader = csv.DictReader(lines)
            missing = [head for head in COLUMNS if head not in (reader.fieldnames or [])]
            if missing:
                return f"column {missing[0]!r} is missing (columns: {', '.join(COLUMNS)})"
            for row in reader:
                for head in NUMBERS:
                    if row.get(head) or head in COLUMNS:
                        _number(head, row[head], reader.line_num)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        return f"cannot be read as CSV: {error}"
    except ValueError as error:
        return str(error)
    return ""


def _number(head: str, text: str | None, line: int) -> None:
    try:
        is_number = math.isfinite(float(text or ""))
    except ValueError:
        is_number = False
    if not is_number:
        raise ValueError(f"line {line}: {head}: {text!r} is not a number")


def keep(recipe: Recipe, recipe_file: Path, root: Path, run_dir: Path) -> None:
    """Copies them into the run directory, so that its report can be made anywhere, and later."""
    for table in recipe.table:
        path = _found(table.published.file, recipe_file, root) if table.published else None
        if path:
            (run_dir / FOLDER).mkdir(exist_ok=True)
            shutil.copyfile(path, run_dir / FOLDER / path.name)


def _found(name: str, recipe_file: Path, root: Path) -> Path | None:
    """Next to the recipe, else one of the kit's."""
    if Path(name).name != name:
        return None
    places = [recipe_file.parent / name, _shipped(root) / name]
    return next((place for place in places if place.is_file()), None)


def _shipped(root: Path) -> Path:
    return root / "recipes" / "published"
