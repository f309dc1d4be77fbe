"""`--fail-on` and `--require`: when a check fails, and with which exit code."""

import itertools
import json
import random
import re
import shutil
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from report.make_run import KINDS, make_run
from typer.testing import CliRunner

from wirespeed.analysis import gate
from wirespeed.analysis.cells import full_name, known_name, prefix
from wirespeed.analysis.summary import load, summarize
from wirespeed.cli import run as command
from wirespeed.cli.app import app
from wirespeed.errors import InputError
from wirespeed.report import ci
from wirespeed.results import store
from wirespeed.results.model import PlannedTrial, Run, RunPlan, Trial
from wirespeed.runner import session

LOSS = gate.Criteria(("loss",))


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    """A run in which the stack `balanced` is made the baseline, so that the kernel loses."""
    kind = KINDS["quickstart"]()
    for table in kind.tables:
        if "gain" in table:
            table["gain"]["over"] = "balanced"
    kind.state = lambda axes: ("planned", "")
    return make_run(kind, tmp_path_factory.mktemp("runs"))


def report(run_dir, *words):
    return CliRunner().invoke(app, ["report", str(run_dir), *words])


def test_a_loss_fails_the_check_and_is_named(run_dir):
    summary = load(run_dir)
    losses = [gain for gain in summary.gains if gain.verdict.word == "loss"]
    lines = gate.broken(summary, gate.Criteria(("loss",)))
    assert losses and len(lines) == len(losses)
    assert "loss against balanced" in lines[0]
    assert report(run_dir, "--fail-on", "loss").exit_code == 3
    assert report(run_dir).exit_code == 0


def changed(summary, **of_cell):
    """The summary with its first measured cell changed."""
    first = summary.measured[0]
    rest = (cell for cell in summary.cells if cell is not first)
    return replace(summary, cells=(replace(first, **of_cell), *rest))


def failed(trial):
    metrics = {**trial.metrics, "non_2xx": 812.0, "errors": 0.0}
    return replace(trial, valid=False, reasons=["812 answers were not 2xx"], metrics=metrics)


def test_trials_whose_programs_failed_fail_every_check(run_dir):
    """Their results are not part of any median, so no rule and no verdict sees them."""
    summary = load(run_dir)
    cell = summary.measured[0]
    broken = changed(
        summary, trials=cell.trials[:1], invalid=tuple(failed(t) for t in cell.trials[1:])
    )
    where = "failed 4 of 5 trials: 812 answers were not 2xx"
    for fail_on in ("loss", "undecided"):
        assert any(where in line for line in gate.broken(broken, gate.Criteria((fail_on,))))
    (told, limit) = gate.broken(broken, gate.Criteria(rules=(gate.rule("non_2xx <= 0"),)))
    assert where in told and "the most is 812" in limit


def test_a_cell_without_a_valid_trial_keeps_no_rule(run_dir):
    summary = load(run_dir)
    refused = tuple(
        replace(trial, valid=False, disturbed=0.9, reasons=["other programs used 90% of core 0"])
        for trial in summary.measured[0].trials
    )
    first, line = gate.broken(
        changed(summary, trials=(), invalid=refused), gate.Criteria(rules=(gate.rule("rps > 1"),))
    )
    assert "not measured" in first
    assert line.endswith("rps > 1: no valid trial")


@pytest.mark.parametrize(("own", "base", "count"), [(3, 3, 1), (1, 3, 0), (3, 2, 0)])
def test_a_cost_that_the_baseline_never_has_needs_as_many_rounds_as_a_verdict(
    run_dir, own, base, count
):
    """One collection in a single round failed a whole run."""
    summary = load(run_dir)
    gain = next(one for one in summary.gains if len(one.cell.trials) >= 3 <= len(one.base.trials))

    def with_pauses(cell, rounds, value):
        trials = cell.trials[:rounds]
        kept = tuple(replace(t, metrics={**t.metrics, "pauses": value}) for t in trials)
        return replace(cell, trials=kept)

    costly = replace(
        gain, metric="pauses", better="lower",
        cell=with_pauses(gain.cell, own, 1.0), base=with_pauses(gain.base, base, 0.0),
    )  # fmt: skip
    assert len(gate.unjudged(replace(summary, gains=(costly,)))) == count


