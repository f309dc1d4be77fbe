"""The run directory: whole files or none, torn lines left out, runs found by any clear name."""

import errno
import json
import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirespeed.errors import ResultsError, StorageError
from wirespeed.results import baselines, store
from wirespeed.results.model import Calibration, PlannedTrial, Process, Run, Sample, Trial, Window
from wirespeed.runner import execute, recover

TRIAL = Trial(
    key="k",
    cell="c",
    round=1,
    position=3,
    axes={"payload": 16},
    window=Window(1, 2),
    calibration=Calibration(1.0, 2.0),
    metrics={"rps": 1.5, "latency.p99": None},
    processes=[Process("app", 0, "server", ["./app"], "here", [0], 42)],
)


@pytest.fixture
def run_dir(tmp_path):
    return created(tmp_path)


def created(tmp_path):
    run_dir = store.create(tmp_path / "runs", "demo")
    store.announce(run_dir, Run(run_id=run_dir.name, recipe="demo"))
    return run_dir


def test_what_is_written_reads_back(run_dir):
    run = Run(run_id=run_dir.name, recipe="demo", axes={"payload": [16]})
    store.write_run(run_dir, run)
    assert store.read_run(run_dir) == run
    plan = [PlannedTrial(1, 1, "c", "k", {"payload": 16}, life=1)]
    store.write_plan(run_dir, plan)
    assert store.read_plan(run_dir) == plan
    folder = store.trial_dir(run_dir, 3, "k")
    folder.mkdir()
    store.write_trial(folder, TRIAL)
    assert store.read_trials(run_dir) == [TRIAL]
    samples = [Sample(5, {"cpu.0": 0.5})]
    store.write_samples(folder, samples)
    assert store.read_samples(folder) == samples


def test_latest_points_at_the_newest_run(tmp_path, run_dir):
    assert (tmp_path / "runs" / "latest").resolve() == run_dir
    second = created(tmp_path)
    assert (tmp_path / "runs" / "latest").resolve() == second


def test_a_run_that_was_killed_while_it_was_made_is_not_the_latest(tmp_path, run_dir):
    half = store.create(tmp_path / "runs", "demo")
    assert store.find_run(tmp_path / "runs", "latest") == run_dir
    assert store.list_runs(tmp_path / "runs") == [run_dir]
    assert store.half_made(tmp_path / "runs") == []  # another lab may be making it
    os.utime(half, (0, 0))
    assert store.half_made(tmp_path / "runs") == [half]


@pytest.mark.parametrize("name", ["paper", "20261102T000000Z-demo-0123abcd"])
def test_folders_that_the_lab_did_not_begin_stay(tmp_path, name):
    folder = tmp_path / "runs" / name
    (folder / "trials").mkdir(parents=True)
    (folder / "derived").mkdir()
    (folder / "notes.txt").write_text("x")
    os.utime(folder, (0, 0))
    assert store.half_made(tmp_path / "runs") == []


@pytest.mark.parametrize("kept", ["trials/000001-k/trial.json", "derived/report.html"])
def test_a_run_without_its_run_json_keeps_what_was_measured(tmp_path, run_dir, kept):
    (run_dir / kept).parent.mkdir(parents=True, exist_ok=True)
    (run_dir / kept).write_text("{}")
    (run_dir / "run.json").unlink()
    os.utime(run_dir, (0, 0))
    assert store.half_made(tmp_path / "runs") == []


def test_a_run_that_was_killed_before_its_run_json_is_removed_with_its_first_files(tmp_path):
    half = store.create(tmp_path / "runs", "demo")
    store.write_plan(half, [])
    store.write_text(half / "recipe.toml", "")
    store.append_event(half, "created")
    execute.hold(half).close()
    (half / ".run.json.new").write_text("{")
    os.utime(half, (0, 0))
    assert store.half_made(tmp_path / "runs") == [half]


def test_a_torn_last_line_of_the_journal_is_left_out(run_dir):
    store.append_event(run_dir, "created")
    with open(run_dir / "journal.jsonl", "a") as file:
        file.write('{"t": 1, "ev')
    assert [event["event"] for event in store.read_events(run_dir)] == ["created"]


def test_a_torn_line_of_the_journal_does_not_swallow_the_next(run_dir):
    store.append_event(run_dir, "created")
    with open(run_dir / "journal.jsonl", "a") as file:
        file.write('{"t": 1, "ev')
    store.append_event(run_dir, "resumed")
    assert [event["event"] for event in store.read_events(run_dir)] == ["created", "resumed"]


