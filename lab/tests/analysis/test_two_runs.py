"""`wirespeed compare`: two runs, their hosts, and the cells that both have."""

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
from report.make_run import KINDS, make_run
from typer.testing import CliRunner

from wirespeed.analysis import two_runs
from wirespeed.analysis.summary import load, summarize
from wirespeed.cli import compare
from wirespeed.cli.app import app
from wirespeed.errors import InputError, ResultsError
from wirespeed.results.model import PlannedTrial, Run, RunPlan, Trial


def made(folder, factor=1.0, seed=7, **facts):
    kind = KINDS["quickstart"]()
    rate = kind.rate
    kind.rate = lambda axes: rate(axes) * factor
    run_dir = make_run(kind, folder, seed)
    if facts:
        path = run_dir / "run.json"
        run = json.loads(path.read_text())
        run["facts"].update(facts)
        path.write_text(json.dumps(run))
    return run_dir


def test_a_faster_run_is_better_in_rate_and_in_latency(tmp_path):
    first, second = made(tmp_path / "a"), made(tmp_path / "b", factor=1.4, seed=8)
    found = two_runs.compare(load(first), load(second), ["rps"])
    assert found.only == (0, 0)
    words = [one.word for one in found.differences if one.word != "not comparable"]
    assert words.count("better") > 0.9 * len(words) and "worse" not in words
    assert [one.word for one in found.pooled] == ["better"]
    back = two_runs.compare(load(second), load(first), ["rps"])
    assert "better" not in [one.word for one in back.differences]


def plain(seed, cells=28, spread=0.036, factor=1.0, limit="server"):
    """A run of one build: cells of five trials that spread by 3.6 %."""
    dice, axes = random.Random(seed), {"load": list(range(cells)), "stack": ["kernel"]}
    found, plan = [], []
    for number in range(cells):
        for at in range(1, 6):
            place = {"load": number, "stack": "kernel"}
            rps = 1000 * factor * dice.lognormvariate(0, spread)
            key = f"{number}/{at}"
            plan.append(PlannedTrial(len(plan) + 1, at, str(number), key, place))
            found.append(Trial(key, str(number), at, len(plan), axes=place, bottleneck=limit,
                               metrics={"rps": rps, "latency.p99": 1e6 / rps}))  # fmt: skip
    held = RunPlan(baseline={"stack": "kernel"})
    run = Run(f"run{seed}", "r", axes=axes, idle_held=True, plan=held,
              metrics=[{"name": "rps"}, {"name": "latency", "combine": "histogram"}])  # fmt: skip
    return summarize(Path(), run, plan, found)


@pytest.mark.parametrize("cells", [1, 6, 28])
def test_identical_builds_are_called_different_in_no_more_than_one_comparison_of_twenty(cells):
    pairs = 150
    found = [
        two_runs.compare(plain(2 * seed, cells), plain(2 * seed + 1, cells), ["rps"])
        for seed in range(pairs)
    ]
    assert sum("worse" in one.words for one in found) <= 0.05 * pairs
    assert sum(one.verdict == "not reproduced" for one in found) <= 0.05 * pairs
    if cells == 28:
        assert sum(one.verdict == "reproduced" for one in found) > 0.8 * pairs


def test_a_shift_of_all_cells_is_seen_over_all_of_them_also_where_no_cell_shows_it():
    found = two_runs.compare(plain(1), plain(2, factor=0.93), ["rps"])
    assert [one.word for one in found.pooled] == ["worse"]
    assert found.verdict == "not reproduced"


@pytest.mark.parametrize(("spread", "factor"), [(0.036, 0.75), (0.3, 0.93), (0.2, 0.93)])
def test_a_noisier_run_is_not_easier_to_reproduce(spread, factor):
    """The margin of "no difference" was the larger noise floor of the two runs: a certain -25 %
    was reproduced when the baseline differed from itself by 36 %, and so was -7 % in noise."""
    first, second = (
        replace(one, floors={"rps": max(one.floors["rps"], 0.357)})
        for one in (plain(1, 28, spread), plain(2, 28, spread, factor))
    )
    found = two_runs.compare(first, second, ["rps"])
    assert "no difference" not in found.words and found.verdict != "reproduced"
    if factor == 0.75:
        assert found.words.count("worse") > 20 and compare.broken(found, ["worse"])


