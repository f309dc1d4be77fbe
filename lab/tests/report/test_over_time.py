"""Resources inside a measured window: the report charts the ones in the recipe's [sample]."""

from __future__ import annotations

import dataclasses
import re

import pytest
from report.make_run import KINDS, make_run

from wirespeed.analysis.summary import load
from wirespeed.report import charts


@pytest.mark.parametrize(
    ("sample", "shown"),
    [
        ('server = ["memory", "cpu"]', ["memory used", "server CPU"]),
        ('server = ["network"]\nload = ["cpu"]', ["network", "load CPU"]),
        (
            'every = "1s"',
            ["server CPU", "load CPU", "memory used", "network", "run queue", "context switches",
             "load average"],
        ),
    ],
)  # fmt: skip
def test_the_recipe_names_what_is_charted(tmp_path, sample, shown):
    recipe = f"wirespeed = 1\n[sample]\n{sample}\n"
    kind = dataclasses.replace(KINDS["quickstart"](), recipe=recipe)
    found, _ = charts.resources_over_time(load(make_run(kind, tmp_path)))
    heads = [re.search(r'aria-label="([^",]+)', chart.svg)[1] for chart in found]
    assert [head.replace(" over the measured window", "") for head in heads] == shown
