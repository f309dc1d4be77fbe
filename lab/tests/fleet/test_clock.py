"""A host's clock: the reading that may be least wrong is the one that counts."""

import time

import pytest

from wirespeed.fleet import host
from wirespeed.fleet.host import Host, Reading, better


def test_a_quick_reading_is_kept_while_later_ones_are_slow():
    quick, slow = Reading(0.1000, 0.0005, 100.0), Reading(0.1300, 0.0400, 101.0)
    assert better(quick, slow, 101.0) is quick


def test_a_reading_ages_as_clocks_drift():
    old, fresh = Reading(0.100, 0.0005, 0.0), Reading(0.104, 0.005, 100.0)
    assert better(old, fresh, 100.0) is fresh


def test_a_clock_that_was_set_is_read_anew():
    kept, fresh = Reading(0.1, 0.0005, 100.0), Reading(-3600.0, 0.04, 101.0)
    assert better(kept, fresh, 101.0) is fresh


@pytest.fixture
def answering(monkeypatch):
    """A host 250 s ahead whose answers take these times, one way all of it."""

    def make(trips):
        far = Host.__new__(Host)
        far._clock, asked = Reading(0.0, float("inf"), 0.0), iter(trips)
        clock = [1000.0]
        monkeypatch.setattr(host.time, "time", lambda: clock[0])

        def ask(op):
            clock[0] += next(asked)
            return {"now": clock[0] + 250}

        far.ask = ask
        far.measure_clock()
        return far

    yield make
    assert time.time()


def test_on_a_busy_host_it_asks_until_an_answer_was_quick(answering):
    far = answering([0.030] * 12 + [0.001] + [0.030] * 40)
    assert far.offset_s == pytest.approx(250, abs=0.0006)
    assert far.trip_s == pytest.approx(0.001)


def test_a_host_far_away_is_not_asked_for_ever(answering):
    far = answering([0.080] * host.CLOCK_ASKS_MAX)
    assert far.offset_s == pytest.approx(250, abs=0.041)
