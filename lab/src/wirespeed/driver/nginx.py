"""Configuration files rendered from a recipe's templates; for NGINX with cores as its masks."""

from __future__ import annotations

from pathlib import Path

from wirespeed import template
from wirespeed.driver.base import Command, Instance
from wirespeed.errors import RecipeError
from wirespeed.recipe.resolve import template_file


def command(instance: Instance, recipe_file: Path, folder: Path) -> Command:
    for name, source in instance.template.items():
        file = template_file(instance.label, name)
        if any(file in word for word in instance.argv):
            render(recipe_file, instance, name, source, folder / file)
    return Command(instance.argv)


def render(recipe_file: Path, instance: Instance, name: str, source: str, target: Path) -> None:
    """Fills one template; a name that does not exist is an error, never an empty text."""
    path = recipe_file.parent / source
    key = f"process.{instance.name}.template.{name}"
    variables = {**instance.variables, "affinity": affinity(instance)}
    try:
        text = template.file_of(path.read_text(encoding="utf-8"), variables)
    except OSError as error:
        raise RecipeError(recipe_file.name, key, f"{path}: {error.strerror}") from error
    except template.BadTemplateError as error:
        raise RecipeError(recipe_file.name, key, f"{path}: {error}") from error
    target.write_text(text, encoding="utf-8")


def names_of(path: Path) -> set[str]:
    """The variables of a template; none of one that cannot be read, as its start will show."""
    try:
        return template.names_of(path.read_text(encoding="utf-8"))
    except (OSError, template.BadTemplateError):
        return set()


def affinity(instance: Instance) -> str:
    """worker_cpu_affinity: one mask a worker, cores dealt in order."""
    workers = int(instance.variables["workers"])
    cores = instance.cores
    if not cores:
        return "auto"
    return " ".join(format(1 << cores[i % len(cores)], "b") for i in range(workers))
