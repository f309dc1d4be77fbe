"""The first signal ends a run, and none stops what it tidies up."""

import contextlib
import signal
import sys

import pytest

from wirespeed.interrupts import (
    Terminated,
    check,
    have_come,
    held_back,
    signals_as_interrupts,
)


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


@pytest.mark.parametrize("line", range(1, 4))
def test_a_signal_within_the_handler_of_the_first_does_not_swallow_it(line):
    """Both counted two signals, and neither was raised: a run that got Ctrl-C twice went on."""
    nested = []

    def trace(frame, event, _):
        if frame.f_code.co_name != "stop":
            return None
        if event == "line" and frame.f_lineno == frame.f_code.co_firstlineno + line and not nested:
            nested.append(line)
            signal.raise_signal(signal.SIGINT)
        return trace

    before = sys.gettrace()
    try:
        with pytest.raises(KeyboardInterrupt), signals_as_interrupts():
            sys.settrace(trace)
            signal.raise_signal(signal.SIGINT)
    finally:
        sys.settrace(before)
    assert nested == [line]


def test_an_interrupt_that_was_lost_is_raised_before_work_goes_on():
    """In a finalizer, for example, or by a failure of what tidies up."""
    check()
    with pytest.raises(Terminated) as stop, signals_as_interrupts():
        check()
        with contextlib.suppress(Terminated):
            signal.raise_signal(signal.SIGTERM)
        check()
    assert stop.value.number == signal.SIGTERM
    check()


def test_a_failure_after_a_signal_ends_like_the_signal():
    """An answer of the agent that the signal cut in two failed as the run ended: exit code 1."""
    with pytest.raises(Terminated) as stop, signals_as_interrupts():
        try:
            signal.raise_signal(signal.SIGHUP)
        finally:
            assert have_come()
            raise OSError("half an answer")
    assert stop.value.number == signal.SIGHUP
    assert not have_come()
    with pytest.raises(OSError, match="alone"), signals_as_interrupts():
        raise OSError("alone")


def test_an_interrupt_of_an_outer_block_counts_after_an_inner_one_has_ended():
    with pytest.raises(KeyboardInterrupt), signals_as_interrupts():
        with signals_as_interrupts():
            check()
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        check()
    check()


def test_hup_stays_ignored_under_nohup():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with signals_as_interrupts(), held_back():
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