def test_incomparable_cells_are_not_decided(run_dir):
    summary = load(run_dir)
    verdict = replace(summary.gains[0].verdict, word="not comparable", reason="both were full")
    gains = (replace(summary.gains[0], verdict=verdict),)
    (line,) = gate.broken(replace(summary, gains=gains), gate.Criteria(("undecided",)))
    assert "not comparable against" in line
    (line,) = gate.broken(replace(summary, gains=()), gate.Criteria(("undecided",)))
    assert line.startswith("nothing was compared")


def test_a_run_that_did_not_end_fails_the_check(run_dir):
    summary = load(run_dir)
    stopped = replace(summary, run=replace(summary.run, state="interrupted"))
    assert "the run did not end: interrupted" in gate.broken(stopped, gate.Criteria(("loss",)))


def test_a_pooled_loss_fails_the_check_where_no_single_cell_shows_it(run_dir):
    summary = load(run_dir)
    family = next(one for one in summary.families if one.verdict.word == "loss")
    even = tuple(
        replace(gain, verdict=replace(gain.verdict, word="not decided")) for gain in family.gains
    )
    pooled = replace(summary, gains=even, families=(replace(family, gains=even),))
    (line,) = gate.broken(pooled, gate.Criteria(("loss",)))
    assert "over all cells" in line


def even_loss(factor, limit="unknown", cells=20, rounds=5):
    """Cells whose limit is not known, and whose contender is slower by too little for each."""
    dice, found, plan = random.Random(1), [], []
    axes = {"load": list(range(cells)), "stack": ["kernel", "bypass"]}
    for number, stack, at in itertools.product(*axes.values(), range(1, rounds + 1)):
        place, cell = {"load": number, "stack": stack}, f"{number}/{stack}"
        rps = 1000 * dice.lognormvariate(0, 0.03) * (factor if stack == "bypass" else 1)
        plan.append(PlannedTrial(len(plan) + 1, at, cell, f"{cell}/{at}", place))
        found.append(Trial(f"{cell}/{at}", cell, at, len(plan), axes=place, bottleneck=limit,
                           metrics={"rps": rps}))  # fmt: skip
    run = Run("run", "r", axes=axes, idle_held=True, plan=RunPlan(baseline={"stack": "kernel"}),
              state="done", metrics=[{"name": "rps"}])  # fmt: skip
    return summarize(Path(), run, plan, found)


def test_a_pooled_loss_of_cells_without_a_verdict_fails_the_check_and_is_in_its_files():
    """It passed: a single loss of such a cell failed the check, many small ones did not."""
    summary = even_loss(0.97)
    assert {gain.verdict.word for gain in summary.gains} == {"not comparable"}
    assert gate.unjudged(summary) == []
    (line,) = gate.broken(summary, gate.Criteria(("loss",)))
    assert re.match(r"bypass: rps: -\d% against kernel over all cells, although 20 of 20 are", line)
    assert "what was the limit is not known" in line
    assert "1 worse without a verdict" in ci.comment(summary) and "over all cells" in line
    assert ElementTree.fromstring(ci.junit(summary)).get("failures") == "1"
    for other in (even_loss(1.0), even_loss(1.03), even_loss(0.97, "client")):
        assert gate.broken(other, gate.Criteria(("loss",))) == []
    known = even_loss(0.97, "server")
    assert len(gate.broken(known, gate.Criteria(("loss",)))) == 1
    assert gate.unjudged_families(known) == []


def test_limits_are_in_the_units_that_people_write(run_dir):
    rule = gate.rule("stack=kernel: p99 <= 5ms")
    assert (rule.metric, rule.limit, rule.where) == ("latency.p99", 5000.0, (("stack", "kernel"),))
    assert gate.rule("rps > 100k").limit == 100_000
    assert gate.rule("server.cpu < 0.9").limit == 0.9
    for name in ("get-rps", "cpu.root@load-1.3", "rps[0]"):
        assert gate.rule(f"{name}>=2").metric == name, "as recipes and sites may call it"


