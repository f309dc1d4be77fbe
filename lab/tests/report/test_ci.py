"""Files for CI systems: what a reviewer and a dashboard are given."""

import json
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from report.make_run import LATENCY, RPS, Kind, make_run

from wirespeed.analysis.summary import load
from wirespeed.report import ci


@pytest.fixture(scope="module")
def summary(tmp_path_factory):
    def rate(axes):
        slower = 0.7 if axes["connections"] == 50 else 1.0
        return 50_000 * (slower if axes["variant"] == "head" else 1.0)

    table = {"rows": "connections", "columns": "variant", "value": "rps", "gain": {"over": "base"}}
    kind = Kind(
        "compare", "base against head", {"connections": [1, 50], "variant": ["base", "head"]},
        [table], rate, metrics=[RPS, LATENCY], noise=0.003, baseline={"variant": "base"},
    )  # fmt: skip
    found = load(make_run(kind, tmp_path_factory.mktemp("ci")))
    labels = {"base": "0123456789ab", "head": "ba9876543210"}
    return replace(found, run=replace(found.run, labels=labels))


def test_a_comment_has_the_losses_first_and_names_the_revisions(summary):
    text = ci.comment(summary)
    assert text.startswith(ci.MARKER + "\n### Performance: 1 loss")
    assert "base `0123456789ab` with head `ba9876543210`" in text
    rows = [line for line in text.splitlines() if line.startswith("| :")]
    assert "connections 50" in rows[0] and "loss" in rows[0] and "−30 %" in rows[0]
    assert all(row.count(" | ") == 5 for row in rows)


def test_a_text_of_a_program_breaks_neither_table_nor_xml(summary):
    cell = summary.cells[0]
    bad = replace(cell.trials[0], valid=False, reasons=["a | b <script>\n\x00"])
    broken = replace(summary, cells=(replace(cell, invalid=(bad,)), *summary.cells[1:]))
    assert "a \\| b &lt;script>" in ci.comment(broken)
    suite = ElementTree.fromstring(ci.junit(broken))
    assert suite.get("errors") == "1" and suite.find("testcase/error") is not None


def test_junit_fails_a_loss_and_skips_what_is_not_decided(summary):
    suite = ElementTree.fromstring(ci.junit(summary))
    assert suite.get("failures") == str(len(suite.findall("testcase/failure"))) == "1"
    assert int(suite.get("tests")) == len(suite.findall("testcase")) == len(summary.gains)


def test_dashboards_get_each_figure_once_and_in_its_direction(summary, tmp_path):
    ci.write(summary, tmp_path / "ci")
    bigger = json.loads((tmp_path / "ci" / "github-bigger.json").read_text())
    smaller = json.loads((tmp_path / "ci" / "github-smaller.json").read_text())
    assert all("requests/s" in one["name"] for one in bigger) and len(bigger) == 4
    assert {one["name"].rpartition(": ")[2] for one in smaller} >= {"latency p50", "latency p99"}
    names = [one["name"] for one in (*bigger, *smaller)]
    assert len(names) == len(set(names))
    metric = json.loads((tmp_path / "ci" / "bencher.json").read_text())
    rps = metric["connections 50, variant head"]["rps"]
    assert rps["lower_value"] <= rps["value"] <= rps["upper_value"]
    assert rps["value"] == pytest.approx(35_000, rel=0.02)