def test_a_run_without_results_is_not_reproduced():
    wild = two_runs.compare(plain(1, 3, 0.2), plain(2, 3, 0.2), ["rps"])
    assert set(wild.words) == {"not decided"} and wild.verdict == "not decided"
    held = two_runs.compare(plain(1, limit="client"), plain(2, limit="client"), ["rps"])
    assert set(held.words) == {"not comparable"} and held.verdict == "not decided"
    assert "the load generator was the limit" in held.differences[0].reason
    fewer = two_runs.compare(plain(1, 28), plain(2, 27), ["rps"])
    assert fewer.only == (1, 0) and fewer.verdict == "not decided"
    for fail_on in ("undecided", "worse"):
        assert compare.broken(fewer, [fail_on])[0] == (
            "load 27, stack kernel: not measured in the second run"
        )


def test_a_cell_whose_trials_fail_now_is_worse():
    first, second = plain(1), plain(2)
    cell = second.cells[0]
    broken = tuple(
        replace(t, valid=False, reasons=["9 errors in 10 requests"]) for t in cell.trials
    )
    cells = (replace(cell, trials=(), invalid=broken, state="no valid trial"), *second.cells[1:])
    found = two_runs.compare(first, replace(second, cells=cells), ["rps"])
    (one,) = [one for one in found.differences if one.word == "worse"]
    assert one.reason == "the second run failed 5 of 5 trials" and one.second is None
    assert found.verdict == "not reproduced" and compare.broken(found, ["worse"])


def test_a_metric_has_the_short_names_of_a_rule_and_a_typing_error_is_refused(tmp_path):
    found = two_runs.compare(plain(1), plain(2, factor=0.7), ["p99"])
    assert {one.metric for one in found.differences} == {"latency.p99"} and "worse" in found.words
    run = str(made(tmp_path))
    whole = two_runs.compare(load(Path(run)), load(Path(run)), ["latency"])
    assert {one.metric for one in whole.differences} == {"latency.p50"}
    for words in (["compare", run, run], ["reproduce", run]):
        done = CliRunner().invoke(app, [*words, "--metric", "rsp"])
        assert isinstance(done.exception, InputError) or done.exit_code == 2
        assert "neither run has 'rsp' (metrics: " in f"{done.exception} {done.output}"


def test_differences_of_the_hosts_come_first(tmp_path):
    first, second = made(tmp_path / "a"), made(tmp_path / "b", kernel="6.1.0")
    found = two_runs.compare(load(first), load(second), ["rps"])
    assert found.facts == {"kernel": ("6.18.0", "6.1.0")}
    shown = CliRunner().invoke(app, ["compare", str(first), str(second)])
    assert shown.exit_code == 0, shown.output
    assert shown.stdout.index("6.1.0") < shown.stdout.index("difference")
    assert "not interleaved" in shown.stdout


def test_differences_for_programs(tmp_path):
    first = made(tmp_path / "a")
    words = ["compare", str(first), str(first), "--json", "--metric", "latency.p99"]
    (one, *_) = json.loads(CliRunner().invoke(app, words).stdout)["differences"]
    assert one["metric"] == "latency.p99" and one["change"] == 0


def test_runs_without_a_common_cell_are_refused(tmp_path):
    first, second = made(tmp_path / "a"), make_run(KINDS["zuul"](), tmp_path / "b")
    with pytest.raises(ResultsError, match="no measured cell in common"):
        two_runs.compare(load(first), load(second), ["rps"])


