"""Metrics: sums, merged histograms, quantiles that are shown only with samples behind them."""

import math
import random
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hdrh.histogram import HdrHistogram
from hypothesis import given
from hypothesis import strategies as st

from wirespeed.driver.base import Figures, Latency, Window
from wirespeed.probe.window import Usage
from wirespeed.recipe.model import Metric
from wirespeed.runner import metrics, work
from wirespeed.runner.warm import is_stable


def histogram(values_ns):
    histogram = HdrHistogram(1, 3_600_000_000_000, 3)
    for value in values_ns:
        histogram.record_value(value)
    return Latency(
        mean_ns=sum(values_ns) / len(values_ns),
        max_ns=max(values_ns),
        count=len(values_ns),
        hdr=histogram.encode().decode(),
    )


def figures(rps=100.0, bytes_per_second=1e6, latency=None, window=(0, 10**9)):
    return Figures(
        rps, bytes_per_second, Window(*window), 100, 0, 0, 0, 10, True, latency=latency or {}
    )


def metric(**keys):
    return Metric.model_validate({"name": "m", "from": "gen", **keys})


def test_rates_are_summed_and_kept_apart():
    flat = metrics.combined([metric()], {"gen": [figures(100.0), figures(50.0)]})
    assert flat == {"m": 150.0, "m[0]": 100.0, "m[1]": 50.0}


def test_throughput_is_decimal_gigabits():
    wanted = metric(field="bytes_per_second", unit="Gb/s")
    assert metrics.combined([wanted], {"gen": [figures(bytes_per_second=1.25e9)]}) == {"m": 10.0}


def test_histograms_are_merged_not_averaged():
    fast = histogram([1_000_000] * 99 + [2_000_000])
    slow = histogram([9_000_000] * 100)
    flat = metrics.combined(
        [metric(combine="histogram", quantiles=["mean", 0.5, 0.75, "max"])],
        {"gen": [figures(latency={"service": fast}), figures(latency={"service": slow})]},
    )
    assert flat["m.mean"] == pytest.approx((99 * 1000 + 2000 + 100 * 9000) / 200)
    assert flat["m.p75"] == pytest.approx(9000, rel=1e-3)
    assert flat["m.p50"] == pytest.approx(2000, rel=1e-3)
    assert flat["m.max"] == 9000


def test_percentiles_of_eight_generators_are_those_of_all_their_samples_together():
    """Generators of unequal speed and length: the mean of their percentiles would be far off."""
    chance = random.Random(8)
    each = [
        [
            max(1, int(chance.lognormvariate(13 + number / 2, 0.6)))
            for _ in range(200 * (9 - number))
        ]
        for number in range(8)
    ]
    flat = metrics.combined(
        [metric(combine="histogram", quantiles=["mean", 0.5, 0.9, 0.99, "max"])],
        {"gen": [figures(latency={"service": histogram(samples)}) for samples in each]},
    )
    together = sorted(sample for samples in each for sample in samples)
    assert flat["m.mean"] == pytest.approx(sum(together) / len(together) / 1e3)
    assert flat["m.max"] == together[-1] / 1e3
    for name, q in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
        exact_us = together[math.ceil(q * len(together)) - 1] / 1e3
        # Three digits are what the histogram keeps of a value.
        assert flat[f"m.{name}"] == pytest.approx(exact_us, rel=2e-3)


def test_a_quantile_without_enough_samples_is_missing():
    flat = metrics.combined(
        [metric(combine="histogram", quantiles=[0.9, 0.99, 0.999])],
        {"gen": [figures(latency={"service": histogram([1000] * 1000)})]},
    )
    assert flat["m.p90"] is not None and flat["m.p99"] is not None
    assert flat["m.p99_9"] is None


def test_texts_of_several_generators_cannot_be_merged():
    text = Latency(1e6, 2e6, 1000, {0.5: 1e6})
    one = metrics.combined(
        [metric(combine="histogram", quantiles=["mean", 0.5])],
        {"gen": [figures(latency={"service": text})]},
    )
    assert one == {"m.mean": 1000.0, "m.p50": 1000.0}
    two = metrics.combined(
        [metric(combine="histogram", quantiles=["mean", 0.5])],
        {"gen": [figures(latency={"service": text})] * 2},
    )
    assert two == {"m.mean": None, "m.p50": None}


def test_the_common_window_is_where_all_generators_measured():
    both = {"a": figures(window=(0, 10)), "b": figures(window=(4, 10))}
    assert metrics.common_window(both) == Window(4, 6)


def test_cpu_per_request_covers_the_time_in_which_all_generators_measured(monkeypatch):
    """CPU of the common second was divided by the requests of both windows, the longer one's
    second half too: a third less a request than it was."""
    both = {
        "a": replace(figures(window=(0, 10**9)), completed=100),
        "b": replace(figures(window=(0, 2 * 10**9)), completed=200),
    }
    usage = Usage({}, {"app-0": 0.1}, {}, {}, 0.0, 1.0)
    roles = {"app-0": "server"}
    flat = metrics.costs(both, usage, roles)
    assert flat["server.cpu_us_per_request"] == pytest.approx(500)
    assert "server.context_switches_per_request" not in flat, "threads were not read"
    usage = replace(usage, switches={"app-0": 400.0, "gen-0": 1e6})
    roles["gen-0"] = "load"
    assert metrics.costs(both, usage, roles)[
        "server.context_switches_per_request"
    ] == pytest.approx(2)
    monkeypatch.setattr(work.proof, "has_stack", lambda _: False)
    found = work.metrics(None, SimpleNamespace(), usage, roles, both)
    assert found[work.METRIC] == pytest.approx(500)


@pytest.mark.parametrize(
    ("rates", "stable"),
    [
        ([], False),
        ([100, 100], False),
        ([50, 100, 101, 100], True),
        ([100, 101, 110], False),
        ([0, 0, 0], False),
    ],
)
def test_warm_is_three_windows_that_agree(rates, stable):
    assert is_stable(rates) == stable


@pytest.mark.parametrize(
    ("q", "count"), [(0.5, 20), (0.9, 100), (0.99, 1000), (0.999, 10_000), (0.9999, 100_000)]
)
def test_a_quantile_needs_ten_samples_beyond_it(q, count):
    """Exactly 1,000 requests had their p99 left out: 1 - 0.99 is less than a hundredth."""
    assert metrics.has_enough(q, count) and not metrics.has_enough(q, count - 1)


@given(
    st.lists(st.lists(st.integers(1000, 10**9), min_size=1, max_size=300), min_size=1, max_size=4)
)
def test_merged_quantiles_are_those_of_all_samples(sides):
    """Each generator's own may be far from it; a histogram keeps three digits."""
    every = sorted(value for values in sides for value in values)
    parts = [figures(latency={"service": histogram(values)}) for values in sides]
    wanted = metric(combine="histogram", quantiles=["mean", 0.5, 0.9, "max"])
    flat = metrics.combined([wanted], {"gen": parts})
    assert flat["m.mean"] == pytest.approx(sum(every) / len(every) / 1e3)
    assert flat["m.max"] == every[-1] / 1e3
    for q in (0.5, 0.9):
        found = flat[f"m.p{round(q * 100)}"]
        assert (found is not None) == (len(every) * (1 - q) >= 10 - 1e-9)
        if found is not None:
            rank = max(1, int(q * len(every) + 0.5))
            assert found == pytest.approx(every[rank - 1] / 1e3, rel=2e-3)
