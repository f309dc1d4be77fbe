"""`wirespeed compare`: two runs, their hosts, and the cells that both have."""

import json

import pytest
from report.make_run import KINDS, make_run
from typer.testing import CliRunner

from wirespeed.cli.app import app
from wirespeed.errors import ResultsError
from wirespeed.results import apart
from wirespeed.results.summary import load


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
    found = apart.compare(load(first), load(second), ["rps"])
    assert found.only == (0, 0)
    words = [one.word for one in found.differences]
    assert words.count("better") > 0.9 * len(words) and "worse" not in words
    back = apart.compare(load(second), load(first), ["rps"])
    assert "better" not in [one.word for one in back.differences]


def test_the_same_speed_is_seldom_called_different(tmp_path):
    words = []
    for seed in range(6):
        first = made(tmp_path / f"a{seed}", seed=seed)
        second = made(tmp_path / f"b{seed}", seed=seed + 100)
        found = apart.compare(load(first), load(second), ["rps"])
        words += [one.word for one in found.differences]
    assert len(words) > 100
    assert sum(word in ("better", "worse") for word in words) < 0.05 * len(words)


def test_differences_of_the_hosts_come_first(tmp_path):
    first, second = made(tmp_path / "a"), made(tmp_path / "b", kernel="6.1.0")
    found = apart.compare(load(first), load(second), ["rps"])
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
        apart.compare(load(first), load(second), ["rps"])
