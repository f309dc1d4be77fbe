"""Plans: no cell is dropped, rounds are whole, budgets are kept, order is fair."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirespeed.cli import show
from wirespeed.driver import stack
from wirespeed.driver.command import GENERATORS
from wirespeed.errors import InputError, RecipeError
from wirespeed.recipe import read, sweep
from wirespeed.recipe.model import Recipe, Site, Stack
from wirespeed.recipe.resolve import Place, Resolver
from wirespeed.results import store
from wirespeed.results.model import Run, RunPlan
from wirespeed.runner import budget, build, cells, commands, plan, session
from wirespeed.runner.budget import Times
from wirespeed.runner.time_budget import LONGER_SHARE
from wirespeed.topology import one_host, roles_of

RECIPES = Path(__file__).resolve().parents[3] / "recipes"


def recipe_of(axes, **plan_keys):
    return Recipe.model_validate(
        {
            "wirespeed": 2,
            "name": "planned",
            "axes": axes,
            "plan": {"duration": "10s", "warmup": "2s", **plan_keys},
            "stacks": {"kernel": {}, "other": {}},
            "process": [
                {"name": "app", "role": "server", "argv": ["./app"], "pin": {}},
                {"name": "gen", "role": "load", "tool": "load", "argv": ["x"], "pin": {}},
            ],
        }
    )


def place_of(recipe, cores=2):
    return Place(Path("/nowhere"), Path("r.toml"), topology_of(recipe, cores))


def topology_of(recipe, cores=2):
    has_origin = any(process.role == "origin" for process in recipe.process)
    return one_host(roles_of(list(range(cores)), has_origin))


def cores_of(cell):
    return {label: [seat.core for seat in seats] for label, seats in cell.seats.items()}


def made(recipe, cores=2, **options):
    return plan.make(recipe, place_of(recipe, cores), plan.PlanOptions(seed=1, **options))


AXES = st.dictionaries(
    st.sampled_from(["payload", "connections", "instances"]),
    st.lists(st.integers(-20, 1000), min_size=1, max_size=4, unique=True).map(sorted),
    min_size=1,
    max_size=3,
)


@given(AXES, st.integers(1, 7), st.integers(0, 1000), st.sampled_from(["interleaved", "blocked"]))
def test_every_cell_is_measured_once_a_round(axes, repeat, seed, order):
    recipe = recipe_of({**axes, "stack": ["kernel", "other"]}, repeat=repeat, order=order)
    schedule = plan.make(recipe, place_of(recipe), plan.PlanOptions(seed=seed))
    lines = [line for line in schedule.lines() if line.state == "planned"]
    assert Counter(line.cell for line in lines) == {c.cell.id: repeat for c in schedule.cells}
    assert len({line.key for line in lines}) == len(lines)
    assert [line.position for line in lines] == list(range(1, len(lines) + 1))
    assert schedule.trials == len(lines)


@given(AXES, st.floats(60, 3600))
def test_a_budget_is_kept_or_refused(axes, budget_s):
    recipe = recipe_of(axes)
    try:
        schedule = made(recipe, budget_s=budget_s)
    except InputError as error:
        assert "too short" in str(error)
        return
    assert schedule.seconds <= budget_s
    assert schedule.repeat == 5
    assert schedule.times.duration_s >= 1.0
    assert len(schedule.cells) == len(made(recipe).cells)
    thinned = [cell for cell in schedule.cells if cell.state == "thinned"]
    for name, values in axes.items():
        gone = {c.cell.axes[name] for c in thinned} - {
            c.cell.axes[name] for c in schedule.cells if c.is_measured
        }
        assert values[0] not in gone and values[-1] not in gone
    assert bool(thinned) == any("not measured" in sentence for sentence in schedule.thinned)


def test_the_same_seed_gives_the_same_order():
    recipe = recipe_of({"payload": [1, 2, 3, 4, 5], "stack": ["kernel", "other"]})
    assert made(recipe).lines() == made(recipe).lines()


def test_interleaving_keeps_what_is_compared_together():
    recipe = recipe_of(
        {"payload": [1, 2, 3, 4], "stack": ["kernel", "other"]}, baseline={"stack": "kernel"}
    )
    lines = made(recipe).lines()
    for first, second in zip(lines[::2], lines[1::2], strict=True):
        assert first.axes["payload"] == second.axes["payload"]
        assert {first.axes["stack"], second.axes["stack"]} == {"kernel", "other"}
    firsts = Counter(line.axes["stack"] for line in lines[::2])
    assert len(firsts) == 2


def test_all_sessions_of_a_round_have_their_cells_in_one_order():
    """Each session was shuffled alone, so two windows of a ratio lay up to two sessions apart."""
    recipe = recipe_of(
        {"payload": [1, 2, 3, 4, 5, 6], "stack": ["kernel", "other"]},
        baseline={"stack": "kernel"}, restart="stack",
    )  # fmt: skip
    by_round = {}
    for one in made(recipe).sessions:
        order = tuple(cell.cell.axes["payload"] for cell in one.cells)
        by_round.setdefault(one.round, set()).add(order)
    assert [len(orders) for orders in by_round.values()] == [1] * 5
    assert len(set().union(*by_round.values())) > 1, "rounds differ in their order"


def test_blocked_measures_the_baseline_first():
    recipe = recipe_of(
        {"payload": [1, 2], "stack": ["other", "kernel"]},
        baseline={"stack": "kernel"},
        order="blocked",
        repeat=5,
    )
    stacks = [line.axes["stack"] for line in made(recipe).lines()]
    assert stacks == ["kernel"] * 10 + ["other"] * 10


def test_a_ramp_is_walked_in_order_in_one_session():
    recipe = recipe_of(
        {"stack": ["kernel", "other"], "connections": {"ramp": [3, 1, 2]}}, restart="ramp"
    )
    schedule = made(recipe)
    assert len(schedule.sessions) == 10
    for one in schedule.sessions:
        assert [cell.cell.axes["connections"] for cell in one.cells] == [3, 1, 2]


def test_a_session_that_would_need_two_servers_is_refused():
    recipe = recipe_of({"payload": [1, 2]}, restart="ramp")
    recipe.process[0].argv.append("{{ payload }}")
    recipe = recipe.model_copy(update={"plan": recipe.plan.model_copy(update={"restart": "stack"})})
    recipe = recipe.model_copy(update={"axes": {**recipe.axes, "stack": ["kernel"]}})
    with pytest.raises(RecipeError, match="keeps one server for cells that start it differently"):
        made(recipe)


def test_only_keeps_the_rest_as_shown_cells():
    recipe = recipe_of({"payload": [1, 2, 3], "stack": ["kernel", "other"]})
    schedule = made(recipe, only="payload=1,3,stack=other")
    assert len(schedule.cells) == 6
    measured = [cell.cell.axes for cell in schedule.cells if cell.is_measured]
    assert measured == [{"payload": 1, "stack": "other"}, {"payload": 3, "stack": "other"}]


def test_a_cell_that_needs_a_newer_java_is_shown_as_not_runnable():
    recipe = recipe_of({"payload": [1]})
    process = recipe.process[0].model_copy(
        update={"requires": recipe.process[0].requires.model_copy(update={"java": 99})}
    )
    recipe = recipe.model_copy(update={"process": [process, recipe.process[1]]})
    (cell,) = made(recipe).cells
    assert (cell.state, cell.reason) == (
        "not-runnable",
        "not runnable here: app needs Java 99, here is Java 17",
    )


def test_cells_that_the_recipe_skips_are_shown_as_left_out():
    recipe = recipe_of(
        {"payload": [1, 2], "stack": ["kernel", "other"]},
        skip=[{"payload": 2, "stack": "other"}],
    )
    states = [cell.reason for cell in made(recipe).cells]
    assert states == ["", "", "", "left out by the recipe"]


@pytest.mark.parametrize(
    ("only", "message"),
    [
        ("paylod=1", "unknown axis 'paylod'"),
        ("payload=9", "unknown value '9'"),
        ("7", "unknown axis '7'"),
    ],
)
def test_a_wrong_only_says_what_there_is(only, message):
    with pytest.raises(InputError, match=message):
        made(recipe_of({"payload": [1, 2]}), only=only)


def test_values_with_commas_and_equals_signs_are_chosen_as_they_are_shown():
    """`knee` and `reproduce` name the cells in this way, and called such a value an axis."""
    paths = ["/", "/find?ids=1,2", "/find?q=a"]
    recipe = recipe_of({"path": paths, "payload": [1, 2]})

    def chosen(only):
        return sweep.parse_only(only, recipe)

    assert chosen("path=/find?ids=1,2,/find?q=a,payload=2") == {"path": paths[1:], "payload": [2]}
    assert chosen(" payload = 1 ,2, ,path=/") == {"payload": [1, 2], "path": ["/"]}
    with pytest.raises(InputError, match=r"unknown value '/find\?ids=1'"):
        chosen("path=/find?ids=1,3")
    with pytest.raises(InputError, match="unknown axis 'paylod'"):
        chosen("path=/,paylod=1")
    with pytest.raises(InputError, match="'payload' has no value"):
        chosen("payload")


@pytest.mark.parametrize("name", ["1.0", "1"])
def test_variables_of_a_decimal_value_are_found_under_both_of_its_names(name):
    """Of 1.0 only `1` had variables, and a command went without those of `1.0`."""
    recipe = recipe_of({"size": [0.5, 1.0]}).model_copy(
        update={"axis": {"size": {name: {"flag": "-b"}}}}
    )
    (cell,) = [one for one in sweep.cells(recipe) if one.axes["size"] == 1.0]
    resolver = Resolver(
        recipe, cell, Place(Path("/x"), Path("r.toml"), one_host(roles_of([0], False)))
    )
    assert resolver._fill("key", "{{ size.flag }}", resolver._names(None, 0)) == "-b"
    for only in ("size=1", "size=1.0"):
        assert sweep.parse_only(only, recipe) == {"size": [1.0]}


def test_instances_that_do_not_fit_are_kept_and_shown():
    recipe = recipe_of({"instances": [1, 4]})
    process = recipe.process[0].model_copy(update={"count": "{{ instances }}"})
    recipe = recipe.model_copy(update={"process": [process, recipe.process[1]]})
    one, four = made(recipe).cells
    assert one.is_measured
    assert (four.state, four.reason) == (
        "does-not-fit",
        "4 × app, but the server has 1 core here (--fit share lets them share)",
    )
    shared = made(recipe, fit="share").cells[1]
    assert shared.is_measured and shared.shared_cores
    assert cores_of(shared)["app-3"] == [0] and cores_of(shared)["gen-0"] == [1]


def test_pairs_put_a_server_and_a_generator_on_one_core():
    recipe = recipe_of({"instances": [1, 2, 4]})
    processes = [p.model_copy(update={"count": "{{ instances }}"}) for p in recipe.process]
    recipe = recipe.model_copy(update={"process": processes})
    cells = made(recipe, fit="pairs").cells
    assert cores_of(cells[1]) == {"app-0": [0], "app-1": [1], "gen-0": [0], "gen-1": [1]}
    assert cells[1].shared_cores
    assert cells[2].state == "does-not-fit"


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.toml")), ids=lambda path: path.stem)
@pytest.mark.parametrize("cores", [1, 2, 4, 64])
def test_every_shipped_recipe_can_be_planned_on_any_machine(path, cores):
    recipe = read.read(path)
    place = Place(RECIPES.parent, path, topology_of(recipe, cores))
    schedule = plan.make(recipe, place, plan.PlanOptions(seed=1))
    assert len(schedule.cells) == len({cell.cell.id for cell in schedule.cells})
    assert all(cell.is_measured or cell.reason for cell in schedule.cells)


def test_quickstart_takes_less_than_four_minutes_on_two_cores():
    recipe = read.read(RECIPES / "quickstart.toml")
    recipe_place = Place(
        RECIPES.parent,
        RECIPES / "quickstart.toml",
        topology_of(recipe),
    )
    schedule = plan.make(recipe, recipe_place, plan.PlanOptions(seed=1))
    assert schedule.seconds * (1 + LONGER_SHARE) < 240, "also where pairs go on"


@pytest.mark.parametrize("name", ["quickstart", "transports"])
@pytest.mark.parametrize(
    ("cores", "connections", "each"), [(2, 100, ["100"]), (4, 100, ["50", "50"]), (4, 10, ["10"])]
)
def test_a_second_generator_is_used_where_there_is_a_core_for_it(name, cores, connections, each):
    path = RECIPES / f"{name}.toml"
    recipe = plan.with_values(read.read(path), {"connections": [connections]})
    place = Place(RECIPES.parent, path, topology_of(recipe, cores))
    schedule = plan.make(recipe, place, plan.PlanOptions(seed=1))
    cell = next(c for c in schedule.cells if c.cell.axes["connections"] == connections)
    generators = [
        one for one in Resolver(recipe, cell.cell, place).instances(cell.seats)
        if one.role == "load"
    ]  # fmt: skip
    assert [one.argv[one.argv.index("-c") + 1] for one in generators] == each
    assert len({one.seats[0] for one in generators}) == len(each)


def test_a_ceiling_cell_runs_without_its_server_and_no_other_may():
    recipe = recipe_of({"server": [0, 1]}, ceiling={"server": 0})
    counted = [recipe.process[0].model_copy(update={"count": "{{ server }}"}), recipe.process[1]]
    recipe = recipe.model_copy(update={"process": counted})
    assert [sorted(cell.seats) for cell in made(recipe).cells] == [["gen-0"], ["app-0", "gen-0"]]
    open_plan = recipe.plan.model_copy(update={"ceiling": {}})
    with pytest.raises(RecipeError, match="not a count of processes"):
        made(recipe.model_copy(update={"plan": open_plan}))


def test_a_ceiling_and_what_a_budget_left_out_are_not_counted_among_the_comparisons():
    """`plan` promised the verdicts of 25 comparisons of which 16 would come."""
    axes = {"connections": list(range(1, 21)), "server": ["other", "app", "none"]}
    recipe = recipe_of(axes, baseline={"server": "app"}, ceiling={"server": "none"})
    counted = [recipe.process[0].model_copy(update={"count": 1}), recipe.process[1]]
    recipe = recipe.model_copy(update={"process": counted})
    assert made(recipe).comparisons == 20
    short = made(recipe, budget_s=400.0)
    left = sum(cell.is_measured for cell in short.cells) // 3
    assert left < 20 and short.comparisons == left


@pytest.mark.parametrize("values", [[-20, -10, 0], [-1, 0, 1], [-2.5, 0.5, 3]])
def test_a_budget_thins_an_axis_of_numbers_below_zero(values):
    """Their logarithm ended the command with a traceback."""
    schedule = made(recipe_of({"nice": values, "stack": ["kernel", "other"]}), budget_s=80.0)
    gone = {cell.cell.axes["nice"] for cell in schedule.cells if not cell.is_measured}
    assert gone == {values[1]}


def test_remarks_of_a_command_are_for_the_readers_of_the_report():
    assert made(recipe_of({"payload": [1]}), remarks=("Beware.",)).thinned == ["Beware."]


def test_a_budget_keeps_the_least_warm_up_of_the_recipe():
    recipe = recipe_of({"payload": [1]}, warmup="60s", warmup_least="6s", step_warmup="500ms")
    times = made(recipe, budget_s=70.0).times
    assert (times.warmup_s >= 6.0, times.step_warmup_s, times.warmup_least_s) == (True, 0.5, 6.0)


def test_a_budget_reports_only_what_it_shortened():
    before = Times(0.0, 3.0, 0.5, 0.0, 2.0, 0.25, 0.5)
    after = replace(before, warmup_s=2.0, duration_s=0.4999)
    (sentence,) = budget._said([], before, after, 120.0)
    assert sentence == "To keep the budget of 2 min, the warm-up at most 2 s instead of 3 s."


def test_a_budget_leaves_every_window_a_length():
    """A recipe's window of 50 ms was rounded to none where a budget shortened the warm-up."""
    before = Times(settle_s=0, warmup_s=30.0, duration_s=0.05, cooldown_s=0.5)
    assert before.scaled(0.0).rounded().duration_s == 0.05
    assert replace(before, duration_s=0.29).rounded().duration_s == 0.2


