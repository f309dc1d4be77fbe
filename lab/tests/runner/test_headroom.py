"""Rates of generators without their server: over several windows, as one may be a bad moment."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from wirespeed.errors import ProcessError
from wirespeed.runner import headroom


def reached(monkeypatch, rates):
    """With windows of these rates; None is a window in which requests failed."""
    left = list(rates)

    def generate(*_words, **_more):
        rate = left.pop(0)
        if rate == "dies":
            raise ProcessError("the null server ended")
        return SimpleNamespace(
            figures={"gen": SimpleNamespace(rps=rate or 1.0, errors=int(rate is None), non_2xx=0)}
        )

    monkeypatch.setattr(headroom, "generate", generate)
    monkeypatch.setattr(headroom.proof, "served", lambda _session: None)
    session = SimpleNamespace(
        begin=lambda _cells: None, end=list,
        fleet=SimpleNamespace(hold_idle=lambda: True, release_idle=lambda: None),
        schedule=SimpleNamespace(times=SimpleNamespace(step_warmup_s=0.1)),
    )  # fmt: skip
    found = headroom.reached(session, None, Path("."))
    assert not left or "dies" in rates
    return found


def test_the_headroom_is_the_median_of_several_windows(monkeypatch):
    """One window of 0.4 s stood against a hard limit: a bad moment made a generator full."""
    assert reached(monkeypatch, [200_000.0, 90_000.0, 190_000.0]) == 190_000


@pytest.mark.parametrize("rates", [[1e5, None, 1e5], [1e5, "dies"]])
def test_a_null_server_that_fails_in_a_window_gives_no_headroom(monkeypatch, rates):
    assert reached(monkeypatch, rates) is None
