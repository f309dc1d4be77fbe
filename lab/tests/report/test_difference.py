"""The page of two runs: what differs is on it, escaped, and it loads nothing."""

import re

import pytest
from report.make_run import KINDS, make_run
from typer.testing import CliRunner

from wirespeed.analysis import two_runs
from wirespeed.analysis.summary import load
from wirespeed.cli.app import app
from wirespeed.errors import StorageError
from wirespeed.report import difference


def made(folder, factor=1.0, seed=7):
    kind = KINDS["quickstart"]()
    rate = kind.rate
    kind.rate = lambda axes: rate(axes) * factor
    return make_run(kind, folder, seed)


def test_a_page_has_every_cell_its_verdict_and_what_differs_between_the_hosts(tmp_path):
    runs = made(tmp_path / "a"), made(tmp_path / "b", factor=1.4, seed=8)
    path = runs[1] / "run.json"
    model = load(runs[1]).run.facts["cpu_model"]
    path.write_text(path.read_text().replace(f'"{model}"', '"<script>alert(1)</script>"'))
    page = tmp_path / "page.html"
    done = CliRunner().invoke(app, ["compare", *map(str, runs), "--html", str(page)])
    assert done.exit_code == 0, done.output
    text = page.read_text()
    found = two_runs.compare(load(runs[0]), load(runs[1]), ["rps"])
    assert text.count("<tr>") - 2 - len(found.facts) == len(found.differences) > 0
    assert "&lt;script&gt;alert(1)" in text and "<script" not in text
    assert difference.counted(found) in text and difference.over_all(found.pooled[0]) in text
    assert 'class="text gain">better' in text and "<svg" in text
    assert not re.search(r'(src|href)="(?!#)', text), "nothing is loaded"


def test_a_page_that_cannot_be_written_is_one_line(tmp_path):
    summary = load(made(tmp_path / "a"))
    found = two_runs.compare(summary, summary, ["rps"])
    with pytest.raises(StorageError, match=r"cannot write .*gone"):
        difference.write(summary, summary, found, tmp_path / "gone" / "page.html")


def test_a_page_of_commands_is_refused_before_they_are_started(tmp_path):
    words = ["compare", "--run", "./a {port}", "--run", "./b {port}", "--html", "page.html"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code != 0 and "--html belongs to compare RUN RUN" in str(done.exception)
