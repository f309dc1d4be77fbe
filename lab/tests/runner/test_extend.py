"""A run that goes on until it is decided: only as far as more rounds can decide it."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from wirespeed.cli import run as command
from wirespeed.results.model import Run, RunPlan
from wirespeed.runner import extend


def summary(*comparisons, looks=1, rounds_max=0, repeat=5):
    """Comparisons as (metric, verdict, rounds that would decide it)."""
    gains = [
        SimpleNamespace(metric=metric, verdict=SimpleNamespace(word=word, more_rounds=rounds))
        for metric, word, rounds in comparisons
    ]
    plan = SimpleNamespace(repeat=repeat)
    run = SimpleNamespace(looks=looks, rounds_max=rounds_max, plan=plan)
    return SimpleNamespace(primary="rps", gains=gains, run=run)


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
        (summary(("rps", "not decided", 3), looks=9, rounds_max=20), 3),
        (summary(("rps", "not decided", 12), rounds_max=20), 12),
        (summary(("rps", "not decided", 16), rounds_max=20), 0),
        (summary(("rps", "not decided", 1), rounds_max=6), 1),
        (summary(("rps", "not decided", 1), rounds_max=5), 0),
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


def test_the_rounds_of_a_run_that_goes_on_are_known_before_it_begins():
    run = Run("r", "r", plan=RunPlan(repeat=5))
    begun = extend.begun(run, seconds=60.0, for_s=600.0)
    assert (begun.analysed_at, begun.rounds_max, begun.is_sequential) == ([5], 50, True)
    assert extend.begun(run).rounds_max == 20
    assert extend.begun(run, 60.0, 10.0).rounds_max == 5, "the planned rounds are measured"
    assert extend.begun(replace(run, looks=2)) == replace(run, looks=2), "its verdicts were read"
