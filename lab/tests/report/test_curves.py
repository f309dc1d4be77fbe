"""Latency over percentiles, and what of the machine differs from the method."""

import dataclasses
import re

import pytest
from report.make_run import KINDS, make_run

from wirespeed.analysis.summary import load
from wirespeed.report import curves, page


@pytest.fixture(scope="module")
def summary(tmp_path_factory):
    return load(make_run(KINDS["quickstart"](), tmp_path_factory.mktemp("runs")))


def test_a_curve_has_a_line_for_each_contender_and_a_tick_for_each_percentile(summary):
    charts = curves.latency_curves(summary)
    assert len(charts) == curves.CURVES_MAX
    first = charts[0].svg
    assert re.findall(r">(50|75|90|99|99\.9|max)</text>", first) == [
        "50", "75", "90", "99", "99.9", "max",
    ]  # fmt: skip
    stacks = summary.run.axes["stack"]
    shown = [stack for stack in stacks if f">{stack}</text>" in first]
    assert len(shown) >= 2 and first.count("<polyline") == len(shown)


def test_a_curve_ends_where_too_few_answers_stand_behind_a_percentile(summary):
    cell = summary.measured[0]
    for trial in cell.trials:
        trial.metrics["latency.p99_9"] = None
    names = [name for _, name, key in curves._percentiles(cell, "latency") if cell.median(key)]
    assert names == ["50", "75", "90", "99", "max"]


def test_the_page_shows_the_curves_and_what_differs_from_the_method(summary):
    rows = [["net.core.somaxconn", "128", "the method had 5000"]]
    text = page.html(dataclasses.replace(summary, run=dataclasses.replace(summary.run, audit=rows)))
    assert '<h2 id="curves">Latency by percentile</h2>' in text
    assert '<td class="text">128</td><td class="text">the method had 5000</td>' in text
