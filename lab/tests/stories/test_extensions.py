"""A package that is installed next to the lab adds a generator, a kind of site and a reporter."""

import os
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "extensions.md"
SITE = """
from wirespeed.site.local import Local

class Cluster(Local):
    def open(self, ask):
        print("options", *ask.site.options, flush=True)
        return super().open(ask)
"""
TOOL = """#!/bin/sh
# Ten requests, as the generator of the page prints them.
echo '{"rps": 10.0, "requests": 10, "connections": 1}'
sleep 0.3
"""
ENTRY_POINTS = """
[wirespeed.generators]
my-load = my_package.generator:GENERATOR
load = my_package.gone:NOTHING
[wirespeed.sites]
lab-cluster = my_package.site:CLUSTER
[wirespeed.reporters]
history = my_package.reporter:report
broken = my_package.reporter:no_such_name
"""


@pytest.fixture
def package(checkout, tmp_path):
    """The package of docs/extensions.md, as pip leaves one: a folder and its metadata."""
    generator, reporter = (
        next(block for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
             if word in block)
        for word in ("GENERATOR =", "def report")
    )  # fmt: skip
    folder = tmp_path / "site-packages"
    (folder / "my_package").mkdir(parents=True)
    (folder / "my_package" / "__init__.py").touch()
    (folder / "my_package" / "generator.py").write_text(generator)
    (folder / "my_package" / "site.py").write_text(SITE + "\nCLUSTER = Cluster()\n")
    (folder / "my_package" / "reporter.py").write_text(reporter)
    metadata = folder / "my_package-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    paths = [str(folder), checkout.environment.get("PYTHONPATH", "")]
    checkout.environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    tool = tmp_path / "my-load"
    tool.write_text(TOOL)
    tool.chmod(0o755)
    return tool


def recipe_of(checkout, tool):
    path = checkout.recipe(connections=[1], duration="300ms")
    text = path.read_text().replace('tool = "load"', 'tool = "my-load"')
    start = text.index("argv = ", text.index('"my-load"'))
    end = text.index("]\n", start) + 1
    path.write_text(text[:start] + f'argv = ["{tool}"]' + text[end:])
    return path


def test_generator_site_and_reporter_of_a_package_are_used(checkout, package):
    sites = checkout.root / "sites.toml"
    sites.write_text('[site.far]\nkind = "lab-cluster"\noptions = ["--queue", "fast"]\n')
    code, out, err = checkout.call("run", recipe_of(checkout, package), "--site", "far")
    assert code == 0, err
    assert "options --queue fast" in out
    (trial,) = checkout.trials()
    assert trial["valid"] and trial["metrics"]["rps"] == 10.0
    assert (checkout.latest / "derived" / "best.txt").read_text() == "10\n"
    assert "reporter broken: " in err and "(the report is complete)" in err
    assert "no_such_name" in err and "Traceback" not in err


def test_a_package_does_not_replace_a_generator_of_the_lab(checkout, package):
    code, _, err = checkout.call("run", checkout.recipe(connections=[1]))
    assert code == 0, err
    assert checkout.trials()[0]["metrics"]["rps"] != 10.0


def test_without_the_package_its_names_are_unknown(checkout, tmp_path):
    code, _, err = checkout.call("run", recipe_of(checkout, tmp_path / "my-load"))
    assert code == 2 and "process.gen.tool: 'my-load' is not one of 'load', 'wrk'" in err
