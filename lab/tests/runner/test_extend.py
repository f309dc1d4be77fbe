"""A run that goes on until it is decided: only as far as more rounds can decide it."""

from types import SimpleNamespace

import pytest

from wirespeed.cli import run as command
from wirespeed.runner import extend


def summary(*comparisons, looks=1):
    """Comparisons as (metric, verdict, rounds that would decide it)."""
    gains = [
        SimpleNamespace(metric=metric, verdict=SimpleNamespace(word=word, more_rounds=rounds))
        for metric, word, rounds in comparisons
    ]
    return SimpleNamespace(primary="rps", gains=gains, run=SimpleNamespace(looks=looks))


@pytest.mark.parametrize(
    ("found", "rounds"),
    [
        (summary(("rps", "gain", 0), ("rps", "not decided", 3)), 3),
        (summary(("rps", "not decided", 3), ("rps", "not decided", 7)), 7),
        (summary(("rps", "not decided", 3), ("rps", "not decided", 400)), 3),
        (summary(("rps", "not decided", 400)), 0),
        (summary(("rps", "not comparable", 3)), 0),
        (summary(("server.cpu_us_per_request", "not decided", 3)), 0),
        (summary(("rps", "not decided", None)), 0),
        (summary(("rps", "not decided", 3), looks=extend.LOOKS_MAX), 0),
    ],
)
def test_rounds_are_added_only_where_they_decide(found, rounds):
    assert extend.rounds_to_decide(found) == rounds


@pytest.mark.parametrize(("force", "accept_noise"), [(True, False), (False, True)])
def test_rounds_that_decide_are_measured_under_the_options_of_the_run(
    monkeypatch, tmp_path, force, accept_noise
):
    given, wanted = [], iter([3, 0])
    monkeypatch.setattr(command, "load", lambda run_dir: None)
    monkeypatch.setattr(command.extend, "rounds_to_decide", lambda summary: next(wanted))
    monkeypatch.setattr(
        command.session,
        "resume",
        lambda run_dir, display, more: given.append(more) or (run_dir, []),
    )
    display = SimpleNamespace(told=lambda text: None)
    more = command.session.More(until_decided=True, force=force, accept_noise=accept_noise)
    command._extended((tmp_path, []), display, more)
    assert given == [command.session.More(3, True, force, accept_noise)]
