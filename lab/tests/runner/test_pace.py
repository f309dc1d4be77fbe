"""The time of a run: repeated windows use it, and trials that do not fit are omitted."""

from wirespeed.runner.pace import Pace, allowed_s


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def pace_of(planned_s=100.0, allowed=130.0, trials=100):
    clock = Clock()
    return Pace(planned_s, allowed, trials, clock), clock


def go_on(pace, clock, trials, each_s=1.0):
    for _ in range(trials):
        clock.now += each_s
        pace.finished()


def test_a_run_in_time_may_repeat_a_window():
    pace, clock = pace_of()
    go_on(pace, clock, 50)
    assert pace.may_repeat(1.0)


def test_the_first_trials_do_not_use_up_the_spare_time_of_the_last():
    pace, clock = pace_of()
    go_on(pace, clock, 10)
    taken = 0
    while pace.may_repeat(1.0):
        pace.repeated(1.0)
        clock.now += 1.0
        taken += 1
    assert 5 <= taken <= 10  # of 30 s that are free in all


def test_all_repeats_of_a_run_stay_within_what_is_allowed():
    pace, clock = pace_of()
    for _ in range(100):
        while pace.may_repeat(1.0):
            pace.repeated(1.0)
            clock.now += 1.0
        go_on(pace, clock, 1)
    assert clock.now <= 130.0
    assert pace.repeats_s >= 25.0


def test_a_slow_machine_learns_that_it_is_late():
    pace, clock = pace_of()
    go_on(pace, clock, 50, each_s=2.0)
    assert not pace.may_repeat(1.0)
    assert pace.fits(15) and not pace.fits(40)
    assert pace.left_s == 30.0


def test_a_budget_is_what_is_allowed_and_short_plans_are_never_cut():
    assert allowed_s(85.0, 100.0) == 100.0
    assert allowed_s(100.0, None) == 125.0
    assert allowed_s(5.0, None) == float("inf")
