"""Recipes that extend others, and `--set` over them."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirespeed.errors import InputError, RecipeError
from wirespeed.recipe import compose, read

BASE = """
wirespeed = 2
name = "base"
[axes]
connections = [1, 50]
[plan]
repeat = 5
duration = "10s"
[[process]]
name = "app"
role = "server"
argv = ["./app", "{{ recipe.dir }}/data"]
port = { base = 8000 }
template = { "app.conf" = "app.j2" }
[[process]]
name = "gen"
role = "load"
tool = "load"
argv = ["-c", "{{ connections }}", "http://{{ server.addr }}:{{ app.port }}/"]
[[metric]]
name = "rps"
from = "gen"
"""


@pytest.fixture
def recipes(tmp_path):
    (tmp_path / "shipped").mkdir()
    (tmp_path / "mine").mkdir()
    (tmp_path / "shipped" / "base.toml").write_text(BASE)
    return tmp_path


def mine(recipes, text, sets=()):
    path = recipes / "mine" / "mine.toml"
    path.write_text(text)
    return read.read_with(path, sets, [recipes / "shipped"])


def test_a_recipe_takes_over_what_it_does_not_say(recipes):
    text = 'extends = "base"\nname = "mine"\n[plan]\nduration = "1s"\n'
    text += '[[process]]\nname = "app"\nenv = { WORKERS = "4" }\n'
    found, made = mine(recipes, text)
    assert (found.name, found.plan.duration, found.plan.repeat) == ("mine", 1.0, 5)
    app, gen = found.process
    assert app.env == {"WORKERS": "4"} and gen.name == "gen"
    shipped = recipes / "shipped"
    assert app.argv == [f"{shipped}/app", f"{shipped}/data"], "files next to the base stay there"
    assert app.template == {"app.conf": f"{shipped}/app.j2"}
    again = recipes / "mine" / "again.toml"
    again.write_text(made)
    assert read.read(again) == found, "the text that is kept with a run says the same"


def test_a_recipe_next_to_its_base_is_named_by_a_path(recipes):
    (recipes / "mine" / "base.toml").write_text(BASE)
    found, _ = mine(recipes, 'extends = "./base.toml"\n[axes]\nconnections = [7]\n')
    assert found.axes == {"connections": [7]}
    assert found.process[0].argv[0] == "./app"


@pytest.mark.parametrize(
    ("assignment", "look"),
    [
        ("plan.duration=30s", lambda r: r.plan.duration == 30),
        ("plan.repeat=7", lambda r: r.plan.repeat == 7),
        ("axes.connections=[3, 4]", lambda r: r.axes["connections"] == [3, 4]),
        ("process.app.env.WORKERS='4'", lambda r: r.process[0].env == {"WORKERS": "4"}),
        ("process.1.argv=['-c', '9', 'http://x/']", lambda r: r.process[1].argv[1] == "9"),
        ("title=a = b", lambda r: r.title == "a = b"),
    ],
)
def test_set_goes_over_the_recipe(recipes, assignment, look):
    found, text = mine(recipes, BASE, [assignment])
    assert look(found)
    assert assignment in text.splitlines()[0]


@pytest.mark.parametrize(
    ("assignment", "line"),
    [
        ("plan.duration", "not KEY=VALUE"),
        ("=3", "not KEY=VALUE"),
        ("process.appp.count=2", "unknown name 'appp' (known: app, gen)"),
        ("name.x=2", "'x' is not a key of a table"),
        ("wirespeed.x.y=2", "is not a table"),
    ],
)
def test_a_set_that_names_nothing_is_one_line(recipes, assignment, line):
    with pytest.raises(InputError) as caught:
        mine(recipes, BASE, [assignment])
    assert line in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('extends = "nothing"', "mine.toml: extends: recipe 'nothing' not found"),
        ("extends = 3", "mine.toml: extends: 3 is not a string"),
        ('extends = "./mine.toml"', "extends this recipe"),
        ('extends = "base"\n[plan]\nduratoin = "1s"', "plan.duratoin: unknown key"),
    ],
)
def test_a_bad_extends_is_one_line(recipes, text, line):
    with pytest.raises(RecipeError) as caught:
        mine(recipes, text)
    assert line in str(caught.value)


SCALARS = st.one_of(st.booleans(), st.integers(-(2**53), 2**53), st.text(max_size=8),
                    st.floats(allow_nan=False, allow_infinity=False))  # fmt: skip
TABLES = st.dictionaries(st.text(max_size=5), SCALARS, max_size=3)
VALUES = SCALARS | st.lists(SCALARS | TABLES, max_size=3) | TABLES


@given(st.dictionaries(st.text(max_size=5), VALUES, max_size=4))
def test_what_is_written_as_toml_reads_the_same(data):
    assert tomllib.loads(compose.toml(data)) == data


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ('[[process]]\nname = "app"', '[[processes]]\nname = "app"'),
        ('template = { "app.conf" = "app.j2" }', 'template = "app.j2"'),
        ('template = { "app.conf" = "app.j2" }', 'template = { "app.conf" = 3 }'),
        ('name = "app"', 'name = ["app"]'),
        ('name = "gen"', "name = { a = 1 }"),
        ('argv = ["./app", "{{ recipe.dir }}/data"]', 'argv = "./app"'),
        ('argv = ["./app", "{{ recipe.dir }}/data"]', "argv = []"),
    ],
)
def test_a_mistake_in_the_recipe_below_is_one_line(recipes, right, wrong):
    """Files were looked for before anything was checked: a traceback."""
    (recipes / "shipped" / "base.toml").write_text(BASE.replace(right, wrong, 1))
    with pytest.raises(RecipeError):
        mine(recipes, 'extends = "base"\nname = "mine"\n[[process]]\nname = "app"\n')


@pytest.mark.parametrize("value", ["3", '"abc"', "[3]", "[[]]", '[{ name = ["app"] }]'])
def test_processes_that_are_none_are_one_line(recipes, value):
    (recipes / "shipped" / "base.toml").write_text(
        f'wirespeed = 2\nname = "b"\nprocess = {value}\n'
    )
    for own in ("", f"process = {value}\n", '[[process]]\nname = "app"\n'):
        with pytest.raises(RecipeError):
            mine(recipes, f'extends = "base"\nname = "mine"\n{own}')


@pytest.mark.parametrize("text", ["alert \a", "a return \r here", "two\nlines", "\x1b[2K"])
def test_settings_stand_in_a_comment_of_one_line(recipes, text):
    """A run could not go on: its copy of the recipe was invalid TOML."""
    (found, made) = mine(recipes, BASE, [f"process.app.env.WHAT={text}"])
    assert found.process[0].env == {"WHAT": text.strip()}
    kept = recipes / "kept.toml"
    kept.write_text(made, encoding="utf-8")
    assert read.read_copy(kept)[0] == found
