"""`wirespeed upgrade`: recipes of format 1 mean the same in format 2, and keep their layout."""

import json
import shutil
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from wirespeed.cli.app import app
from wirespeed.errors import RecipeError
from wirespeed.recipe import read, sweep, upgrade
from wirespeed.recipe.resolve import Place, Resolver
from wirespeed.template import arguments_of, value_of
from wirespeed.topology import one_host

OLD_RUNS = Path(__file__).parents[1] / "analysis" / "old_runs"
OLD = """\
# Comments stay: {payload} too.
wirespeed = 1   # the format
name = "old"
title = "a {title} that was never filled in"
[axes]
payload = [1000, 3000]
close = [true, false]
"my-x" = [1]
[axis.payload]
1000 = { file = "small", heap = ["-Xmx{payload}m", "-Xms1m"] }
3000 = { file = 'large' }
[stacks.kernel]
[[process]]   # "a comment with quotes"
name = "my-app"
role = "server"
count = "{payload >= 2000 and close ? 2 : 1}"
port = { base = 8000 }
argv = ["./app", "{payload.heap}", "--port", "{port}", '{close ? -k}', '{{"a": {payload}}}',
        "{payload.file ? is {payload.file} : none}", "{{port}}", "{my-x}", "it's"]
env = { SIZE = '{payload / count}', TEXT = \"\"\"
two {payload}
lines\"\"\" }
ready = { log = "up {2}" }
[[process]]
name = "gen"
role = "load"
tool = "load"
argv = ["-c", "{(payload / 300) * 2 + 1}", "http://{server.addr}:{my-app[i].port}/"]
[[metric]]
name = "rps"
from = "gen"
[[table]]
title = "{payload:,} bytes over {link}, {gone}"
rows = "close"
value = "rps"
"""


def converted(text):
    data = {"axes": {"payload": [1]}, "process": [{"name": "http"}]}
    language = upgrade._Language(data, "f", data)
    return language.converted(("process", 0, "argv", 0), text)


def instances(path, place_at=0):
    recipe = read.read(path)
    cell = sweep.cells(recipe)[place_at]
    where = Place(path.parent, path, one_host({"server": [0, 1], "load": [2, 3]}))
    return Resolver(recipe, cell, where).instances({})


def test_a_converted_recipe_means_what_it_meant(tmp_path):
    path = tmp_path / "old.toml"
    path.write_text(OLD)
    done = CliRunner().invoke(app, ["upgrade", str(path)])
    assert done.exit_code == 0, done.output
    app_, gen = instances(path)
    assert app_.argv[1:] == [
        "-Xmx1000m", "-Xms1m", "--port", "8000", "-k", '{"a": 1000}', "is small", "{port}", "1",
        "it's",
    ]  # fmt: skip
    assert app_.env == {"SIZE": "1000", "TEXT": "two 1000\nlines"}
    assert gen.argv[1] == "7" and gen.argv[-1] == "http://127.0.0.1:8000/"
    first, second, gen = instances(path, 2)
    assert (first.argv[3:], second.env["SIZE"]) == (
        ["-k", '{"a": 3000}', "is large", "{port}", "1", "it's"], "1500"
    )  # fmt: skip
    assert first.argv[1:3] == ["--port", "8000"] and second.argv[2] == "8001"
    assert "-k" not in instances(path, 3)[0].argv


def test_only_the_texts_change_and_the_command_prints_them(tmp_path):
    path = tmp_path / "old.toml"
    path.write_text(OLD)
    path.chmod(0o640)
    out = CliRunner().invoke(app, ["upgrade", str(path)]).output
    assert "process.my-app.argv[3]: {port} → {{ port }}" in out
    assert "converted, 14 texts changed" in out
    before, after = OLD.splitlines(), path.read_text().splitlines()
    assert len(before) == len(after)
    assert after[0] == before[0] and after[1] == "wirespeed = 2   # the format"
    same = [old for old, new in zip(before, after, strict=True) if old == new]
    assert {'ready = { log = "up {2}" }', '[[process]]   # "a comment with quotes"'} <= set(same)
    assert 'title = "a {title} that was never filled in"' in same
    assert "title = \"{{ '{:,}'.format(payload) }} bytes over {{ link }}, any gone\"" in after
    assert path.stat().st_mode & 0o777 == 0o640
    again = CliRunner().invoke(app, ["upgrade", str(path), "--json"])
    assert json.loads(again.output)[0]["changed"] is False
    assert path.read_text().splitlines() == after


