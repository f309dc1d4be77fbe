"""A host's clock: the reading with the smallest possible error counts."""

import time

import pytest

from wirespeed.agent import clock as agent_clock
from wirespeed.agent import sampling
from wirespeed.agent.sampling import Sampler
from wirespeed.fleet import host
from wirespeed.fleet.channel import Transport
from wirespeed.fleet.host import Host, Reading, better


def test_a_quick_reading_is_kept_while_later_ones_are_slow():
    quick, slow = Reading(0.1000, 0.0005, 100.0), Reading(0.1300, 0.0400, 101.0)
    assert better(quick, slow, 101.0) is quick


def test_a_reading_ages_as_clocks_drift():
    old, fresh = Reading(0.100, 0.0005, 0.0), Reading(0.104, 0.005, 100.0)
    assert better(old, fresh, 100.0) is fresh


def test_a_clock_that_was_set_is_read_again():
    kept, fresh = Reading(0.1, 0.0005, 100.0), Reading(-3600.0, 0.04, 101.0)
    assert better(kept, fresh, 101.0) is fresh


@pytest.fixture
def answering(monkeypatch):
    """A host 250 s ahead whose responses take these times, all in one direction."""

    def make(trips):
        far = Host.__new__(Host)
        far._clock, asked = Reading(0.0, float("inf"), 0.0), iter(trips)
        clock = [1000.0]
        far.far = Transport("far", lease_s=10.0)
        monkeypatch.setattr(host.clock, "now", lambda: clock[0])

        def ask(op):
            clock[0] += next(asked)
            return {"now": clock[0] + 250, "set_by_s": 0.25}

        far.ask = ask
        far.measure_clock()
        return far

    return make


def test_on_a_busy_host_it_asks_until_an_answer_was_quick(answering):
    far = answering([0.030] * 12 + [0.001] + [0.030] * 40)
    assert far.offset_s == pytest.approx(250, abs=0.0006)
    assert far.trip_s == pytest.approx(0.001)


def test_a_host_far_away_is_not_asked_for_ever(answering):
    far = answering([0.080] * host.CLOCK_ASKS_MAX)
    assert far.offset_s == pytest.approx(250, abs=0.041)


@pytest.fixture
def set_clock(monkeypatch):
    """Sets this machine's clock, for this process only, by so many seconds."""
    by, real = [0.0], time.time
    monkeypatch.setattr(time, "time", lambda: real() + by[0])

    def step(seconds):
        by[0] += seconds

    return step


@pytest.mark.parametrize("by_s", [-3600.0, -30.0, 30.0, 3600.0])
def test_samples_keep_their_distances_when_the_clock_is_set(set_clock, by_s):
    """CPU shares were divided by the step; after a step backwards no samples came for an hour."""
    sampler = Sampler()
    began = sampling.clock.now()
    sampler.start(0.05, [], [began + 0.02])
    set_clock(by_s)
    time.sleep(0.02)
    sampler.take()
    late_s = 10.0  # that a busy machine may be; the least step is more
    assert sampler.due - sampling.clock.now() == pytest.approx(0.05, abs=late_s)
    first, second = (sample["t_ns"] / 1e9 for sample in sampler.stop())
    assert second - first == pytest.approx(0.02, abs=late_s)
    assert first == pytest.approx(began, abs=late_s)


def far_host():
    """A host without its agent."""
    far = host.Host.__new__(Host)
    far._clock, far.offset_s, far.set_by_s = Reading(0.0, float("inf"), 0.0), 2.0, 0.0
    return far


def test_a_clock_that_was_set_is_reported(set_clock):
    far = far_host()
    far.far = Transport("here")
    far.measure_clock()
    assert far.clock_step_s() < agent_clock.SET_S
    before = far.wall_ahead_s
    set_clock(-60.0)
    assert far.clock_step_s() == pytest.approx(60.0, abs=10.0)
    far.measure_clock()
    assert far.wall_ahead_s - before == pytest.approx(-60.0, abs=10.0)
    assert far.clock_step_s() < agent_clock.SET_S


def test_a_clock_elsewhere_is_asked_for(answering):
    far = answering([0.001] * 8)
    assert far.wall_ahead_s == pytest.approx(250.25, abs=0.001)
    far.ask = lambda _: {"now": 0.0, "set_by_s": 3.25}
    assert far.clock_step_s() == pytest.approx(3.0)


def test_a_reading_while_the_clock_is_set_is_not_the_best_one(set_clock):
    """A clock that was set back within a question made its way shorter than nothing."""
    far = far_host()
    far.far, asked = Transport("far", lease_s=10.0), []

    def ask(_):
        asked.append(1)
        time.sleep(0.001)
        if len(asked) == 3:
            set_clock(-100.0)
        return {"now": agent_clock.now() + 5.0, "set_by_s": 0.0}

    far.ask = ask
    far.measure_clock()
    assert 0 <= far.trip_s < 0.1
    assert far.offset_s == pytest.approx(5.0, abs=0.05)


def test_a_sample_that_was_held_up_is_read_again(monkeypatch):
    """On a busy machine the agent was delayed between reading counters and clock, so the rates
    belonged to another period."""
    sampler = Sampler()
    sampler.start(10.0, [], [])
    pauses = iter([0.5, 0.0])
    real = sampling.pread

    def pread(fd):
        time.sleep(next(pauses, 0.0))
        return real(fd)

    monkeypatch.setattr(sampling, "pread", pread)
    before = agent_clock.now()
    sampler.take()
    taken = sampler.stop()[-1]["t_ns"] / 1e9
    assert before + 0.5 <= taken <= agent_clock.now()


def test_the_quickest_reading_counts_for_its_middle(monkeypatch):
    waits, clock = iter([0.03, 0.01, 0.02, 0.03, 0.02]), [100.0]
    monkeypatch.setattr(agent_clock.time, "monotonic", lambda: clock[0])

    def read():
        wait = next(waits)
        clock[0] += wait
        return wait

    took, at_s, value = agent_clock.timed(read)
    assert value == 0.01 and took == pytest.approx(0.01)
    assert at_s == pytest.approx(100.035)
