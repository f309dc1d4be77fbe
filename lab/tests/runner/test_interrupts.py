"""The first signal ends a run, and none stops what it tidies up."""

import signal

import pytest

from wirespeed.runner.interrupts import Terminated, held_back, signals_as_interrupts


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_of_a_block_that_tidies_up_is_raised_after_it(number):
    done = []
    with pytest.raises(KeyboardInterrupt) as stop, signals_as_interrupts():
        with held_back():
            signal.raise_signal(number)
            done.append("removed")
        done.append("went on")
    assert done == ["removed"]
    assert getattr(stop.value, "number", signal.SIGINT) == number
    assert isinstance(stop.value, Terminated) == (number != signal.SIGINT)


def test_a_signal_that_comes_while_a_failure_is_tidied_up_is_not_lost():
    with pytest.raises(KeyboardInterrupt), signals_as_interrupts(), held_back():
        signal.raise_signal(signal.SIGINT)
        raise OSError("the disk is full")


def test_signals_after_the_first_are_ignored_until_the_run_has_ended():
    done = []
    with pytest.raises(Terminated) as stop, signals_as_interrupts():
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            signal.raise_signal(signal.SIGINT)
            with held_back():
                signal.raise_signal(signal.SIGINT)
            done.append("removed")
    assert (done, stop.value.number) == (["removed"], signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_hup_stays_ignored_under_nohup():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with signals_as_interrupts(), held_back():
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
