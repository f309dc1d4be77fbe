"""Reactions of a run to a noisy machine, decided from interference alone."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from wirespeed.probe.window import Usage
from wirespeed.results.model import Calibration, Trial
from wirespeed.runner import known, trial
from wirespeed.runner.disturbance import (
    RECENT_MIN,
    WINDOWS_MAX,
    WINDOWS_MAX_LASTING,
    Disturbance,
    NoiseMonitor,
    of_window,
)
from wirespeed.runner.time_budget import TimeBudget
from wirespeed.runner.validity import Validity


def monitor_of(**changes):
    return NoiseMonitor(TimeBudget(100.0, float("inf"), 100), **changes)


def windows_until_enough(monitor):
    windows = 1
    while monitor.wants_another(windows, 1.0):
        windows += 1
    return windows


def test_a_quiet_machine_spends_more_windows_on_a_bad_moment_than_a_noisy_one():
    monitor = monitor_of()
    assert windows_until_enough(monitor) == WINDOWS_MAX
    for _ in range(RECENT_MIN):
        monitor.saw(None, is_disturbed=True, is_first_window=True)
    assert windows_until_enough(monitor) == WINDOWS_MAX_LASTING


def test_a_loss_below_the_usual_spread_is_not_measured_again():
    """The lab measured windows that had lost 2 % again on a machine whose trials differ by 15 %."""
    monitor = monitor_of(usual_spread=0.15)
    assert not monitor.wants_another(1, 1.0, 0.02) and monitor.wants_another(1, 1.0, 0.10)
    assert monitor_of(usual_spread=0.01).wants_another(1, 1.0, 0.02)
    assert monitor_of().wants_another(1, 1.0, 0.001), "of a new machine nothing is known"


def test_accepted_noise_and_a_late_run_measure_once():
    assert windows_until_enough(monitor_of(accept_noise=True)) == 1
    assert windows_until_enough(NoiseMonitor(TimeBudget(100.0, 100.0, 100))) == 1


def test_lasting_interference_is_reported_once():
    monitor = monitor_of()
    assert monitor.to_report() == ""
    for _ in range(RECENT_MIN):
        monitor.saw(None, is_disturbed=True, is_first_window=True)
    assert "noisy machine" in monitor.to_report()
    assert monitor.to_report() == ""


def test_windows_after_a_noisy_one_do_not_make_it_lasting():
    monitor = monitor_of()
    for _ in range(100):
        monitor.saw(None, is_disturbed=True, is_first_window=False)
    assert not monitor.is_lasting


def test_names_are_asked_for_only_after_a_disturbance():
    monitor = monitor_of()
    monitor.saw(Calibration(10.0, 10.0), is_disturbed=False, is_first_window=True)
    assert not monitor.wants_names
    monitor.saw(Calibration(10.0, 10.0), is_disturbed=True, is_first_window=True)
    assert monitor.wants_names
    assert monitor.best_ms is None  # four calibrations are too few to compare with


def test_a_host_that_is_slow_for_most_of_a_run_is_not_its_own_standard():
    """Calibrations of 12 ms and of 21: the median would call the slow state normal."""
    monitor = monitor_of()
    for ms in [12.0, 12.0, *[21.0] * 9]:
        monitor.saw(Calibration(ms, ms), is_disturbed=False, is_first_window=True)
    found = of_window(None, Calibration(21.0, 21.0), monitor.best_ms)
    assert found.slowed == pytest.approx(1 - 12 / 21)
    assert "more than this machine's best" in found.words[0]


def test_a_host_that_is_slow_from_the_first_trial_is_known_from_former_runs(monkeypatch, tmp_path):
    monkeypatch.setenv("WIRESPEED_STATE", str(tmp_path))
    facts = {"cpu_model": "some", "cores": 2}
    assert known.of_machine(facts).best_ms is None
    known.learn(facts, 11.7, 0.02)
    known.learn(facts, 21.3, None)
    monitor = monitor_of(known_best_ms=known.of_machine(facts).best_ms)
    assert monitor.best_ms == 11.7
    assert of_window(None, Calibration(21.0, 21.0), monitor.best_ms).slowed > 0.4
    assert known.of_machine({"cpu_model": "other"}).best_ms is None
    assert known.of_machine(facts).spread == 0.02
    known._file(facts).write_text("half a fi")
    assert known.of_machine(facts).best_ms is None


def usage(foreign, error):
    return Usage({"steal": 0.0}, {}, {}, {0: foreign}, error, 0.4)


def test_in_a_short_window_the_census_sees_more_than_ticks():
    """0.4 s: two ticks are 5 % of it; processes are counted in nanoseconds."""
    four_percent = usage(0.04, 0.05)
    assert of_window(four_percent, None, None).share == 0
    assert of_window(four_percent, None, None, [("cron", 0.04)]).share == pytest.approx(0.04)
    assert of_window(usage(0.06, 0.05), None, None, [("cron", 0.003)]).share == 0
    assert of_window(usage(0.06, 0.05), None, None, []).share == 0


def test_in_a_short_window_a_census_decides_only_what_two_ticks_leave_open():
    """Where a census saw no process, 90 % of a core were none; where it saw one on any core, two
    ticks of chance were a disturbance."""
    assert of_window(usage(0.9, 0.05), None, None, []).share == pytest.approx(0.9)
    assert of_window(usage(0.9, 0.05), None, None, None).share == pytest.approx(0.9)
    assert of_window(usage(0.06, 0.05), None, None, [("sh", 0.03)]).share == pytest.approx(0.03)
    assert of_window(usage(0.015, 0.05), None, None, [("make", 0.9)]).share == 0


class Window:
    """A measured window with a given disturbance; `rps` must never decide."""

    def __init__(self, folder, share, rps, reasons=()):
        self.folder, self.calibration, self.rps = folder, None, rps
        words = ("others",) if share else ()
        self.verdict = Validity(list(reasons), [], "server", Disturbance(share, words))
        self.has_failed = bool(reasons)
        (folder / "figures").write_text(str(rps))


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """Runs the windows of one trial with given shares: (the chosen window, how many there were)."""
    order = trial.Attempt(None, None, tmp_path, 1, True)

    def run(*windows):
        left = list(windows)

        def one(_session, _order, _monitor, folder, _before_ms):
            share, rps, *reasons = left.pop(0)
            return Window(Path(folder), share, rps, reasons)

        monkeypatch.setattr(trial, "_window", one)
        monkeypatch.setattr(trial, "window_cost_s", lambda _session, _order: 1.0)
        tried = trial._windows(None, order, monitor_of(), None)
        return trial._settled(order, tried), len(tried)

    return run


def test_a_quiet_window_is_measured_once(measured):
    assert measured((0.0, 100))[1] == 1


def test_a_noisy_window_is_repeated_until_one_is_quiet(measured, tmp_path):
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


@pytest.mark.parametrize("second", [0.0, 0.3])
def test_a_failure_is_the_trials_in_whichever_window_it_comes(measured, tmp_path, second):
    """The noisy window replaced it: measuring again hid the failure of the cell."""
    chosen, windows = measured((0.1, 100), (second, 0, "no request was completed"))
    assert (chosen.rps, chosen.has_failed, windows) == (0, True, 2)
    assert (tmp_path / "figures").read_text() == "0"
    assert (tmp_path / "window-1" / "figures").read_text() == "100"


def test_the_record_says_why_each_discarded_window_does_not_count():
    figures = {"gen-0": SimpleNamespace(rps=1234.4)}
    verdict = Validity(
        [], [], "server", Disturbance(0.1, ("other processes used 10 % of core 0",))
    )
    record = SimpleNamespace(done=SimpleNamespace(figures=figures), verdict=verdict)
    assert trial._described(record) == "other processes used 10 % of core 0: 1,234 requests/s"
    failed = replace(verdict, reasons=["no request was completed"])
    record.verdict = failed
    assert trial._described(record).startswith("no request was completed; other processes")


def test_a_cpu_quota_disturbs_by_what_it_held_back():
    usage = Usage({"steal": 0.0, "held_back": 0.3}, {}, {}, {0: 0.0}, 0.001, 1.0)
    found = of_window(usage, None, None)
    assert found.share == pytest.approx(0.3)
    assert found.words == (
        "the CPU quota of this container or service throttled programs for 30.0% of a core",
    )


def test_a_user_without_a_home_measures_too(monkeypatch):
    """In a container with an arbitrary user id, the home directory is unknown."""
    for name in ("WIRESPEED_STATE", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", classmethod(lambda _: (_ for _ in ()).throw(RuntimeError())))
    assert known.of_machine({"cpu_model": "of no run at all"}) == known.Known()


def test_a_resumed_run_knows_its_earlier_calibrations():
    """A run that was resumed on a slow host used its speed as the machine's usual speed."""
    before = [
        Trial(f"t{n}", "c", n, n, t_start=float(n), metrics={"rps": 1.0},
              calibration=Calibration(10.0, 10.0), disturbed=0.1)
        for n in range(1, 9)
    ]  # fmt: skip
    monitor = monitor_of()
    monitor.remember([*before, Trial("failed", "c", 9, 9, valid=False)])
    monitor.saw(Calibration(15.0, 15.0), is_disturbed=False, is_first_window=True)
    assert monitor.best_ms == 10.0
    assert monitor.is_lasting, "as in the trials before"


def test_a_window_in_which_a_clock_was_set_is_measured_again():
    """wrk and ab time with the wall clock: their rate was divided by the step."""
    found = of_window(None, None, None, clock_step_s=0.31)
    assert found.share == 1.0 and found.words == ("a clock was set by 0.31 s",)
