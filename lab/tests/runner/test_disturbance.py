"""What a run does about a machine that is not calm, decided from disturbances alone."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from wirespeed.results.model import Canary
from wirespeed.runner import trial
from wirespeed.runner.disturbance import (
    RECENT_MIN,
    WINDOWS_MAX,
    WINDOWS_MAX_LASTING,
    Disturbance,
    Weather,
)
from wirespeed.runner.judge import Verdict
from wirespeed.runner.pace import Pace


def weather_of(**changes):
    return Weather(Pace(100.0, float("inf"), 100), **changes)


def windows_until_enough(weather):
    windows = 1
    while weather.wants_another(windows, 1.0):
        windows += 1
    return windows


def test_a_calm_machine_spends_more_windows_on_a_bad_moment_than_one_that_is_never_calm():
    weather = weather_of()
    assert windows_until_enough(weather) == WINDOWS_MAX
    for _ in range(RECENT_MIN):
        weather.saw(None, is_disturbed=True, is_first_window=True)
    assert windows_until_enough(weather) == WINDOWS_MAX_LASTING


def test_accepted_noise_and_a_late_run_measure_once():
    assert windows_until_enough(weather_of(accept_noise=True)) == 1
    assert windows_until_enough(Weather(Pace(100.0, 100.0, 100))) == 1


def test_a_lasting_disturbance_is_told_once():
    weather = weather_of()
    assert weather.to_tell() == ""
    for _ in range(RECENT_MIN):
        weather.saw(None, is_disturbed=True, is_first_window=True)
    assert "not calm" in weather.to_tell()
    assert weather.to_tell() == ""


def test_windows_that_follow_a_disturbed_one_do_not_make_it_lasting():
    weather = weather_of()
    for _ in range(100):
        weather.saw(None, is_disturbed=True, is_first_window=False)
    assert not weather.is_lasting


def test_names_are_asked_for_only_after_a_disturbance():
    weather = weather_of()
    weather.saw(Canary(10.0, 10.0), is_disturbed=False, is_first_window=True)
    assert not weather.wants_names
    weather.saw(Canary(10.0, 10.0), is_disturbed=True, is_first_window=True)
    assert weather.wants_names
    assert weather.median_ms is None  # four canaries are too few to compare with


class Window:
    """A measured window with a given disturbance; `rps` must never decide."""

    def __init__(self, folder, share, rps, reasons=()):
        self.folder, self.canary, self.rps = folder, None, rps
        words = ("others",) if share else ()
        self.verdict = Verdict(list(reasons), [], "server", Disturbance(share, words))
        self.has_failed = bool(reasons)
        (folder / "figures").write_text(str(rps))


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """Runs the windows of one trial with given shares: (the chosen window, how many there were)."""
    times = SimpleNamespace(warmup_s=1.0, step_warmup_s=0.2, duration_s=0.4)
    life = SimpleNamespace(schedule=SimpleNamespace(times=times))
    order = trial.Order(None, None, tmp_path, 1, True)

    def run(*windows):
        left = list(windows)

        def one(_life, _order, _weather, folder, _before_ms):
            share, rps, *reasons = left.pop(0)
            return Window(Path(folder), share, rps, reasons)

        monkeypatch.setattr(trial, "_window", one)
        tried = trial._windows(life, order, weather_of(), None)
        return trial._settled(order, tried), len(tried)

    return run


def test_a_calm_window_is_measured_once(measured):
    assert measured((0.0, 100))[1] == 1


def test_a_disturbed_window_is_measured_until_one_is_calm(measured, tmp_path):
    chosen, windows = measured((0.1, 300), (0.2, 200), (0.0, 100))
    assert (chosen.rps, windows) == (100, 3)
    assert (tmp_path / "figures").read_text() == "100"
    assert (tmp_path / "window-1" / "figures").read_text() == "300"
    assert (tmp_path / "window-2" / "figures").read_text() == "200"


def test_the_calmest_window_counts_whatever_it_gave(measured):
    chosen, windows = measured((0.3, 500), (0.1, 100), (0.2, 900), (0.4, 800))
    assert (chosen.rps, windows) == (100, WINDOWS_MAX)


def test_a_window_that_fails_for_its_own_reason_is_not_measured_again(measured):
    chosen, windows = measured((0.1, 100, "12 errors in 100 requests"))
    assert (chosen.has_failed, windows) == (True, 1)


def test_a_disturbed_window_stands_when_the_next_one_fails(measured):
    chosen, windows = measured((0.1, 100), (0.0, 0, "no request was completed"))
    assert (chosen.rps, windows) == (100, 2)


def test_the_record_says_why_each_discarded_window_does_not_count():
    figures = {"gen-0": SimpleNamespace(rps=1234.4)}
    verdict = Verdict([], [], "server", Disturbance(0.1, ("other programs used 10 % of core 0",)))
    record = SimpleNamespace(done=SimpleNamespace(figures=figures), verdict=verdict)
    assert trial._told(record) == "other programs used 10 % of core 0: 1,234 requests/s"
    failed = replace(verdict, reasons=["no request was completed"])
    record.verdict = failed
    assert trial._told(record).startswith("no request was completed; other programs")
