"""The Java of a run: one for all of its programs, so that no contender has a better compiler.

The default is $JAVA_HOME's or the PATH's. When a cell asks for a newer one, the newest installed
Java that is found takes its place, for every cell of the recipe.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from wirespeed.recipe import sweep
from wirespeed.recipe.model import Recipe
from wirespeed.recipe.resolve import Place, Resolver

INSTALLED = Path("/usr/lib/jvm")  # where Linux distributions install them
MAJOR_UNKNOWN = 17  # what the servers are built for


@dataclass(frozen=True)
class Java:
    program: str
    major: int


def chosen(recipe: Recipe, place: Place, installed: Path = INSTALLED) -> Place:
    """The place with the Java that this recipe gets."""
    java = default()
    place = replace(place, java=java.program, java_major=java.major)
    if not any(process.requires.java for process in recipe.process):
        return place
    needed = max((_needed(recipe, cell, place) for cell in sweep.cells(recipe)), default=0)
    newest = max(_all(installed), key=lambda found: found.major, default=java)
    if java.major >= needed or newest.major < needed:
        return place
    return replace(place, java=newest.program, java_major=newest.major)


def _needed(recipe: Recipe, cell: sweep.SweepPoint, place: Place) -> int:
    return max(Resolver(recipe, cell, place).javas().values(), default=0)


def default() -> Java:
    home = os.environ.get("JAVA_HOME")
    program = shutil.which(f"{home}/bin/java" if home else "java")
    if not program:
        return Java("java", MAJOR_UNKNOWN)
    return Java(program if home else "java", _major(Path(program)))


def _all(installed: Path) -> list[Java]:
    return [Java(str(program), _major(program)) for program in installed.glob("*/bin/java")]


def _major(java: Path) -> int:
    """Read from the file next to the JVM: starting one to ask it costs a tenth of a second."""
    release = java.resolve().parent.parent / "release"
    for line in release.read_text(encoding="utf-8").splitlines() if release.exists() else ():
        if line.startswith("JAVA_VERSION="):
            return int(line.split('"')[1].split(".")[0])
    return MAJOR_UNKNOWN
