"""Change points: a step is found where it is, and noise alone seldom gives one."""

import random
from dataclasses import replace
from types import SimpleNamespace

import pytest

from wirespeed.analysis import comparisons, trend
from wirespeed.analysis.trend import RunMedian
from wirespeed.results.model import Run


def points(values):
    return [RunMedian(f"run{n}", f"2026-11-{n:02}", f"c{n}", v) for n, v in enumerate(values, 1)]


def noisy(count, dice, step_at=None, step=1.0, spread=0.02):
    return [
        100 * dice.lognormvariate(0, spread) * (step if step_at is not None and n >= step_at else 1)
        for n in range(count)
    ]


@pytest.mark.parametrize(("higher_is_better", "word"), [(True, "worse"), (False, "better")])
def test_a_step_is_found_at_its_run(higher_is_better, word):
    found = trend.changes(points(noisy(12, random.Random(3), 7, 0.85)), higher_is_better)
    assert [one.run for one in found] == ["run8"]
    assert found[0].change == pytest.approx(-0.15, abs=0.03)
    assert (found[0].word, found[0].commit) == (word, "c8")


def test_two_steps_are_two_changes():
    dice = random.Random(5)
    values = [*noisy(8, dice), *noisy(8, dice, 0, 1.3), *noisy(8, dice, 0, 0.9)]
    assert [one.run for one in trend.changes(points(values), True)] == ["run9", "run17"]


def test_noise_alone_gives_a_change_in_about_one_series_of_twenty():
    dice = random.Random(11)
    called = sum(bool(trend.changes(points(noisy(10, dice, spread=0.1)), True)) for _ in range(60))
    assert called <= 8, "5 % of 60 is 3; more than 8 has a chance of 1 %"


def test_few_runs_show_no_change_however_large():
    """Of seven runs a split of 3 and 4 is one of 2 in 35, of eight one of 2 in 70."""
    assert trend.changes(points([100, 101, 102, 50, 51, 52, 53]), True) == []
    assert len(trend.changes(points([100, 101, 102, 103, 50, 51, 52, 53]), True)) == 1


def test_false_changes_are_rare_when_every_run_is_tested():
    """Tested again at one in twenty, four of ten histories of 32 runs had a false change once."""
    dice, shut = random.Random(9), 0
    for _ in range(60):
        history = points(noisy(32, dice, spread=0.1))
        shut += any(
            trend.chance(history[:runs], trend.share_of(runs)) <= trend.share_of(runs)
            for runs in range(trend.RUNS_MIN, 33)
        )
    assert shut <= 8, "5 % of 60 is 3; more than 8 has a chance of 1 %"


def test_a_lone_change_of_many_cells_and_runs_is_found():
    """The bar is one in 6,000 there, less than the usual number of shuffles can show."""
    dice = random.Random(6)
    cells = [points(noisy(30, dice)) for _ in range(12)] + [points(noisy(30, dice, 25, 0.8))]
    limit = trend._limit(cells)
    assert 0 < limit < 1 / trend.SHUFFLES_LEAST
    assert [len(trend.changes(one, True, limit)) for one in cells] == [0] * 12 + [1]


def test_a_segment_next_to_a_change_has_half_of_the_chance():
    dice, called = random.Random(12), 0
    for _ in range(20):
        values = [*noisy(10, dice, spread=0.05), *noisy(10, dice, 0, 2.0, spread=0.05)]
        called += len(trend.changes(points(values), True)) - 1
    assert called <= 4, "5 % of 20 is 1"


def test_many_cells_give_chance_no_more_changes_than_one():
    dice, shut = random.Random(4), 0
    for _ in range(20):
        cells = [points(noisy(9, dice, spread=0.1)) for _ in range(12)]
        limit = trend.limit_of([trend.chance(one, 0.05 / 12) for one in cells])
        shut += any(trend.changes(one, True, limit) for one in cells)
    assert shut <= 3, "5 % of 20 is 1, of which 4 are a chance of 2 %; one by one it were half"


def test_a_lone_step_is_found_among_many_cells():
    dice = random.Random(2)
    cells = [points(noisy(14, dice)) for _ in range(12)]
    cells.append(points(noisy(14, dice, 7, 0.8)))
    limit = trend.limit_of([trend.chance(one, 0.05 / 13) for one in cells])
    assert [len(trend.changes(one, True, limit)) for one in cells] == [0] * 12 + [1]


def test_a_change_says_what_else_its_run_had_than_the_run_before_it():
    """A new machine looked like a regression of the commit that was measured on it first."""
    values = points(noisy(12, random.Random(3), 7, 0.85))
    runs = {
        one.run: Run(one.run, "r", facts={"cpu_model": "A" if number < 7 else "B", "kernel": "6.1"})
        for number, one in enumerate(values)
    }
    history = trend.MetricHistory({}, "rps", values, trend.changes(values, True))
    (change,) = trend._with_conditions(history, runs).changes
    assert (change.run, change.conditions) == ("run8", ("CPU model",))
    same = {name: replace(run, facts={}) for name, run in runs.items()}
    assert trend._with_conditions(history, same).changes[0].conditions == ()


@pytest.mark.parametrize("metric", ["steal", "server.work", "server.fullest_thread", "psi"])
def test_less_of_a_share_that_is_lost_or_used_is_better(metric):
    """More CPU steal was called better."""
    assert comparisons.better(Run("run", "r"), metric) == "lower"


def test_runs_are_in_the_order_in_which_they_were_made_though_the_clock_was_set_back():
    """The clock was an hour ahead for the first, so it was taken for the last run."""
    runs = [
        Run("20261130T130000Z-r-aaaaaaaa", "r", started="2026-11-30T13:00:04Z"),
        Run("20261130T130001Z-r-bbbbbbbb", "r", started="2026-11-30T12:05:00Z"),
        Run("mine", "r", started="2026-11-30T13:30:00Z"),
        Run("theirs", "r", started="yesterday"),
    ]
    found = trend.in_order(SimpleNamespace(run=run) for run in reversed(runs))
    assert [one.run for one in found] == [runs[3], *runs[:3]]
