"""Mistakes in a recipe that docs/mistakes/recipes.md does not show, and values that are right."""

import re
import subprocess
import sys

import pytest

from wirespeed.errors import InputError, RecipeError
from wirespeed.recipe import rates, read, site, sweep
from wirespeed.recipe.resolve import Place, Resolver
from wirespeed.topology import one_host

GOOD = """
wirespeed = 2
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
argv = ["./app", "--port", "{{ port }}"]
stack = "{{ stack }}"
ready = { http = "http://{{ server.addr }}:{{ port }}/" }
[[process]]
name = "gen"
role = "load"
tool = "load"
argv = ["-c", "{{ payload }}", "http://{{ server.addr }}:{{ app.port }}/"]
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
    text = GOOD.replace('argv = ["-c",', f'argv = [{word}, "-c",')
    with pytest.raises(RecipeError, match=r"process\.gen\.argv: .*write \{\{ duration \}\}"):
        read_text(tmp_path, text)


@pytest.mark.parametrize("option", ['"-R", "{0}"', '"-R{0}"', '"--rate", "{0}"', '"--rate={0}"'])
def test_a_rate_that_leaves_a_generator_without_requests_is_refused(tmp_path, option):
    """The second of two generators said "must be greater than 0" and named no key."""
    text = GOOD.replace('argv = ["-c",', f'count = 2\nargv = [{option.format(rates.SHARE)}, "-c",')
    path = tmp_path / "r.toml"
    path.write_text(text.replace("[axes]", "[axes]\nrate = [1, 2]"))
    recipe, where = read.read(path), Place(tmp_path, path, one_host({"server": [0], "load": [1]}))
    few, enough = (
        next(cell for cell in sweep.cells(recipe) if cell.axes["rate"] == rate) for rate in (1, 2)
    )
    line = r"process\.gen\.argv: generator 2 of 2 would send 0 requests per second \(raise the rate"
    with pytest.raises(RecipeError, match=line):
        Resolver(recipe, few, where).instances({})
    assert len(Resolver(recipe, enough, where).instances({})) == 3


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


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ("9" * 5000, "not TOML: Exceeds the limit"),
        ("[" * 3000 + "]" * 3000, "not TOML: maximum recursion depth"),
        ("inf", "inf is not a"),
        ("nan", "nan is not a"),
        ("2026-01-01", "datetime.date(2026, 1, 1) is not a"),
        ("2026-13-41", "not TOML"),
        ('"\\ud800"', "not TOML"),
    ],
)
def test_a_strange_value_is_one_line(tmp_path, value, line):
    with pytest.raises(RecipeError, match=re.escape(line)) as refused:
        read.read(written(tmp_path, "[16, 128]", f"[{value}]"))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("before", "after"),
    [("\ufeff", ""), ("\ufeff", "\r"), ("", "\r")],
    ids=["mark", "both", "CRLF"],
)
def test_files_of_editors_for_windows_are_read(tmp_path, before, after):
    path = tmp_path / "r.toml"
    path.write_bytes((before + GOOD.replace("\n", f"{after}\n")).encode())
    assert read.read(path).name == "good"
    (tmp_path / "sites.toml").write_bytes(f'{before}[site.lab]{after}\nkind = "local"\n'.encode())
    assert site.find("lab", [tmp_path]).kind == "local"


@pytest.mark.parametrize("text", ["caf\udce9", "9" * 5000, "[" * 3000])
def test_a_strange_setting_is_a_text(tmp_path, text):
    path = tmp_path / "r.toml"
    path.write_text(GOOD)
    with pytest.raises(RecipeError, match="note: unknown key"):
        read.read_with(path, [f"note={text}"], [tmp_path])


@pytest.mark.parametrize("name", ["rate", "count", "i"])
def test_an_axis_of_the_search_is_not_overwritten(name):
    """An axis `count` hid how many generators share a rate, and they offered a part of it."""
    with pytest.raises(InputError, match=f"axis '{name}' of its own"):
        added = f"payload = [16, 128]\n{name} = [1]"
        rates.at_rates(GOOD.replace("payload = [16, 128]", added), [1])
