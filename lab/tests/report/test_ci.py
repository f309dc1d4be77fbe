"""Files for CI systems: what a reviewer and a dashboard are given."""

import json
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from report.make_run import LATENCY, RPS, Kind, make_run

from wirespeed.analysis import gate
from wirespeed.analysis.summary import load
from wirespeed.analysis.verdict import Verdict
from wirespeed.report import ci, wording


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


def test_a_broken_rule_and_a_missing_cell_are_in_the_comment_and_fail_a_case(summary, tmp_path):
    """A broken rule failed the job, whose junit.xml was green."""
    gains = [gain for gain in summary.gains if gain.verdict.word != "loss"]
    lost = replace(summary.cells[0], trials=(), state="thinned", reason="the budget ended")
    shown = replace(summary, gains=tuple(gains), families=(), cells=(*summary.cells[1:], lost))
    check = gate.Criteria(rules=(gate.rule("p99 < 1us"), gate.rule("rps > 1")))
    ci.write(shown, tmp_path, check)
    suite = ElementTree.parse(tmp_path / "junit.xml").getroot()
    broken = gate.broken_rules(shown, check)
    failures = [case.find("failure").get("message") for case in suite.findall("*[failure]")]
    assert len(broken) == 3 and failures == [*broken, "the budget ended"]
    assert suite.get("failures") == "4"
    (kept,) = [one for one in suite.findall("*[@classname='rule']") if one.find("failure") is None]
    assert kept.get("name") == "rps > 1"
    text = (tmp_path / "comment.md").read_text()
    assert all(f"- Broken rule: {line}".replace("<", "&lt;") in text for line in broken)


def test_junit_fails_what_is_not_decided_where_the_check_does(summary):
    open_ = tuple(replace(g, verdict=Verdict("not decided", "open")) for g in summary.gains)
    shown = replace(summary, gains=open_, families=())
    for words, child in ((("undecided",), "failure"), (("loss",), "skipped")):
        suite = ElementTree.fromstring(ci.junit(shown, gate.Criteria(words)))
        assert len(suite.findall(f"testcase/{child}")) == len(open_) == len(suite)
    none = replace(shown, gains=())
    for words, child in ((("loss",), "failure"), ((), "skipped")):
        suite = ElementTree.fromstring(ci.junit(none, gate.Criteria(words)))
        assert suite.find(f"testcase[@classname='run']/{child}") is not None


def test_a_dashboard_gets_one_series_a_figure_of_every_histogram(summary):
    """A comparison in p99 had it twice; a histogram of another name had none."""
    gains = tuple(replace(gain, metric="latency.p99") for gain in summary.gains)
    ttfb = {**LATENCY, "name": "ttfb"}

    def with_ttfb(cell):
        more = {"ttfb.p50": 1.0, "ttfb.p99": 2.0, "little_residual": -0.012}
        return replace(
            cell, trials=tuple(replace(t, metrics={**t.metrics, **more}) for t in cell.trials)
        )

    run = replace(summary.run, metrics=[*summary.run.metrics, ttfb, {"name": "little_residual"}])
    shown = replace(summary, gains=gains, run=run, cells=tuple(map(with_ttfb, summary.cells)))
    bigger, smaller = ci.github_benchmark(shown)
    names = [one["name"].rpartition(": ")[2] for one in smaller]
    assert sorted(set(names)) == ["latency p50", "latency p99", "ttfb p50", "ttfb p99"]
    assert len(names) == 4 * len(summary.measured)
    residual = next(one for one in bigger if "Little" in one["name"])
    assert (residual["value"], residual["unit"]) == (-0.012, "share"), "not −0.012 %"


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