@pytest.mark.parametrize("budget_s", [300.0, 900.0, 3600.0])
def test_a_budget_takes_no_rounds_from_the_verdicts(budget_s):
    """It shortens windows and leaves out points; what is left can still be decided."""
    recipe = recipe_of({"connections": [1, 10, 50, 100, 500], "stack": ["kernel", "other"]},
                       baseline={"stack": "kernel"})  # fmt: skip
    whole, short = made(recipe), made(recipe, budget_s=budget_s)
    assert whole.repeat == short.repeat >= 5
    measured = [cell for cell in short.cells if cell.is_measured]
    assert short.trials == short.repeat * len(measured) > 0


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.toml")), ids=lambda path: path.stem)
def test_a_process_of_a_shipped_recipe_is_not_called_like_another_program(path):
    """A report that names `wrk` must mean wrk."""
    for process in read.read(path).process:
        if process.name in GENERATORS:
            assert process.tool == process.name


def test_planned_commands_are_shown_with_missing_programs():
    recipe = recipe_of({"payload": [16, 32]})
    argv = ["gone-program", "--size", "{{ payload }}"]
    server = recipe.process[0].model_copy(update={"argv": argv})
    recipe = recipe.model_copy(update={"process": [server, recipe.process[1]]})
    lines = commands.of_schedule(made(recipe))
    assert "payload=16:" in lines and "  app-0: gone-program --size 32" in lines
    assert lines[-1] == "missing program: gone-program"


