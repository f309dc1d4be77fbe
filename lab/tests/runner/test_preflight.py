"""A run reports in advance what the machine can decide."""

from types import SimpleNamespace

import pytest

from wirespeed.runner import preflight
from wirespeed.runner.preflight import Preflight
from wirespeed.stats import rounds

SCHEDULE = SimpleNamespace(comparisons=12, repeat=5, cells=[], seconds=100.0)
OPTION = "--wait-for-quiet"
QUIET = Preflight(0.0, 0.005, 0.05, 0.004, None)


def test_a_quiet_machine_says_from_where_on_differences_are_decided():
    text = QUIET.text(SCHEDULE)
    assert QUIET.is_quiet and "noisy now" not in text
    assert "in 5 rounds differences below about 4% will not be decided, 3% needs" in text


def test_a_noisy_machine_needs_many_rounds_for_a_small_difference():
    noisy = Preflight(0.0, 0.005, 0.05, 0.03, 0.06)
    assert noisy.expected == 0.06
    many = rounds.needed(0.03, 0.8, 12, 12, 0.06)
    assert many is None and "3% needs more than 40 rounds" in noisy.text(SCHEDULE)
    some = Preflight(0.0, 0.0, 0.0, 0.0, 0.02)
    assert f"3% needs {rounds.needed(0.03, 0.8, 12, 12, 0.02)} rounds" in some.text(SCHEDULE)


@pytest.mark.parametrize(
    "seen",
    [Preflight(0.05, 0, 0, 0, None), Preflight(0, 0.3, 0, 0, None), Preflight(0, 0, 0.8, 0, None)],
)
def test_steal_other_programs_and_a_slow_host_are_noise(seen):
    assert not seen.is_quiet
    assert f"{OPTION} TIME waits" in seen.text(SCHEDULE)


def test_waiting_ends_with_the_first_quiet_look_or_with_the_time(monkeypatch):
    looks = [Preflight(0, 0.3, 0, 0, None), Preflight(0, 0.2, 0, 0, None), QUIET]
    monkeypatch.setattr(preflight, "look", lambda *_: looks.pop(0))
    fleet, told = SimpleNamespace(poll=lambda _s: None), []
    assert preflight.wait_for_quiet(fleet, SCHEDULE, {}, 60.0, told.append) is QUIET
    assert told == ["waiting up to 1 min for a quiet machine"]
    looks[:] = [Preflight(0, 0.3, 0, 0, None)]
    assert not preflight.wait_for_quiet(fleet, SCHEDULE, {}, 0.0, told.append).is_quiet