def test_a_rule_means_truth_values_as_recipes_write_them(run_dir):
    cell = replace(load(run_dir).measured[0], axes={"tls": True, "payload": 16})
    meant = [gate.rule(f"tls={text}: rps > 1").covers(cell) for text in ("true", "True", "false")]
    assert meant == [True, True, False] and gate.rule("payload=16: rps > 1").covers(cell)


def test_each_cell_that_breaks_a_rule_is_named(run_dir):
    summary = load(run_dir)
    cells = [cell for cell in summary.measured if cell.axes["stack"] == "kernel"]
    limit = sorted(cell.median("rps") for cell in cells)[2]
    lines = gate.broken(summary, gate.Criteria(rules=(gate.rule(f"stack=kernel: rps > {limit}"),)))
    assert len(lines) == 3 and all("stack kernel" in line for line in lines)
    assert report(run_dir, "--require", "rps > 1").exit_code == 0
    assert report(run_dir, "--require", "rps > 1G").exit_code == 3


def test_a_rule_that_means_nothing_fails_the_check(run_dir):
    summary = load(run_dir)
    (line,) = gate.broken(summary, gate.Criteria(rules=(gate.rule("stack=nosuch: rps > 1"),)))
    assert "no measured cell" in line
    (line,) = gate.broken(summary, gate.Criteria(rules=(gate.rule("rsp > 1"),)))
    assert "unknown metric 'rsp' (metrics: " in line


@pytest.mark.parametrize("text", ["", "p99", "p99 < ", "p99 = 5ms", "p99 < 5 potatoes", "< 5ms"])
def test_a_rule_that_cannot_be_read_is_refused_before_anything_runs(text):
    with pytest.raises(InputError):
        gate.rule(text)


def test_an_unknown_kind_of_failure_is_refused(run_dir):
    done = report(run_dir, "--fail-on", "gain")
    assert "unknown value 'gain' (loss, undecided)" in str(done.exception)


def test_cells_that_the_run_is_not_meant_to_have_do_not_fail_the_check(run_dir):
    """A recipe with plan.skip, as the quickstart's, failed every check."""
    summary = load(run_dir)

    def missing(reason, state="thinned"):
        cell = replace(summary.cells[0], trials=(), invalid=(), state=state, reason=reason)
        shown = replace(summary, cells=(cell, *summary.cells[1:]))
        lines = gate.broken(shown, gate.Criteria(("loss",)))
        return [line for line in lines if "not measured" in line]

    assert missing("left out by the recipe") == missing("left out by --only") == []
    for reason in ("left out to keep the budget of 5 min", "left out by the recipes of others"):
        assert len(missing(reason)) == 1
    assert len(missing("left out by the recipe", "not-runnable")) == 1
    assert len(missing("the run ended before this cell", "not measured yet")) == 1


@pytest.mark.parametrize("reason", ["left out by the recipe", "left out by --only"])
def test_a_contender_whose_baseline_alone_is_left_out_fails_the_check(run_dir, tmp_path, reason):
    """It was compared with nothing, and no line said so."""
    copy = Path(shutil.copytree(run_dir, tmp_path / "run"))
    lines = store.read_plan(copy)
    gone = {"connections": 1000, "stack": "balanced", "server": "netty", "payload": 128}
    ours = [line.cell for line in lines if line.axes == gone]
    left = [
        replace(line, state="thinned", reason=reason) if line.cell in ours else line
        for line in lines
    ]
    store.write_plan(copy, left)
    trials = [one for one in store.read_trials(copy) if one.cell not in ours]
    found = summarize(copy, store.read_run(copy), left, trials)
    assert not any("not compared" in line for line in gate.broken(load(run_dir), LOSS))
    told = [one for one in gate.broken(found, LOSS) if "not compared" in one]
    assert [re.sub(r"^.*: (?=not compared)", "", line) for line in told] == [
        f"not compared: its baseline balanced is {reason}"
    ] * 2
    cases = ElementTree.fromstring(ci.junit(found, LOSS)).iter("failure")
    assert sum("not compared" in case.get("message") for case in cases) == 2
    assert ci.comment(found, LOSS).count("not compared") == 2
    rule = gate.rule("rps > 1")
    for check in (replace(LOSS, allow_missing=True), gate.Criteria(rules=(rule,))):
        assert not any("not compared" in line for line in gate.broken(found, check))


