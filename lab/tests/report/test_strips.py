"""The repeats of each cell in time order: one row per cell."""

import re

import pytest
from report.make_run import KINDS, make_run

from wirespeed.analysis.summary import load
from wirespeed.report import page, strips

#: The heading of the chart.
HEADING = "<h3>Each cell"


@pytest.fixture
def summary(tmp_path):
    return load(make_run(KINDS["quickstart"](), tmp_path))


def test_each_repeated_cell_has_a_row_with_every_trial_and_its_median(summary, monkeypatch):
    monkeypatch.setattr(strips, "ROWS_MAX", 1000)
    repeated = [cell for cell in summary.measured if len(cell.trials) > 1]
    svg = strips.cells_over_time(summary).svg
    rows = re.findall(r'<text x="0" y="[\d.]+">([^<]+)</text>', svg)
    assert rows == [", ".join(f"{k} {v}" for k, v in cell.axes.items()) for cell in repeated]
    marks = [path.count("z") for path in re.findall(r'class="mark" d="([^"]*)"', svg)]
    assert marks == [len(cell.trials) for cell in repeated]
    assert svg.count("cross") == sum(
        trial.metrics.get(summary.primary) is not None
        for cell in repeated for trial in cell.invalid
    )  # fmt: skip


def test_a_trial_that_came_later_stands_further_right_and_a_better_one_higher(summary):
    cell = summary.measured[0]
    first = min(trial.t_start for trial in summary.valid)
    row = strips._row(summary, cell, summary.primary, first)
    by_time = sorted(cell.trials, key=lambda trial: trial.t_start)
    assert [point.x for point in row.points] == [(t.t_start - first) / 60 for t in by_time]
    best = max(range(len(by_time)), key=lambda i: by_time[i].metrics[summary.primary])
    assert max(row.points, key=lambda point: point.y) is row.points[best]


def test_too_many_cells_leave_out_the_steadiest_and_say_so(summary, monkeypatch):
    monkeypatch.setattr(strips, "ROWS_MAX", 3)
    repeated = [cell for cell in summary.measured if len(cell.trials) > 1]
    chart = strips.cells_over_time(summary)
    assert len(re.findall(r'<text x="0"', chart.svg)) == 3
    assert f"{len(repeated) - 3} steadier cells not drawn." in chart.caption


def test_a_cell_whose_trials_have_no_such_figure_has_no_row(summary):
    """Responses of 100 MB take longer than a window: their metric is the throughput."""
    before = strips.cells_over_time(summary).svg
    for trial in summary.measured[0].trials:
        trial.metrics[summary.primary] = 0.0
    after = strips.cells_over_time(summary).svg
    assert after.count('<text x="0"') == before.count('<text x="0"') - 1


def test_a_run_without_repeats_has_no_such_chart(summary, monkeypatch):
    assert HEADING in page.html(summary)
    monkeypatch.setattr(strips, "TRIALS_MIN", 100)
    assert strips.cells_over_time(summary) is None
    assert HEADING not in page.html(summary)