def test_no_spreadsheet_takes_the_name_of_a_cell_or_trial_for_a_number():
    lines = made(recipe_of({"payload": list(range(1, 41))})).lines()
    names = [name for line in lines for name in (line.cell, line.key)]
    assert len(set(names)) > 200
    assert all(name[0].isalpha() for name in names)


@pytest.mark.parametrize("told", [[], [session.NOISE_ACCEPTED]])
def test_a_run_that_goes_on_admits_its_trials_as_before(tmp_path, told):
    """A run started with --accept-noise and resumed without it judged its rounds by two rules."""
    recipe = read.read(RECIPES / "aa.toml")
    store.write_plan(tmp_path, made(recipe).lines())
    (tmp_path / "trials").mkdir()
    run = Run("r", "aa", axes=recipe.axis_values(), thinned=told)
    origin = session.Source(RECIPES.parent, RECIPES / "aa.toml", recipe, "here", Site())
    schedule = session._schedule_of(tmp_path, run, origin, topology_of(recipe))
    assert schedule.accept_noise == bool(told)


def test_a_run_that_goes_on_keeps_the_times_of_its_budget():
    recipe = recipe_of({"connections": [1]}, settle="20s", cooldown="30s")
    kept = RunPlan(warmup_s=0.5, duration_s=1.5, cooldown_s=0.2, settle_s=0.1)
    found = session.with_times(recipe.plan, kept)
    assert (found.settle, found.warmup, found.duration, found.cooldown) == (0.1, 0.5, 1.5, 0.2)
    of_before = RunPlan.from_json({"warmup_s": 0.5, "duration_s": 1.5})
    assert session.with_times(recipe.plan, of_before).settle == 20


