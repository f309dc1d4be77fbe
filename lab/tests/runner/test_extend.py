"""A run that goes on until it is decided: only as far as more rounds can decide it."""

from types import SimpleNamespace

import pytest

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
