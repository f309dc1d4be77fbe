"""`wirespeed runs --prune`: which runs stay, and that nothing goes unasked."""

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from wirespeed.cli.app import app
from wirespeed.errors import BusyError, StorageError
from wirespeed.results import baselines, retention, store
from wirespeed.runner import execute, prune


def add(runs, day, recipe="a", **fields):
    folder = runs / f"202611{day:02}T000000Z-{recipe}-{day:04}"
    (folder / "trials").mkdir(parents=True)
    (folder / "derived").mkdir()
    run = {"run_id": folder.name, "recipe": recipe, "format": 1, "state": "done"} | fields
    (folder / "run.json").write_text(json.dumps(run))
    (folder / "trials" / "big").write_bytes(b"x" * 100_000)
    return folder


@pytest.fixture
def runs(tmp_path):
    """Six of one recipe, one of another; the last of the first is the latest."""
    folder = tmp_path / "runs"
    add(folder, 1, "b")
    for day in range(2, 8):
        add(folder, day)
    store.point_latest(folder / "20261107T000000Z-a-0007")
    return folder


def call(runs, *words):
    return CliRunner().invoke(app, ["runs", "--prune", "--runs", str(runs), *words])


def left(runs):
    return [int(run_dir.name[-4:]) for run_dir in store.list_runs(runs)]


def test_a_first_call_removes_nothing(runs):
    shown = call(runs, "--keep", "2")
    assert shown.exit_code == 0
    assert "4 would be removed" in shown.stdout and "--yes removes them" in shown.stdout
    assert "20261102T000000Z-a-0002" in shown.stdout
    assert left(runs) == [1, 2, 3, 4, 5, 6, 7]


def test_the_newest_of_each_recipe_stay(runs):
    shown = call(runs, "--keep", "2", "--yes")
    assert shown.exit_code == 0 and "4 removed (" in shown.stdout and "3 kept" in shown.stdout
    assert left(runs) == [1, 6, 7]
    names = [run_dir.name for run_dir in store.list_runs(runs)]
    assert sorted(path.name for path in runs.iterdir()) == [*names, "latest"]
    assert "Nothing to remove: all 3 runs are kept" in call(runs, "--keep", "2").stdout


def test_named_marked_and_unfinished_runs_stay(runs):
    baselines.save(runs, "main", runs / "20261102T000000Z-a-0002")
    add(runs, 8, labels={"branch": "main"})
    add(runs, 9, note="before the change")
    add(runs, 10, state="running")
    for day in range(11, 13):
        add(runs, day)
    add(runs, 13, format=99)
    assert call(runs, "--keep", "1", "--yes").exit_code == 0
    assert left(runs) == [1, 2, 7, 8, 9, 10, 12, 13]
    why = {one.run_dir.name[-4:]: one.why for one in retention.judged(runs, 1)}
    assert why["0002"] == "baseline main" and why["0008"] == "it has a label or a note"
    assert why["0007"] == "the latest run" and "cannot be read" in why["0013"]


def test_a_run_that_a_command_works_on_stays(runs, monkeypatch):
    monkeypatch.setattr(execute, "HOLD_S", 0.1)  # here nothing lets go
    old = runs / "20261102T000000Z-a-0002"
    holder = execute.hold(old)
    try:
        assert "at work" in {one.run_dir: one.why for one in prune.removable(runs, 1)}[old]
        with pytest.raises(BusyError):
            prune.remove(old)
        assert call(runs, "--keep", "1", "--yes").exit_code == 0
        assert 2 in left(runs)
    finally:
        holder.close()


def test_a_link_to_a_run_elsewhere_is_not_followed(runs, tmp_path):
    elsewhere = add(tmp_path / "archive", 1)
    link = runs / "20261101T000000Z-a-0099"
    link.symlink_to(elsewhere)
    with pytest.raises(StorageError, match="a link to another folder"):
        prune.remove(link)
    shown = call(runs, "--keep", "1", "--yes")
    assert shown.exit_code == 0 and "5 removed" in shown.stdout
    assert (elsewhere / "run.json").exists() and left(runs) == [99, 1, 7]


def test_a_removal_that_was_cut_off_is_half_a_run_that_recover_removes(runs, monkeypatch):
    old = runs / "20261102T000000Z-a-0002"
    monkeypatch.setattr(prune.shutil, "rmtree", lambda *_, **__: None)
    prune.remove(old)
    os.utime(old, (0, 0))
    assert old not in store.list_runs(runs) and old in store.half_made(runs)


def test_a_removal_that_was_cut_off_anywhere_can_be_finished(runs, monkeypatch):
    old, removed = runs / "20261102T000000Z-a-0002", []
    whole = prune.shutil.rmtree

    def stopped_at_last(path, **_):
        if path == old:
            raise KeyboardInterrupt
        removed.append(whole(path))

    monkeypatch.setattr(prune.shutil, "rmtree", stopped_at_last)
    with pytest.raises(KeyboardInterrupt):
        prune.remove(old)
    os.utime(old, (0, 0))
    assert removed and os.listdir(old) == [store.GOING]
    assert store.half_made(runs) == [old]


def test_outputs_that_trials_share_are_counted_once(tmp_path):
    folder = add(tmp_path, 1)
    before = retention.size_bytes(folder)
    os.link(folder / "trials" / "big", folder / "trials" / "same")
    assert retention.size_bytes(folder) == before
    Path(folder / "trials" / "dangling").symlink_to("nowhere")
    assert retention.size_bytes(folder) >= before


def test_for_programs_each_run_has_its_reason(runs):
    documents = json.loads(call(runs, "--keep", "5", "--json").stdout)
    gone = [one["run"][-4:] for one in documents if one["kept_because"] is None]
    assert gone == ["0002"] and not any(one["removed"] for one in documents)
    assert next(one for one in documents if one["run"].endswith("2"))["bytes"] > 100_000
    removed = json.loads(call(runs, "--keep", "5", "--yes", "--json").stdout)
    assert [one["run"][-4:] for one in removed if one["removed"]] == ["0002"]


@pytest.mark.parametrize("words", [["--yes"], ["--keep", "3"]])
def test_options_of_prune_do_nothing_alone(runs, words):
    shown = CliRunner().invoke(app, ["runs", "--runs", str(runs), *words])
    assert shown.exit_code != 0 and "belong to runs --prune" in str(shown.exception)


def test_without_runs_nothing_is_wrong(tmp_path):
    shown = call(tmp_path / "none")
    assert shown.exit_code == 0 and "Nothing to remove" in shown.stdout


def test_a_link_is_not_counted_and_what_it_leads_to_stays(runs):
    """A link counted among the newest, so that a run more was removed, also the one it led to."""
    old = runs / "20261103T000000Z-a-0003"
    (runs / "the-good-one").symlink_to(old.name)
    assert call(runs, "--keep", "2", "--yes").exit_code == 0
    names = [run_dir.name for run_dir in store.list_runs(runs)]
    assert [name[-4:] for name in names] == ["0001", "0003", "0006", "0007", "-one"]
    why = {one.run_dir.name[-4:]: one.why for one in retention.judged(runs, 2)}
    assert why["-one"] == "it is a link" and why["0003"] == "the link the-good-one leads to it"