def test_an_old_recipe_is_refused_with_the_command_that_converts_it(tmp_path):
    path = tmp_path / "old.toml"
    path.write_text(OLD)
    with pytest.raises(RecipeError, match=r"old\.toml: wirespeed: format 1, .*wirespeed upgrade "):
        read.read(path)
    (tmp_path / "mine.toml").write_text('wirespeed = 2\nextends = "./old.toml"\n')
    with pytest.raises(RecipeError, match=r"^old\.toml: wirespeed: format 1"):
        read.read(tmp_path / "mine.toml")


@pytest.mark.parametrize("name", ["first", "second"])
def test_the_copy_of_a_run_of_an_earlier_build_is_read(name, tmp_path):
    copy = Path(shutil.copytree(OLD_RUNS / name, tmp_path / name)) / "recipe.toml"
    before = copy.read_text()
    recipe, text = read.read_copy(copy)
    assert recipe.process[1].argv[1] == "{{ connections }}"
    assert tomllib.loads(text)["wirespeed"] == 2 and copy.read_text() == before


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('argv = ["./app", "{payload +}"]', "process.my-app.argv[1]: '{payload +}' cannot be con"),
        ('argv = ["./app", "{"]', "'{' without '}' (correct it first)"),
        ('argv = ["./app", "{payload; rm}"]', "';' is unexpected"),
    ],
)
def test_a_mistake_of_the_old_recipe_is_named_and_nothing_is_written(tmp_path, text, line):
    path = tmp_path / "old.toml"
    before = OLD[: OLD.index('argv = ["./app"')] + text + OLD[OLD.index("\nenv =") :]
    path.write_text(before)
    good = tmp_path / "good.toml"
    good.write_text(OLD)
    with pytest.raises(RecipeError) as caught:
        CliRunner().invoke(app, ["upgrade", str(good), str(path)], catch_exceptions=False)
    assert line in str(caught.value)
    assert path.read_text() == before and good.read_text() == OLD


def test_a_division_that_may_keep_its_fraction_is_named():
    data = 'wirespeed = 1\n[axes]\nshare = [0.5, 1]\n[[process]]\ncount = "{share / 2}"\n'
    found = upgrade.upgraded(data, "f")
    assert '"{{ share / 2 }}"' in found.text and "fractions" in found.remarks[0]


def test_a_division_that_may_be_rounded_the_other_way_is_named():
    """Of -7 / 3 format 1 made -2, and // makes -3."""
    data = 'wirespeed = 1\n[[process]]\nargv = ["{(a - b) / 3}", "{a - b}", "{my-x / 3}"]\n'
    found = upgrade.upgraded(data, "f")
    assert [remark.partition(" rounds down")[0] for remark in found.remarks] == ["{(a - b) / 3}"]


def test_a_value_of_an_axis_that_was_filled_in_is_named():
    data = 'wirespeed = 1\n[axes]\nport = [1]\npath = ["/", "/{port}"]\n'
    found = upgrade.upgraded(data, "f")
    assert "axes.path[1]: '/{port}' is not filled in now" in found.remarks[0]
    assert len(found.remarks) == 1


@pytest.mark.parametrize(
    ("old", "value"),
    [
        ("{x ? --flag={close} : no}", "--flag=true"),
        ("{x ? v{share} : no}", "v2"),
        ("{x ? n{x/1 + 1}. : no}", "n2."),
    ],
)
def test_a_part_of_a_text_is_written_as_before(old, value):
    """`~` alone writes True and 2.0."""
    assert value_of(converted(old), {"x": 1, "close": True, "share": 2.0}) == value


