"""Run directories that earlier builds of the lab wrote: they open, or are refused in one line.

old_runs/first was written by the first build with a command line (2026-11-21; its limits of noise
raised), old_runs/second by one from before verdicts by pairs of rounds; outputs were left out.
"""

import json
import shutil
from pathlib import Path

import pytest
from rich.console import Console

from wirespeed.analysis import diagnosis, two_runs
from wirespeed.analysis.summary import load
from wirespeed.cli.run import write_report
from wirespeed.errors import ResultsError, StorageError
from wirespeed.results import query, store

OLD = Path(__file__).parent / "old_runs"


@pytest.fixture(params=["first", "second"])
def run_dir(request, tmp_path):
    return Path(shutil.copytree(OLD / request.param, tmp_path / request.param))


def test_an_old_run_opens_with_all_its_figures(run_dir):
    summary = load(run_dir)
    assert summary.run.state == "done" and summary.run.labels == {}
    assert len(summary.measured) == 4
    for cell in summary.measured:
        assert cell.median("rps") > 0
    assert diagnosis.of_run(summary)
    heads, rows = query.ask(run_dir, "select count(*) as n from trials")
    assert (heads, rows) == (["n"], [(4,)])


def test_an_old_run_is_reported(run_dir):
    (run_dir / "derived").mkdir()
    write_report(run_dir, Console(quiet=True))
    page = (run_dir / "derived" / "report.html").read_text()
    for cell in load(run_dir).measured:
        assert f"{cell.median('rps'):,.0f}"[:3] in page
    assert (run_dir / "derived" / "report.xlsx").stat().st_size > 1000


def test_a_run_whose_folder_takes_no_files_shows_its_tables_all_the_same(run_dir, capsys):
    shutil.rmtree(run_dir / "derived", ignore_errors=True)
    (run_dir / "derived").write_text("in the way")
    with pytest.raises(StorageError, match=r"cannot write .*derived"):
        write_report(run_dir, Console(width=100))
    assert f"{load(run_dir).measured[0].median('rps'):,.0f}"[:3] in capsys.readouterr().out


def test_old_runs_are_compared_with_each_other():
    found = two_runs.compare(load(OLD / "first"), load(OLD / "second"), ["rps"])
    assert len(found.differences) == 4 and found.only == (0, 0)


def changed(run_dir, name, change):
    path = next(run_dir.glob(name))
    data = json.loads(path.read_text())
    path.write_text(json.dumps(change(data)))


@pytest.mark.parametrize(
    ("name", "change", "line"),
    [
        ("run.json", lambda d: {**d, "format": 2}, "run.json has format 2, this lab reads 1"),
        ("run.json", lambda d: {k: v for k, v in d.items() if k != "format"}, "has format None"),
        ("run.json", lambda d: {"format": 1}, "run.json is not whole: it lacks"),
        ("run.json", lambda d: [d], "run.json is not whole"),
        ("trials/*/trial.json", lambda d: {**d, "format": 2}, "trial.json has format 2"),
        ("trials/*/trial.json", lambda d: {"format": 1, "cell": "x"}, "trial.json is not whole"),
    ],
)
def test_an_unreadable_file_is_one_line_with_its_name(run_dir, name, change, line):
    changed(run_dir, name, change)
    with pytest.raises(ResultsError) as caught:
        load(run_dir)
    assert line in str(caught.value) and "\n" not in str(caught.value)


def test_extra_fields_of_a_newer_build_are_ignored(run_dir):
    changed(run_dir, "run.json", lambda d: {**d, "colour": "blue"})
    changed(run_dir, "trials/*/trial.json", lambda d: {**d, "colour": "blue"})
    assert len(store.read_trials(run_dir)) == 4 and load(run_dir).measured
