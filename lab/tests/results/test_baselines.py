"""Runs under names."""

import json
import shutil

import pytest

from wirespeed.errors import InputError, ResultsError, StorageError
from wirespeed.results import baselines, retention, store


@pytest.fixture
def runs(tmp_path):
    for name in ("20261101T000000Z-a-1111", "20261102T000000Z-a-2222"):
        folder = tmp_path / name
        (folder / "trials").mkdir(parents=True)
        (folder / "run.json").write_text(json.dumps({"run_id": name, "recipe": "a", "format": 1}))
    return tmp_path


def test_a_baseline_stands_for_its_run_and_can_move(runs):
    first, second = store.list_runs(runs)
    baselines.save(runs, "main", first)
    assert store.find_run(runs, "main") == first
    baselines.save(runs, "main", second)
    assert store.find_run(runs, "main") == second
    assert baselines.every(runs) == {"main": second.name}
    assert store.list_runs(runs) == [first, second], "a baseline does not count as a run"
    baselines.remove(runs, "main")
    with pytest.raises(ResultsError):
        store.find_run(runs, "main")
    assert second.exists()


def test_a_folder_of_runs_may_be_a_link_to_another_disk(runs, tmp_path_factory):
    """The link was relative to the folder's own link instead of the folder, and led nowhere."""
    deep = tmp_path_factory.mktemp("disk") / "a" / "b" / "c" / "runs"
    shutil.copytree(runs, deep)
    linked = tmp_path_factory.mktemp("home") / "runs"
    linked.symlink_to(deep)
    run = store.list_runs(linked)[0]
    baselines.save(linked, "main", store.find_run(linked, run.name))
    assert store.find_run(linked, "main") == deep / run.name


def test_a_folder_that_cannot_be_written_is_one_line(runs):
    (runs / "baselines").touch()
    with pytest.raises(StorageError, match=r"cannot write .*/baselines/main: "):
        baselines.save(runs, "main", store.list_runs(runs)[0])


def test_links_that_lead_to_themselves_are_left_out(runs):
    baselines.save(runs, "main", store.list_runs(runs)[0])
    for link in (runs / "latest", runs / store.BASELINES / "loop"):
        link.unlink(missing_ok=True)
        link.symlink_to(link.name)
    assert baselines.every(runs)["loop"] == "loop (gone)"
    assert all(one.why for one in retention.judged(runs, 10))


def test_a_baseline_whose_run_is_gone_says_so(runs):
    run = store.list_runs(runs)[0]
    baselines.save(runs, "main", run)
    shutil.rmtree(run)
    assert baselines.every(runs) == {"main": f"{run.name} (gone)"}
    with pytest.raises(ResultsError):
        store.find_run(runs, "main")


@pytest.mark.parametrize("name", ["", "latest", "../x", "a/b", "1st", "20261101T000000Z-a-1111"])
def test_a_strange_name_is_refused(runs, name):
    with pytest.raises(InputError):
        baselines.save(runs, name, store.list_runs(runs)[0])


def test_what_is_not_there_cannot_be_removed(runs):
    with pytest.raises(InputError, match="baseline 'nothing': not found"):
        baselines.remove(runs, "nothing")
