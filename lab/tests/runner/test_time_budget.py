"""The time of a run: repeated windows use it, and trials that do not fit are omitted."""

import pytest

from wirespeed.runner.time_budget import LONGER_SHARE, TimeBudget, allowed_s


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def budget_of(planned_s=100.0, allowed=130.0, trials=100):
    clock = Clock()
    return TimeBudget(planned_s, allowed, trials, clock), clock


def go_on(time_budget, clock, trials, each_s=1.0):
    for _ in range(trials):
        clock.now += each_s
        time_budget.finished()


def test_a_run_in_time_may_repeat_a_window():
    time_budget, clock = budget_of()
    go_on(time_budget, clock, 50)
    assert time_budget.may_repeat(1.0)


def test_the_first_trials_do_not_use_up_the_spare_time_of_the_last():
    time_budget, clock = budget_of()
    go_on(time_budget, clock, 10)
    taken = 0
    while time_budget.may_repeat(1.0):
        time_budget.repeated(1.0)
        clock.now += 1.0
        taken += 1
    assert 5 <= taken <= 10  # of 30 s that are free in all


def test_all_repeats_of_a_run_stay_within_what_is_allowed():
    time_budget, clock = budget_of()
    for _ in range(100):
        while time_budget.may_repeat(1.0):
            time_budget.repeated(1.0)
            clock.now += 1.0
        go_on(time_budget, clock, 1)
    assert clock.now <= 130.0
    assert time_budget.repeats_s >= 25.0


def test_a_slow_machine_learns_that_it_is_late():
    time_budget, clock = budget_of()
    go_on(time_budget, clock, 50, each_s=2.0)
    assert not time_budget.may_repeat(1.0)
    assert time_budget.fits(15) and not time_budget.fits(40)
    assert time_budget.left_s == 30.0


def test_a_budget_is_what_is_allowed_and_short_plans_are_never_cut():
    assert allowed_s(85.0, 100.0) == 100.0
    assert allowed_s(100.0, None) == 125.0
    assert allowed_s(5.0, None) == float("inf")


def test_all_pairs_together_go_on_for_a_share_of_the_plan_only():
    """Each of 54 pairs of a second may need two more, which is half of the plan."""
    time_budget, clock = budget_of(planned_s=200.0, trials=54)
    went_on = []
    for _ in range(54):
        took = min(2.0, time_budget.longer_left_s)
        went_on.append(took)
        clock.now += took
        time_budget.went_on(took)
        go_on(time_budget, clock, 1, each_s=200.0 / 54)
    assert sum(went_on) == pytest.approx(LONGER_SHARE * 200.0)
    assert sum(went_on[:27]) == pytest.approx((0.5 + 0.15) * sum(went_on), rel=0.05)
    assert time_budget.each_s == pytest.approx(200.0 / 54), "no part of what a trial takes"