def test_a_trial_is_not_there_until_it_is_whole(run_dir):
    folder = store.trial_dir(run_dir, 1, "k")
    folder.mkdir()
    with pytest.raises(ValueError):
        store.write_json(folder / "trial.json", {"rps": float("nan")})
    assert store.read_trials(run_dir) == []


def as_nobody(question):
    """The result for another user, from a child process of that user."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            os.write(write_end, repr(question()).encode())
        except BaseException as error:
            os.write(write_end, repr(error).encode())
        finally:
            os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as pipe:
        answer = pipe.read()
    os.waitpid(pid, 0)
    return answer


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
def test_runs_without_read_permission_are_skipped():
    runs = Path(tempfile.mkdtemp(dir="/tmp"))  # pytest's own folders are for its user only
    try:
        runs.chmod(0o755)
        shown, hidden = (store.create(runs, name) for name in ("shown", "hidden"))
        for run_dir in (hidden, shown):
            store.announce(run_dir, Run(run_id=run_dir.name, recipe="r"))
        (shown / "lock").touch(0o600)
        hidden.chmod(0o700)

        def question():
            found = [(path.name, execute.is_held(path)) for path in store.list_runs(runs)]
            return found, store.half_made(runs), recover.is_latest_cut_off(runs)

        assert as_nobody(question) == repr(([(shown.name, True)], [], None))
        hidden.rename(runs / "hidden")
        store.point_latest(runs / "hidden")
        assert as_nobody(lambda: recover.is_latest_cut_off(runs)) == "None"
    finally:
        shutil.rmtree(runs)


def test_another_format_is_refused_with_the_remedy(run_dir):
    (run_dir / "run.json").write_text(json.dumps({"format": 99, "run_id": "x", "recipe": "y"}))
    with pytest.raises(ResultsError, match="use the version that wrote it"):
        store.read_run(run_dir)


@pytest.mark.parametrize(
    ("field", "value", "line"),
    [
        ("plan", None, "plan: Input should be an object"),
        ("labels", ["a"], "labels: Input should be an object"),
        ("state", "finished", "state: Input should be"),
        ("seed", "7", "seed: Input should be a valid integer"),
        ("metrics", [{}], r"it lacks metrics\.0\.name"),
        ("tables", [{"rows": 3}], r"tables\.0\.rows"),
        ("tables", [{"rows": "a", "where": 3}], r"tables\.0\.where: "),
        ("tables", [{"rows": "a", "columns": "b", "gain": 3}], r"tables\.0\.gain: "),
        ("stacks", {"kernel": 3}, r"stacks\.kernel: "),
        ("audit", [["cores"]], r"it lacks audit\.0\.1"),
    ],
)
def test_a_run_with_a_wrong_field_is_one_line(run_dir, field, value, line):
    """Some ended in a traceback, others were read as something else."""
    store.write_json(run_dir / "run.json", Run("x", "y").to_json() | {field: value})
    with pytest.raises(ResultsError, match=rf"run\.json is not whole: {line}"):
        store.read_run(run_dir)


def test_a_trial_whose_validity_is_a_word_does_not_count_as_valid(run_dir):
    folder = store.trial_dir(run_dir, 3, "k")
    folder.mkdir()
    store.write_json(folder / "trial.json", TRIAL.to_json() | {"valid": "false"})
    with pytest.raises(ResultsError, match=r"trial\.json is not whole: valid: "):
        store.read_trials(run_dir)


@pytest.mark.parametrize("figure", ["NaN", "Infinity", "-Infinity"])
def test_a_figure_that_is_not_a_number_is_refused(run_dir, figure):
    """With it every comparison was "not decided", and no gate failed."""
    folder = store.trial_dir(run_dir, 1, "key")
    folder.mkdir(parents=True)
    store.write_trial(folder, Trial("key", "cell", 1, 1, metrics={"rps": 1.5}))
    path = folder / "trial.json"
    path.write_text(path.read_text().replace("1.5", figure))
    with pytest.raises(ResultsError, match=f"{figure} is not a number"):
        store.read_trials(run_dir)


def test_a_copy_of_a_trial_does_not_count_as_another(run_dir):
    """Figures of one trial in two folders made the interval narrower than they allow."""
    for name in ("000003-k", "000003-k.bak"):
        folder = run_dir / "trials" / name
        folder.mkdir()
        store.write_trial(folder, TRIAL)
    with pytest.raises(ResultsError, match=r"000003-k\.bak/.*: the same trial as 000003-k "):
        store.read_trials(run_dir)


@pytest.mark.parametrize("line", ['{"position": 2, "rou', "[]", '{"position": 2}'])
def test_a_plan_with_a_broken_line_is_not_read_without_it(run_dir, line):
    """Its cell was missing in the report, and in every check."""
    store.write_plan(run_dir, [PlannedTrial(1, 1, "c", "k")])
    with open(run_dir / "plan.jsonl", "a") as file:
        file.write(line)
    with pytest.raises(ResultsError, match=r"plan\.jsonl is not whole: line 2"):
        store.read_plan(run_dir)
    (run_dir / "plan.jsonl").unlink()
    with pytest.raises(ResultsError, match=r"plan\.jsonl: missing"):
        store.read_plan(run_dir)


def test_fields_of_a_newer_writer_are_ignored(run_dir):
    run = Run(run_id="x", recipe="y").to_json() | {"mood": "good"}
    store.write_json(run_dir / "run.json", run)
    assert store.read_run(run_dir).recipe == "y"


def test_a_run_is_found_by_path_name_part_and_latest(tmp_path, run_dir):
    store.write_run(run_dir, Run(run_id=run_dir.name, recipe="demo"))
    runs = tmp_path / "runs"
    for name in (str(run_dir), run_dir.name, run_dir.name[-4:], "latest"):
        assert store.find_run(runs, name) == run_dir
    with pytest.raises(ResultsError, match="run 'nowhere': not found"):
        store.find_run(runs, "nowhere")
    other = store.create(runs, "demo")
    store.write_run(other, Run(run_id=other.name, recipe="demo"))
    with pytest.raises(ResultsError, match="2 runs match"):
        store.find_run(runs, "demo")


def test_a_full_disk_says_so():
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full")
    full = Path("/dev/full")
    with pytest.raises(StorageError, match="the disk is full"), store.storage(full):
        full.write_text("x")


@given(
    st.dictionaries(
        st.text(max_size=8), st.none() | st.floats(allow_nan=False, allow_infinity=False)
    )
)
def test_any_metrics_survive_json(metrics):
    trial = Trial("k", "c", 1, 1, metrics=metrics)
    assert Trial.from_json(json.loads(json.dumps(trial.to_json()))) == trial


def test_a_plan_is_on_the_disk_before_it_has_its_name(run_dir, monkeypatch):
    """After a power loss the renamed file was empty: a run without cells."""
    done = []
    monkeypatch.setattr(store.os, "fsync", lambda _: done.append("on the disk"))
    replace = os.replace
    monkeypatch.setattr(store.os, "replace", lambda *paths: (done.append("named"), replace(*paths)))
    store.write_plan(run_dir, [PlannedTrial(1, 1, "c1", "t1", {"payload": 16})])
    assert done == ["on the disk", "named"]
    assert [line.cell for line in store.read_plan(run_dir)] == ["c1"]


def test_a_trial_waits_for_the_disk_once(tmp_path, monkeypatch):
    """Its commands and its line of the journal waited too, thousands of times in a long run."""
    waits = []
    monkeypatch.setattr(store.os, "fsync", lambda number: waits.append(number))
    store.write_json(tmp_path / "cmd.json", {}, is_durable=False)
    store.append_event(tmp_path, "trial", False, key="k")
    assert not waits and store.read_events(tmp_path)[0]["key"] == "k"
    store.write_trial(tmp_path, TRIAL)
    store.append_event(tmp_path, "created")
    assert len(waits) == 2


def test_fields_of_earlier_runs_are_read_under_their_present_names():
    plain = Trial("t", "c", 1, 1).to_json()
    del plain["calibration"]
    old = {**plain, "canary": {"before_ms": 10.0, "after_ms": 11.0}}
    assert Trial.from_json(old).calibration == Calibration(10.0, 11.0)
    assert Run.from_json({"run_id": "r", "recipe": "r", "looks": 3}).analyses == 3
    assert Run.from_json({"run_id": "r", "recipe": "r"}).analyses == 1


def test_a_text_that_could_not_be_read_again_is_not_written(run_dir):
    """A note in Latin-1 made a run that no command could read."""
    before = (run_dir / "run.json").read_bytes()
    for note in ("caf\udce9", "\ud83d alone"):
        with pytest.raises(UnicodeEncodeError):
            store.write_run(run_dir, Run(run_id="r", recipe="demo", note=note))
    assert (run_dir / "run.json").read_bytes() == before
    store.write_run(run_dir, Run(run_id="r", recipe="demo", note="café 🚀 \\ud800"))
    assert store.read_run(run_dir).note == "café 🚀 \\ud800"


def test_a_damaged_journal_gives_its_whole_events(run_dir):
    with open(run_dir / "journal.jsonl", "ab") as file:
        file.write(b'{"event": "x\xff"}\n3\n[]\n{"t": 1}\n{"event": "y"}\n')
    assert [event["event"] for event in store.read_events(run_dir)][-2:] == ["x\ufffd", "y"]


def test_a_run_that_is_nested_without_end_is_one_line(run_dir):
    (run_dir / "run.json").write_text("[" * 100_000)
    with pytest.raises(ResultsError, match="cannot be read"):
        store.read_run(run_dir)


def test_a_run_is_named_later_than_every_other_though_the_clock_was_set_back(tmp_path, monkeypatch):
    """The run before was taken for the last one: `trend` judged it, `runs --prune` kept it."""
    runs = tmp_path / "runs"
    first = created(tmp_path)
    monkeypatch.setattr(store.time, "time", lambda: store.stamp_s(first.name) - 3600.0)
    second, third = created(tmp_path), created(tmp_path)
    assert store.list_runs(runs) == [first, second, third]
    assert store.stamp_s(third.name) == store.stamp_s(first.name) + 2
    third.rename(runs / "mine")  # a name without a time has none
    assert store.stamp_s("mine") is None
    assert store.list_runs(runs)[:2] == [first, second]
    assert created(tmp_path).name > second.name


def test_a_run_on_another_disk_stays_a_run_of_the_folder_with_its_link(tmp_path):
    """Going on with it made a link `latest` next to it there; that of the runs stayed as it was."""
    first, second = created(tmp_path), created(tmp_path)
    disk = tmp_path / "disk"
    disk.mkdir()
    first.rename(disk / first.name)
    first.symlink_to(disk / first.name)
    runs = first.parent
    assert store.find_run(runs, "latest") == second
    for name in (first.name, str(first)):
        assert store.find_run(runs, name) == first
    store.point_latest(store.find_run(runs, first.name))
    assert store.find_run(runs, "latest") == first == store.find_run(runs, str(runs / "latest"))
    assert not (disk / "latest").exists()
    baselines.save(runs, "main", first)
    assert store.find_run(runs, "main") == first == store.find_run(runs, str(disk / first.name))


def test_a_link_outside_of_the_runs_leads_to_its_run(tmp_path):
    """Going on with it replaced a file `latest` next to the link, and left that of the runs."""
    first = created(tmp_path)
    created(tmp_path)
    home = tmp_path / "home"
    home.mkdir()
    (home / "latest").write_text("mine")
    (home / "x").symlink_to(first)
    found = store.find_run(first.parent, str(home / "x"))
    assert found == first
    store.point_latest(found)
    assert store.find_run(first.parent, "latest") == first
    assert (home / "latest").read_text() == "mine"


def test_a_latest_that_cannot_be_replaced_leaves_no_link_behind(tmp_path):
    """Of another user in a sticky folder; the link was listed as the first run later."""
    first = created(tmp_path)
    runs = first.parent
    (runs / "latest").unlink()
    (runs / "latest").mkdir()
    with pytest.raises(StorageError):
        store.point_latest(first)
    assert sorted(p.name for p in runs.iterdir()) == [first.name, "latest"]
    (runs / ".latest-1").symlink_to(first.name)  # of a lab that was killed
    assert store.list_runs(runs) == [first]


def test_where_no_link_can_be_made_there_is_one_line_and_no_run(tmp_path, monkeypatch):
    """A shared folder of another user, or a file system without links: a run that never began was
    listed as cut off."""

    def refused(*_):
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(Path, "symlink_to", refused)
    with pytest.raises(StorageError, match="not permitted there; choose another folder"):
        created(tmp_path)
    assert store.list_runs(tmp_path / "runs") == []
