"""The commands that the documents show are commands that exist."""

import re
import subprocess

import pytest
from rooms import ROOT

PAGES = sorted(path for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/*.md")])


def shown_commands(page):
    """Every `./wirespeed …` in a console block: its words."""
    for block in re.findall(r"```console\n(.*?)```", page.read_text(), re.S):
        yield from (line[2:].split() for line in block.splitlines()
                    if line.startswith("$ ./wirespeed"))


def known_commands():
    text = (ROOT / "wirespeed").read_text()
    return set(re.search(r'^COMMANDS = "([^"]+)"', text, re.M)[1].split())


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_shown_commands_and_recipes_exist(page):
    for words in shown_commands(page):
        assert words[1] in known_commands(), words
        if words[1] in ("run", "plan") and re.fullmatch(r"\w[\w-]*", "".join(words[2:3])):
            assert (ROOT / "recipes" / f"{words[2]}.toml").exists(), words


def test_the_readme_shows_both_commands():
    text = (ROOT / "README.md").read_text()
    assert "$ ./wirespeed run quickstart\n" in text
    assert "$ ./test\n" in text


def test_the_front_door_knows_every_command_of_the_lab():
    done = subprocess.run([ROOT / "build" / "venv" / "bin" / "wirespeed", "--help"],
                          capture_output=True, text=True, check=True)
    listed = set(re.findall(r"^│ (\w+) ", done.stdout, re.M))
    assert listed <= known_commands()
    assert {"run", "plan", "report", "list", "runs"} <= listed
