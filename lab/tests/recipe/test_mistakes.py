"""Mistakes in a recipe that docs/mistakes/recipes.md does not show, and values that are right."""

import subprocess
import sys

import pytest

from wirespeed.errors import RecipeError
from wirespeed.recipe import read

GOOD = """
wirespeed = 1
name = "good"
[axes]
payload = [16, 128]
stack = ["kernel", "balanced"]
[axis.payload]
16 = { file = "small" }
[plan]
repeat = 5
duration = "10s"
baseline = { stack = "kernel" }
[stacks.kernel]
[stacks.balanced]
provider = "auto"
[[process]]
name = "app"
role = "server"
port = { base = 8000 }
argv = ["./app", "--port", "{port}"]
stack = "{stack}"
ready = { http = "http://{server.addr}:{port}/" }
[[process]]
name = "gen"
role = "load"
tool = "load"
argv = ["-c", "{payload}", "http://{server.addr}:{app.port}/"]
[[metric]]
name = "rps"
from = "gen"
[[table]]
rows = "payload"
columns = "stack"
value = "rps"
gain = { over = "kernel" }
"""


def written(tmp_path, right, wrong, text=GOOD):
    assert right in text
    path = tmp_path / "r.toml"
    path.write_text(text.replace(right, wrong, 1))
    return path


def test_the_good_recipe_is_good(tmp_path):
    path = tmp_path / "r.toml"
    path.write_text(GOOD)
    assert read.read(path).name == "good"


def test_the_command_prints_the_line_and_exits_with_status_2(tmp_path):
    path = written(tmp_path, "repeat = 5", "repeats = 5")
    command = [sys.executable, "-m", "wirespeed", "run", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=180)
    assert done.returncode == 2
    assert done.stderr == "wirespeed: r.toml: plan.repeats: unknown key (did you mean 'repeat'?)\n"
    assert done.stdout == ""


def test_a_recipe_typed_as_a_command_shows_how_to_measure_it():
    command = [sys.executable, "-m", "wirespeed", "quickstart"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=180)
    assert done.returncode == 2
    line = "quickstart: a recipe, not a command (measure it with: wirespeed run quickstart)"
    assert done.stderr == f"wirespeed: {line}\n"


@pytest.mark.parametrize("name", ["net core", "../etc/passwd", "NET.x", "net..x", ""])
def test_an_invalid_name_of_a_sysctl_is_refused_before_anything_starts(tmp_path, name):
    path = tmp_path / "r.toml"
    path.write_text(GOOD + f'\n[tune]\nsysctl = {{ "{name}" = 1 }}\n')
    with pytest.raises(RecipeError, match=r"r\.toml: tune\.sysctl"):
        read.read(path)


def read_text(tmp_path, text):
    path = tmp_path / "some.toml"
    path.write_text(text)
    return read.read(path)


@pytest.mark.parametrize("cores", ['"banana"', '"1"', '"0-1"', "[0, 0]", "[]", '"from x"', "[-1]"])
def test_cores_that_name_none_are_refused(tmp_path, cores):
    text = GOOD.replace('role = "server"', f'role = "server"\npin = {{ cores = {cores} }}')
    with pytest.raises(RecipeError, match=r"process\.app\.pin\.cores: .* does not select cores"):
        read_text(tmp_path, text)


@pytest.mark.parametrize("cores", ['"from 0"', '"all"', "[2, 3]"])
def test_cores_that_are_right(tmp_path, cores):
    read_text(
        tmp_path, GOOD.replace('role = "server"', f'role = "server"\npin = {{ cores = {cores} }}')
    )


@pytest.mark.parametrize("word", ['"-d", "10s"', '"-d10s"', '"--duration=10s"'])
def test_a_generators_own_duration_is_refused(tmp_path, word):
    text = GOOD.replace('argv = ["-c", "{payload}"', f'argv = [{word}, "-c", "{{payload}}"')
    with pytest.raises(RecipeError, match=r"process\.gen\.argv: .*write \{duration\}"):
        read_text(tmp_path, text)


def test_a_mistake_in_a_process_names_it(tmp_path):
    text = GOOD.replace('argv = ["./app"', 'argvv = ["./app"')
    with pytest.raises(RecipeError, match=r"process\.app\.argvv: unknown key"):
        read_text(tmp_path, text)


@pytest.mark.parametrize(
    ("right", "wrong", "line"),
    [
        ("[axes]", "[axes]\nint = [{ a = 1 }]", r"axes\.int\[0\]: .* is not a string"),
        ("[axes]", "[axes]\nlist = 3.5", r"axes\.list: 3\.5 is not a list"),
        ("[stacks.kernel]", "[stacks.kernel]\nstr = 1", r"stacks\.kernel\.str: unknown key"),
    ],
)
def test_a_key_that_has_the_name_of_a_type_is_named(tmp_path, right, wrong, line):
    """It was left out of the message as the name of a member of a union."""
    path = written(tmp_path, right, wrong)
    with pytest.raises(RecipeError, match=line):
        read.read(path)