@pytest.mark.parametrize(
    ("has_sources", "state", "parts"),
    [(True, "planned", ["bypass", "load"]), (False, "not-runnable", ["load"])],
)
def test_builds_of_the_run_are_planned(tmp_path, monkeypatch, has_sources, state, parts):
    """In a fresh clone the plan called every cell of bypass not runnable, and the run built it."""
    monkeypatch.setattr(stack, "_has_onload", lambda: False)
    if has_sources:
        (tmp_path / "bypass" / "preload").mkdir(parents=True)
        (tmp_path / "bypass" / "preload" / "Cargo.toml").touch()
    recipe = recipe_of({"stack": ["kernel", "other"]})
    server = recipe.process[0].model_copy(update={"stack": "{{ stack }}"})
    recipe = recipe.model_copy(
        update={"process": [server, recipe.process[1]], "stacks": {
            "kernel": Stack(provider="none"), "other": Stack(provider="auto")}}
    )  # fmt: skip
    place = replace(place_of(recipe), root=tmp_path)
    schedule = plan.make(recipe, place, plan.PlanOptions(seed=1))
    assert [cell.state for cell in schedule.cells] == ["planned", state]
    assert session.parts_of(schedule) == parts
    unbuilt = cells.without_unbuilt(recipe, place, schedule.cells)
    assert [cell.state for cell in unbuilt] == ["planned", "not-runnable"]
    assert "bypass is not built" in unbuilt[1].reason


DOOR = """#!/bin/sh
[ "$*" = "build --list --json bypass load" ] || exit 2
echo '{"parts": [{"name": "bypass", "state": "missing"}, {"name": "load", "state": "ready"}],
  "seconds": 60}'
"""


def test_a_plan_shows_builds_and_their_time(tmp_path):
    door = tmp_path / "wirespeed"
    door.write_text(DOOR)
    door.chmod(0o755)
    found = build.missing(tmp_path, ["bypass", "load"])
    assert show.built_first(found) == ["bypass is built on first use: about 1 min before the run"]
    assert show.built_first(build.missing(tmp_path, [])) == []
    assert build.missing(tmp_path, ["refused"]) == build.Missing()