def told_in(summary, unit):
    run = replace(summary.run, metrics=[{"name": "rps", "unit": unit}])
    return replace(summary, run=run)


def test_runs_with_a_metric_in_two_units_are_not_compared(capsys):
    """23 Gb/s appeared a hundred times better than 2,900 MB/s; and results of a recipe in Gb/s were
    printed under the heading B/s."""
    with pytest.raises(ResultsError, match=r"measures rps in Gb/s, the second in MB/s"):
        two_runs.compare(told_in(plain(1), "Gb/s"), told_in(plain(2), "MB/s"), ["rps"])
    first = told_in(plain(1), "Gb/s")
    compare.show(first, two_runs.compare(first, told_in(plain(2), "Gb/s"), ["rps"]))
    assert "requests/s, Gb/s" in capsys.readouterr().out


def test_differences_in_the_method_are_listed():
    """Two runs, of which one was tuned and ran at nice -20, had no differences listed."""
    first, second = plain(1, 1), plain(2, 1)
    plan = replace(second.run.plan, warmup_s=10.0)
    second = replace(second, run=replace(second.run, nice=-20, tuned=["somaxconn"], plan=plan))
    found = two_runs.compare(first, second, ["rps"]).facts
    assert {"nice": (0, -20), "tuned": ("no", ["somaxconn"])}.items() <= found.items()
    assert found["warm-up, s"] == (0.0, 10.0)


def test_a_figure_that_the_second_run_lost_fails_the_check_and_is_not_reproduced():
    """The other cells were the same, so it was "reproduced", and `--fail-on worse` passed."""
    first, second = plain(1, cells=6), plain(2, cells=6)
    cell = second.cells[0]
    trials = tuple(replace(t, metrics={"rps": t.metrics["rps"]}) for t in cell.trials)
    second = replace(second, cells=(replace(cell, trials=trials), *second.cells[1:]))
    found = two_runs.compare(first, second, ["latency.p99"])
    lines = compare.broken(found, ["worse"])
    assert any(line.startswith("load 0") and "no such figure" in line for line in lines)
    assert found.verdict != "reproduced"
    assert not any(one.is_lost for one in two_runs.compare(first, first, ["rps"]).differences)


def test_a_loss_over_all_cells_is_said_although_they_are_not_comparable():
    """Too small for each of 28 cells whose limit was not known, it was in no pooled figure."""
    first, second, same = (
        plain(seed, spread=0.05, factor=factor, limit="unknown")
        for seed, factor in ((5, 1.0), (6, 0.95), (6, 1.0))
    )
    found = two_runs.compare(first, second, ["rps"])
    assert {one.word for one in found.differences} == {"not comparable"}
    assert not any(one.seems for one in found.differences)
    (pooled,) = found.pooled
    assert (pooled.word, pooled.seems) == ("not comparable", "worse")
    (line,) = compare.broken(found, ["worse"])
    assert line.startswith("over all cells: rps: not comparable but -")
    assert "28 of its cells are not comparable: the second run: what was the limit" in line
    assert found.verdict == "not decided"
    assert not two_runs.compare(first, same, ["rps"]).pooled


def test_the_first_metric_may_be_a_histogram(tmp_path):
    """`trend` had no figure of it, and a run whose tables show no gain compared nothing."""
    kind = KINDS["quickstart"]()
    kind.metrics, kind.baseline = kind.metrics[::-1], {"stack": "kernel"}
    for table in kind.tables:
        table.pop("gain", None)
    runs = [make_run(kind, tmp_path, seed) for seed in (1, 2)]
    summary = load(runs[0])
    assert summary.primary == "latency.p50"
    assert {gain.metric for gain in summary.gains if gain.found} >= {"latency.p50"}
    for words in ([], ["--metric", "latency"], ["--metric", "p50"]):
        shown = CliRunner().invoke(app, ["trend", *map(str, runs), *words])
        assert shown.exit_code == 0, shown.output
        assert "p50" in shown.stdout
