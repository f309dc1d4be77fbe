"""Which cells take turns, in which order, and why others have separate trials."""

from collections import Counter
from pathlib import Path

import pytest

from wirespeed.recipe.model import Recipe
from wirespeed.recipe.resolve import Place, Resolver
from wirespeed.results import store
from wirespeed.results.model import DuetRatio, Run, RunPlan
from wirespeed.runner import duet, extend, plan, turns
from wirespeed.topology import one_host, roles_of

SERVER = {
    "name": "app", "role": "server", "argv": ["./app", "{{ port }}"], "port": {"base": 8000},
    "pin": {},
}  # fmt: skip
LOAD = {"name": "gen", "role": "load", "tool": "load", "argv": ["-c", "5", "http://x/"], "pin": {}}


def recipe_of(server=None, load=None, more=None, **keys):
    return Recipe.model_validate(
        {
            "wirespeed": 2,
            "name": "duet",
            "axes": {"size": [1, 2], "stack": ["kernel", "fast", "faster"]},
            "plan": {"method": "duet", "baseline": {"stack": "kernel"}, "warmup": "1s",
                     "duration": "1s", **keys},
            "process": [{**SERVER, **(server or {})}, {**LOAD, **(load or {})}],
            **(more or {}),
        }
    )  # fmt: skip


def planned(recipe, recipe_file=Path("r.toml"), **options):
    place = Place(Path("/nowhere"), recipe_file, one_host(roles_of([0, 1], False)))
    return plan.make(recipe, place, plan.PlanOptions(seed=1, **options))


def test_each_contender_takes_turns_with_the_baseline_which_is_measured_once_a_round():
    schedule = planned(recipe_of(repeat=4))
    assert sum(bool(cell.over) for cell in schedule.cells) == 4
    lines = schedule.lines()
    assert Counter(line.axes["stack"] for line in lines) == {"kernel": 8, "fast": 8, "faster": 8}
    assert len({line.key for line in lines}) == len(lines)
    by_id = {line.cell: line.axes for line in lines}
    for line in lines:
        if line.over:
            assert by_id[line.over] == {**line.axes, "stack": "kernel"}
        else:
            assert line.axes["stack"] == "kernel"
            # it is in the session of a contender, and stands before it
            after = next(one for one in lines if one.position == line.position + 1)
            assert (after.over, after.life, after.round) == (line.cell, line.life, line.round)


def test_without_a_number_there_are_six_pairs():
    assert planned(recipe_of()).repeat == duet.PAIRS
    assert planned(recipe_of(), repeat=3).repeat == 3


def test_a_session_walks_several_duets_where_the_recipe_shares_it():
    recipe = recipe_of(server={"argv": ["./app", "{{ port }}"]}, restart="stack", repeat=1)
    sessions = {}
    for line in planned(recipe).lines():
        sessions.setdefault(line.life, []).append(line)
    assert sorted(sum(bool(line.over) for line in session) for session in sessions.values()) == [
        2,
        2,
    ]


def test_the_second_side_has_ports_and_labels_of_its_own():
    recipe = recipe_of()
    place = Place(Path("/nowhere"), Path("r.toml"), one_host(roles_of([0, 1], False)), side="b")
    app, gen = Resolver(recipe, planned(recipe).cells[0].cell, place).instances({})
    assert (app.label, app.port, app.argv[1], gen.label) == ("app-0b", 9000, "9000", "gen-0b")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"server": {"argv": ["./app"]}}, "the command of app does not use its port"),
        ({"load": {"tool": "wrk"}}, "wrk cannot be held back between requests"),
        ({"load": {"argv": ["-R", "100", "http://x/"]}}, "a fixed rate (open loop)"),
        ({"load": {"argv": ["--replay", "access.log", "http://x/"]}}, "with --replay or --probe"),
        ({"load": {"argv": ["--probe=10", "http://x/"]}}, "with --replay or --probe"),
        (
            {"more": {"asset": [{"mount": {"type": "tmpfs", "at": "/x"}, "at": "/x",
                                 "files": {"name": "f", "bytes": 1}}]}},
            "a file system that is mounted",
        ),
    ],
)  # fmt: skip
def test_the_plan_gives_the_reason_for_separate_trials(changes, reason):
    schedule = planned(recipe_of(**changes))
    assert not any(cell.over for cell in schedule.cells)
    (sentence,) = [text for text in schedule.thinned if "separate trials" in text]
    assert reason in sentence
    assert schedule.repeat != duet.PAIRS, "as many rounds as separate trials need"


def test_a_port_in_a_template_is_one_of_its_own(tmp_path):
    (tmp_path / "app.conf").write_text("listen {{ port }};")
    (tmp_path / "bare.conf").write_text("listen 80;")
    for name, count in (("app.conf", 4), ("bare.conf", 0)):
        server = {"argv": ["./app", "{{ template('app.conf') }}"], "template": {"app.conf": name}}
        schedule = planned(recipe_of(server=server), tmp_path / "r.toml")
        assert sum(bool(cell.over) for cell in schedule.cells) == count


def test_added_rounds_are_duets_too(tmp_path, monkeypatch):
    recipe = recipe_of(repeat=2)
    schedule = planned(recipe)
    store.write_plan(tmp_path, schedule.lines())
    run_plan = RunPlan(repeat=2, baseline={"stack": "kernel"})
    store.write_run(tmp_path, Run("r", "duet", plan=run_plan, axes=recipe.axis_values()))
    monkeypatch.setattr(extend.read, "read_copy", lambda path: (recipe, ""))
    extend.add_rounds(tmp_path, 1)
    added = [line for line in store.read_plan(tmp_path) if line.round == 3]
    assert len(added) == 6 and sum(bool(line.over) for line in added) == 4


def test_the_time_of_a_plan_has_that_of_its_duets():
    short, long = (planned(recipe_of(duet={"pair": pair}, repeat=2)) for pair in ("1s", "11s"))
    assert long.seconds - short.seconds == pytest.approx(10 * 2 * 4)


def test_the_rate_of_a_duet_has_the_names_of_the_recipe():
    """A recipe that called it otherwise was judged by separate trials, for all of its pairs."""
    metrics = [
        {"name": "gets", "from": "gen"},
        {"name": "volume", "from": "gen", "field": "bytes_per_second", "unit": "MB/s"},
        {"name": "latency", "from": "gen", "combine": "histogram"},
    ]
    ratio = DuetRatio(0.1, None, 1)
    found = turns.named({"rps": ratio}, recipe_of(more={"metric": metrics}))
    assert found == {"rps": ratio, "gets": ratio}
    assert turns.named({}, recipe_of(more={"metric": metrics})) == {}
    two = recipe_of(more={"metric": metrics, "process": [SERVER, LOAD, {**LOAD, "name": "other"}]})
    assert turns.named({"rps": ratio}, two) == {"rps": ratio}, "of both generators"