def test_a_check_of_cells_that_are_all_left_out_fails(run_dir):
    summary = load(run_dir)
    cells = tuple(
        replace(cell, trials=(), invalid=(), state="thinned", reason="left out by the recipe")
        for cell in summary.cells
    )
    none = replace(summary, cells=cells, gains=(), families=())
    (line,) = gate.broken(none, gate.Criteria(("loss",)))
    assert line.startswith("nothing was compared")
    (line,) = gate.broken(none, gate.Criteria(rules=(gate.rule("rps > 1"),)))
    assert "no measured cell is meant" in line


@pytest.mark.parametrize("short", ["p50", "p99_9", "mean", "max"])
def test_a_rule_knows_the_short_names_of_every_other_command(short):
    assert gate.rule(f"{short} < 5ms").metric == full_name(short) == f"latency.{short}"


@pytest.mark.parametrize("written", ["p99.9", "latency.p99.9", "p99_9", "latency.p99_9"])
def test_a_percentile_may_be_written_as_reports_write_it(written, run_dir):
    """Its unit was refused, and without one it was an unknown metric after the whole run."""
    rule = gate.rule(f"{written} < 5ms")
    assert (rule.metric, rule.limit) == ("latency.p99_9", 5000.0)
    assert known_name(load(run_dir).measured, written) == "latency.p99_9"
    assert full_name("ttfb.p99.99") == "ttfb.p99_99" and full_name("gc.count") == "gc.count"


def test_a_gate_is_about_the_run_that_was_measured_though_another_is_the_latest(
    run_dir, tmp_path, monkeypatch
):
    """Where jobs share a folder of runs the next one begins while the report is written."""
    kind = KINDS["quickstart"]()
    kind.state = lambda axes: ("planned", "")
    good = make_run(kind, tmp_path)
    store.point_latest(run_dir)
    monkeypatch.setattr(session, "source", lambda *_: None)
    monkeypatch.setattr(session, "start", lambda *_: (good, []))
    monkeypatch.setattr(command, "_put_back", lambda: None)
    words = ["run", "quickstart", "--runs", str(run_dir.parent), "--fail-on", "loss"]
    assert CliRunner().invoke(app, words).exit_code == 0
    assert report(run_dir, "--fail-on", "loss").exit_code == 3


def test_a_cell_without_the_figure_of_a_rule_is_named(run_dir):
    """One cell with too few requests for a quantile made it an unknown metric of all."""
    summary = load(run_dir)
    cell = summary.measured[0]
    trials = tuple(replace(t, metrics={"rps": t.metrics["rps"]}) for t in cell.trials)
    short = changed(summary, trials=trials)
    (line,) = gate.broken(short, gate.Criteria(rules=(gate.rule("p99 < 1h"),)))
    assert line.endswith("no such figure") and line.startswith(prefix(cell.axes))


def test_a_recipe_without_axes_has_no_empty_place(tmp_path):
    """The line of the check began with a colon, and so did its files' names."""
    kind = KINDS["quickstart"]()
    kind.axes, kind.baseline, kind.tables = {}, {}, [{"rows": [], "value": "rps"}]
    kind.rate, kind.state = (lambda _: 1000.0), (lambda _: ("planned", ""))
    kind.bottleneck = lambda _: "server"
    run_dir = make_run(kind, tmp_path)
    shown = report(run_dir, "--require", "rps > 5k", "--ci", str(tmp_path / "ci"))
    assert shown.exit_code == 3, shown.output
    line = shown.stderr.splitlines()[-1]
    assert line.startswith("wirespeed: rps > 5k: the median is ")
    bigger = json.loads((tmp_path / "ci" / "github-bigger.json").read_text())
    assert [one["name"] for one in bigger] == ["requests/s"]
    again = make_run(kind, tmp_path / "again", 8)
    for words in (["compare"], ["trend"]):
        shown = CliRunner().invoke(app, [*words, str(run_dir), str(again)])
        assert shown.exit_code == 0, shown.output
