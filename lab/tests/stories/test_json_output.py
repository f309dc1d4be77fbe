"""`--json`: every command that prints a result has it, and prints the documented fields."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from wirespeed.cli.app import app

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parents[1] / "docs" / "json-output.md"
WITHOUT = {"schema", "serve"}  # one prints JSON and nothing else, the other serves pages


def commands(group, prefix=""):
    """Every command of the option tables, `tune apply` as well as `run`."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{name} ")
        else:
            yield prefix + name, command


COMMANDS = dict(commands(get_command(app)))


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_that_prints_a_result_prints_it_for_programs(name):
    options = {option for parameter in COMMANDS[name].params for option in parameter.opts}
    assert ("--json" in options) == (name not in WITHOUT)


def documented():
    """Command → the rows of the page's table that it is named in: (kind, fields)."""
    found = {}
    for head, kind, fields in re.findall(
        r"^\| (`.*?) \| (.*?) \| (.*) \|$", PAGE.read_text(), re.M
    ):
        for name in re.findall(r"`([^`]+)`", head):
            found[name] = (kind, set(re.findall(r"`([^`]+)`", fields)))
    return found


DOCUMENTED = documented()


def test_the_page_has_every_command():
    assert set(DOCUMENTED) == set(COMMANDS) - WITHOUT | {"compare --run", "runs --prune"}


@pytest.fixture(scope="module")
def measured(new_checkout, tmp_path_factory):
    """A checkout with two runs of one recipe and a table of figures."""
    folder = tmp_path_factory.mktemp("json")
    checkout = new_checkout(folder)
    # `tune apply` finds one program that it may move, and leaves everything else alone.
    other = subprocess.Popen(["sleep", "5000"])
    checkout.environment["WIRESPEED_TUNE_UNDER"] = str(other.pid)
    checkout.environment["WIRESPEED_TUNED"] = str(folder / "tuned.json")
    recipe = checkout.recipe(connections=[1])
    for _ in range(2):
        code, _, err = checkout.call("run", recipe)
        assert code == 0, err
    table = checkout.root / "figures.csv"
    table.write_text("connections,rps,latency_mean_ms\n10,100,500\n")
    (checkout.root / "old.toml").write_text('wirespeed = 1\nname = "{old}"\n')
    checkout.call("baseline", "save", "gone")
    yield checkout
    checkout.call("tune", "restore")
    other.kill()
    other.wait()


SERVER = f"{sys.executable} {TESTS / 'fakes' / 'server.py'} --port {{port}}"
TYPED = {  # the command's words without --json; a {} stands for the recipe
    "run": ["run", "{}"],
    "report": ["report", "latest"],
    "compare --run": ["compare", "--run", SERVER, "--run", SERVER, "--port", "{port}",
                      "--repeat", "1", "--duration", "200ms", "--accept-noise",
                      "--method", "trials", "--connections", "1"],
    "plan": ["plan", "{}", "--commands"],
    "list": ["list"],
    "runs": ["runs"],
    "runs --prune": ["runs", "--prune"],
    "compare": ["compare", "latest", "latest"],
    "reproduce": ["reproduce", "latest", "--accept-noise"],
    "trend": ["trend", "--recipe", "story"],
    "doctor": ["doctor", "latest"],
    "query": ["query", "latest", "select rps, cell from trials"],
    "check": ["check", "{root}/figures.csv"],
    "audit": ["audit"],
    "recover": ["recover"],
    "knee": ["knee", "{}", "--require", "rps > 0", "--repeat", "1", "--accept-noise"],
    "tune apply": ["tune", "apply", "{}"],
    "tune status": ["tune", "status"],
    "tune restore": ["tune", "restore"],
    "init": ["init", "{root}/own.toml", "--command", SERVER, "--port", "{port}", "--force"],
    "upgrade": ["upgrade", "{root}/old.toml"],
    "baseline save": ["baseline", "save", "main"],
    "baseline list": ["baseline", "list"],
    "baseline remove": ["baseline", "remove", "gone"],
}  # fmt: skip
# Of these the keys are names of the user's: machines, files, baselines, columns.
NAMED = {"audit", "check", "tune status", "baseline save", "baseline list", "query"}


def test_every_command_is_called_here():
    assert set(TYPED) == set(DOCUMENTED)


@pytest.mark.parametrize("name", sorted(TYPED))
def test_a_command_prints_the_document_of_its_page_and_nothing_else(name, measured):
    recipe = measured.root / "recipes" / "story.toml"
    port = re.search(r"base = (\d+)", recipe.read_text())[1]
    if name == "tune restore":
        measured.call("tune", "apply", recipe)
    if name == "trend":  # other cases of this test measure other recipes
        measured.call("run", recipe)
    filled = {"{}": str(recipe), "{root}": str(measured.root), "{port}": port}
    words = [filled.get(word, word.replace("{root}", str(measured.root))) for word in TYPED[name]]
    code, out, err = measured.call(*words, "--json")
    # One trial of each cell decides nothing, so nothing is shown to be reproduced.
    assert code in ((3,) if name == "reproduce" else (0, 1)), err
    document = json.loads(out)
    kind, fields = DOCUMENTED[name]
    assert isinstance(document, dict if kind == "object" else list)
    rows = document if isinstance(document, list) else [document]
    assert rows, "an empty document proves nothing"
    if name not in NAMED:
        for row in rows:
            assert set(row) <= fields, row
    if name in ("run", "report", "plan", "compare", "reproduce", "compare --run", "init", "knee"):
        assert set(rows[0]) == fields