def test_names_of_a_recipe_that_is_extended_are_known(tmp_path):
    """`{payload} bytes` became `any payload bytes`, and an axis with - a process."""
    (tmp_path / "base.toml").write_text(
        "wirespeed = 2\n[axes]\npayload = [1]\nmy-x = [2]\nshare = [0.5]\n"
    )
    (tmp_path / "between.toml").write_text('wirespeed = 1\nextends = "./base.toml"\n')
    path = tmp_path / "mine.toml"
    path.write_text(
        'wirespeed = 1\nextends = "./between.toml"\n'
        '[[process]]\nname = "gen"\nargv = ["{my-x}", "{share / 2}"]\n'
        '[[table]]\ntitle = "{payload} bytes"\n'
    )
    done = CliRunner().invoke(app, ["upgrade", str(path)])
    assert done.exit_code == 0 and "keeps the fractions" in done.output
    data = tomllib.loads(path.read_text())
    assert data["table"][0]["title"] == "{{ payload }} bytes"
    assert data["process"][0]["argv"] == ["{{ axes['my-x'] }}", "{{ share / 2 }}"]


def test_the_ends_of_lines_stay(tmp_path):
    path = tmp_path / "old.toml"
    path.write_bytes(OLD.replace("\n", "\r\n").encode())
    assert CliRunner().invoke(app, ["upgrade", str(path)]).exit_code == 0
    after = path.read_bytes()
    assert b"wirespeed = 2" in after and after.count(b"\n") == after.count(b"\r\n")


def test_a_kept_run_whose_commands_may_be_others_is_not_measured_again(tmp_path):
    """Its cell would have had trials of two commands."""
    copy = Path(shutil.copytree(OLD_RUNS / "first", tmp_path / "first")) / "recipe.toml"
    text = copy.read_text()
    copy.write_text(text.replace('"{connections}"', '"{(connections - 9) / 2}"'))
    with pytest.raises(RecipeError, match=r"^recipe\.toml: of format 1, .* rounds down"):
        read.read_copy(copy)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("{jvm:http-server}", "{{ jvm('http-server') }}"),
        ("{http[i + 1].port}", "{{ http[i + 1].port }}"),
        ("{payload ? a{payload}b : c}", "{{ 'a' ~ payload|text ~ 'b' if payload else 'c' }}"),
        ("{payload or http.count}", "{{ true if payload or http.count else false }}"),
        ("{payload ? it's : \\d}", "{{ 'it\\'s' if payload else '\\\\d' }}"),
        ("{{% x %}}", "{{ '{' }}% x %}"),
    ],
)
def test_each_form_of_a_placeholder_has_one_in_the_new_language(old, new):
    assert converted(old) == new


@given(st.integers(0, 10**6), st.integers(1, 10**4), st.integers(0, 99))
def test_arithmetic_stays_that_of_whole_numbers(a, b, c):
    assert value_of(converted(f"{{{a} / {b} + {c} * 2}}"), {}) == a // b + c * 2


@given(st.text(max_size=20) | st.text("{}% #a'\"\\", max_size=12))
def test_a_text_without_placeholders_stays_what_it_is(text):
    doubled = text.replace("{", "{{").replace("}", "}}")
    assert arguments_of([converted(doubled)], {}) == [text]


@given(st.text(max_size=20) | st.text("{}% #'\"\\\n", max_size=12), st.sampled_from(['"', "'"]))
def test_a_file_is_rewritten_around_any_text(text, quote):
    token = json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
    if quote == "'" and not set(text) & {"'", "\n", "\r"} and text.isprintable():
        token = f"'{text}'"
    doubled = token.replace("{", "{{").replace("}", "}}")
    file = f'# "{{\nwirespeed = 1\n[[process]]\nargv = [{doubled}] # \'\nname = "x"\n'
    (argument,) = tomllib.loads(upgrade.upgraded(file, "f").text)["process"][0]["argv"]
    assert arguments_of([argument], {}) == [text]


@pytest.mark.parametrize(
    ("text", "old"),
    [
        ("--port={port}", "{port}"),
        ("{payload.file}", "{payload.file}"),
        ("{payload / 2}", "{payload / 2}"),
        ("{jvm:http-server}", "{jvm:http-server}"),
        ("{{ port }}", ""),
        ("${port}", ""),
        ('{"port": 1}', ""),
        ("{other}", ""),
        ("f() {port; }", ""),
    ],
)
def test_a_placeholder_of_the_old_language_is_seen_in_a_new_recipe(text, old):
    assert upgrade.old_placeholder(text, {"port", "payload"}.__contains__) == old
