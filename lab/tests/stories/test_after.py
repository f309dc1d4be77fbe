"""After a run: labels, a baseline, the same again, a trend, a doctor, and the knee."""

import json

import pytest

from wirespeed.cli import knee, trend
from wirespeed.errors import InputError
from wirespeed.recipe import rates, read
from wirespeed.results import trend as trends


def test_a_run_is_kept_under_a_name_reproduced_and_followed(checkout):
    recipe = checkout.recipe(connections=[1])
    marks = ("--set", "plan.duration=150ms", "--label", "branch=main", "--note", "first")
    code, _, err = checkout.call("run", recipe, *marks)
    assert code == 0, err
    first = checkout.run_json()
    assert (first["labels"], first["note"]) == ({"branch": "main"}, "first")
    assert first["plan"]["duration_s"] == 0.15
    assert "plan.duration=150ms" in (checkout.latest / "recipe.toml").read_text()
    assert checkout.call("baseline", "save", "main")[0] == 0
    recipe.unlink()  # the run has all that is needed
    code, out, err = checkout.call("reproduce", "main", "--accept-noise")
    assert code == 0, err
    again = checkout.run_json()
    assert again["labels"] == {"reproduces": first["run_id"]}
    assert (again["seed"], again["plan"]) == (first["seed"], first["plan"])
    assert "Reproduced: no figure of 1 differs; 1 are not decided." in out
    code, out, _ = checkout.call("trend", "--json")
    (series,) = json.loads(out)
    assert [point["run"] for point in series["points"]] == [first["run_id"], again["run_id"]]
    code, out, _ = checkout.call("compare", "main", "latest", "--fail-on", "undecided")
    assert code == 3, "two trials decide nothing"
    code, out, _ = checkout.call("doctor", "latest")
    assert code == 0 and ("every comparison" in out or "try:" in out)
    assert "branch=main first" in checkout.call("runs")[1]


TEXT = """
wirespeed = 1
name = "k"
axes = { connections = [50], stack = ["kernel"] }
[stacks.kernel]
[[process]]
name = "app"
role = "server"
port = { base = 8000 }
argv = ["app"]
[[process]]
name = "gen"
role = "load"
tool = "load"
argv = ["-c", "{connections}", "http://{server.addr}:{app.port}/"]
[[metric]]
name = "rps"
from = "gen"
[[metric]]
name = "latency"
from = "gen"
combine = "histogram"
"""


def test_the_same_recipe_keeps_a_rate(tmp_path):
    recipe, text = rates.at_rates(TEXT, [100, 200])
    assert recipe.axis_values()["rate"] == [100, 200] and recipe.ramps() == ["rate"]
    assert recipe.process[1].argv[:2] == ["-R", "{rate / count}"]
    (tmp_path / "r.toml").write_text(text)
    assert read.read(tmp_path / "r.toml") == recipe


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ('tool = "load"', 'tool = "ab"', "keeps no rate"),
        ('"-c", ', '"-R", "5", "-c", ', "has a rate"),
        ("[50]", "{ ramp = [1, 2] }", "has a ramp already"),
    ],
)
def test_a_recipe_that_cannot_keep_a_rate_is_refused(old, new, line):
    with pytest.raises(InputError, match=line):
        rates.at_rates(TEXT.replace(old, new), [1])


def test_a_trend_names_every_axis_also_of_runs_that_had_one_more(capsys):
    def series(axes):
        return trends.Series(axes, "rps", [trends.Point("a", "", "", 1.0)])

    trend._show([series({"connections": 1}), series({"connections": 1, "rate": 777})], "rps", 2)
    shown = capsys.readouterr().out
    assert "rate" in shown and "777" in shown


def test_the_knee_is_between_the_last_rate_that_was_kept_and_the_first_that_was_not():
    tried = {200: "", 400: "", 800: "p99 was 9 ms", 900: ""}
    assert knee._edge(tried) == (400, 800), "a lucky rate above a broken one does not count"
    assert knee._rates(1000, tried) == [480, 560, 640, 720]
    assert knee._edge({}) == (None, None)
    assert knee._rates(1000, {1000: ""})[-1] < 1300, "where nothing broke the search goes on above"
