"""One Java for a run: the default, or the newest installed one when a cell asks for it."""

from dataclasses import replace
from pathlib import Path

import pytest

from wirespeed.recipe.model import Recipe
from wirespeed.recipe.resolve import Place, Resolver
from wirespeed.recipe.sweep import cells
from wirespeed.runner import java
from wirespeed.topology import Seat, one_host, roles_of


def recipe_of(required):
    return Recipe.model_validate(
        {
            "wirespeed": 2,
            "name": "jvm",
            "axes": {"gateway": ["old", "new"]},
            "axis": {"gateway": {"old": {}, "new": {"java": required}}},
            "process": [
                {"name": "app", "role": "server", "argv": ["java", "-version"],
                 "requires": {"java": "{{ gateway.java }}"}},
                {"name": "gen", "role": "load", "tool": "load", "argv": ["x"]},
            ],
        }
    )  # fmt: skip


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Java 17 is the default, 21 and 25 are installed too."""
    for major in (17, 21, 25):
        home = tmp_path / f"jdk-{major}"
        (home / "bin").mkdir(parents=True)
        (home / "bin/java").write_text("#!/bin/sh\n")
        (home / "bin/java").chmod(0o755)
        (home / "release").write_text(f'JAVA_VERSION="{major}.0.1"\n')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk-17"))
    return tmp_path


def place_of(recipe):
    return Place(Path("/nowhere"), Path("r.toml"), one_host(roles_of([0, 1], False)))


@pytest.mark.parametrize(("required", "major"), [(17, 17), (21, 25), (26, 17)])
def test_the_newest_java_serves_every_cell_when_one_needs_it(installed, required, major):
    recipe = recipe_of(required)
    place = java.chosen(recipe, place_of(recipe), installed)
    assert place.java_major == major
    assert place.java == str(installed / f"jdk-{major}/bin/java")
    for cell in cells(recipe):
        first = Resolver(recipe, cell, place).instances(
            {"app-0": [Seat("here", 0)], "gen-0": [Seat("here", 1)]}
        )[0]
        assert (first.argv[0], first.tool) == (place.java, "jvm")


def test_a_program_that_no_installed_java_can_run_is_reported(installed):
    recipe = recipe_of(26)
    place = java.chosen(recipe, place_of(recipe), installed)
    unmet = [Resolver(recipe, cell, place).unmet() for cell in cells(recipe)]
    assert unmet == ["", "app needs Java 26, here is Java 17"]


def test_a_recipe_that_asks_for_none_gets_the_default(installed):
    recipe = recipe_of(17)
    plain = [process.model_copy(update={"requires": type(process.requires)()})
             for process in recipe.process]  # fmt: skip
    recipe = recipe.model_copy(update={"process": plain})
    place = java.chosen(recipe, replace(place_of(recipe), java="?"), installed)
    assert place.java_major == 17