def test_a_comment_names_whatever_fails_the_check(summary):
    """The check failed, and the comment on the pull request had nothing but green rows."""
    gain = next(one for one in summary.gains if one.cell.axes["connections"] == 1)
    still = tuple(replace(t, metrics={**t.metrics, "rps": 0.0}) for t in gain.cell.trials)
    fell = replace(gain, cell=replace(gain.cell, trials=still))
    lost = replace(summary.cells[0], trials=(), state="thinned", reason="the budget | ended")
    shown = replace(summary, gains=(fell,), cells=(lost, *summary.cells[1:]))
    text = ci.comment(shown)
    assert "; 1 worse without a verdict\n" in text
    assert "- connections 1, variant head: rps: 0 in 5 of 5 rounds" in text
    assert f"- Not measured: {wording.place(lost)}: the budget \\| ended" in text
    text = ci.comment(replace(shown, cells=(lost,) * 40))
    assert text.count("- Not measured: ") == 30 and "- … 10 more were not measured" in text
    failed = replace(lost, invalid=(replace(fell.cell.trials[0], valid=False, reasons=["down"]),))
    text = ci.comment(replace(shown, gains=(fell,) * 40, cells=(failed,) * 40))
    assert text.count("\n- failed 1 of 1 trials: ") == 30
    assert text.count("\n- connections 1, variant head: rps") == 30
    assert "\n- … 10 more settings with failures\n" in text
    assert "\n- … 10 more worse without a verdict\n" in text


def test_comparisons_without_a_round_of_both_sides_compare_nothing(summary):
    """The check failed with "nothing was compared", and the comment counted "2 not decided"."""
    none = Verdict("not decided", "no round has a valid trial on both sides")
    gains = tuple(replace(gain, found=None, verdict=none) for gain in summary.gains)
    shown = replace(summary, gains=gains, families=())
    assert "### Performance: nothing was compared\n" in ci.comment(shown)
    suite = ElementTree.fromstring(ci.junit(shown))
    (told,) = suite.findall("testcase[@classname='run']/skipped")
    assert told.get("message").startswith("nothing was compared: ")
    assert "Performance: nothing was compared\n" in ci.comment(replace(shown, gains=()))


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


def test_two_figures_of_one_label_are_two_series(summary):
    """CPU per request with empty polls took the place of the one without."""
    both = ("server.work_us_per_request", "server.cpu_us_per_request")
    gains = [replace(summary.gains[0], metric=metric) for metric in both]

    def with_work(cell):
        more = {both[0]: 20.0, both[1]: 90.0}
        kept = tuple(replace(t, metrics={**t.metrics, **more}) for t in cell.trials)
        return replace(cell, trials=kept)

    cells = tuple(map(with_work, summary.cells))
    _, smaller = ci.github_benchmark(replace(summary, gains=tuple(gains), cells=cells))
    found = {one["name"].rpartition(": ")[2]: one["value"] for one in smaller}
    assert found["server CPU per request"] == 20.0
    assert found["server CPU per request (server.cpu_us_per_request)"] == 90.0


def test_junit_fails_what_fails_the_check_of_a_run(summary):
    """A loss over all cells, a rate that fell to 0 and a run that was cut off passed."""
    family = summary.families[0]
    calm = replace(family.gains[0], verdict=Verdict("not decided", "the interval contains 0"))
    pooled = replace(family, gains=(calm,), verdict=Verdict("loss", "the interval excludes 0"))
    shown = replace(summary, gains=(calm,), families=(pooled,))
    suite = ElementTree.fromstring(ci.junit(shown))
    assert suite.get("failures") == "1"
    assert "over all cells" in suite.find("testcase[failure]").get("name")
    cell = calm.cell
    still = tuple(replace(t, metrics={**t.metrics, "rps": 0.0}) for t in cell.trials)
    fell = replace(calm, cell=replace(cell, trials=still))
    suite = ElementTree.fromstring(ci.junit(replace(shown, gains=(fell,), families=())))
    assert suite.get("failures") == "1", "a rate of 0 has no ratio and no verdict"
    assert "0 in 5 of 5 rounds" in suite.find("testcase/failure").get("message")
    cut = replace(shown, families=(), run=replace(summary.run, state="interrupted"))
    assert ElementTree.fromstring(ci.junit(cut)).get("errors") == "1"
