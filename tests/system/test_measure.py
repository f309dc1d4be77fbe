"""One measurement with the real server and the real generator, from recipe to report."""

import json
import re
import signal
import socket
from pathlib import Path

from frontdoor import PATIENCE_S, interrupt, marked_processes, wait_until

TINY = str(Path(__file__).parent / "tiny.toml")


def only_run(folder):
    (run,) = (path for path in (folder / "runs").iterdir() if not path.is_symlink())
    return run


def finished_trials(run):
    return sorted(run.glob("trials/*/trial.json"))


def wait_for_first_trial(wirespeed):
    wait_until(lambda: finished_trials(wirespeed.folder / "runs" / "latest"), "the first trial")


def runs_here(wirespeed):
    """A test machine is not a quiet one: what other programs take is noted, not repeated."""
    return "--runs", str(wirespeed.folder / "runs"), "--accept-noise"


def run_tiny(wirespeed, expect=0):
    return wirespeed("run", TINY, *runs_here(wirespeed), expect=expect)


def start_tiny(wirespeed):
    return wirespeed.start("run", TINY, *runs_here(wirespeed))


def test_a_recipe_becomes_tables_and_a_report_that_opens_offline(wirespeed):
    done = run_tiny(wirespeed)
    run = only_run(wirespeed.folder)
    trials = [json.loads(path.read_text()) for path in finished_trials(run)]
    assert len(trials) == 4
    assert all(trial["metrics"]["rps"] > 0 for trial in trials)
    assert all(trial["metrics"]["errors"] == 0 for trial in trials)
    assert json.loads((run / "run.json").read_text())["state"] == "done"
    page = (run / "derived" / "report.html").read_text()
    assert len(page) < 400_000
    assert not re.search(r"(src|href)=[\"']?https?:", page)
    assert "Report:" in done.stdout

    for path in (run / "derived").iterdir():
        path.unlink()
    wirespeed("report", str(run), *runs_here(wirespeed)[:2])
    names = {path.name for path in (run / "derived").iterdir()}
    assert {"report.html", "tables.md", "results.csv"} <= names


def test_ctrl_c_keeps_finished_trials_and_resume_completes_the_run(wirespeed):
    process = start_tiny(wirespeed)
    wait_for_first_trial(wirespeed)
    interrupt(process)
    output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode not in (0, 2), output
    assert "--resume" in output
    assert not marked_processes()
    finished_and_resumed(wirespeed, only_run(wirespeed.folder))


def test_kill_9_of_the_lab_leaves_no_process_and_resume_completes_the_run(wirespeed):
    process = start_tiny(wirespeed)
    wait_for_first_trial(wirespeed)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=PATIENCE_S)
    wait_until(lambda: not marked_processes(), "the server and the generator to be gone")
    finished_and_resumed(wirespeed, only_run(wirespeed.folder))


def finished_and_resumed(wirespeed, run):
    kept = {path: path.stat().st_mtime_ns for path in finished_trials(run)}
    assert kept
    wirespeed("run", "--resume", str(run), *runs_here(wirespeed))
    assert len(finished_trials(run)) == 4
    assert json.loads((run / "run.json").read_text())["state"] == "done"
    assert {path: path.stat().st_mtime_ns for path in kept} == kept


def test_a_port_in_use_is_one_line_that_names_the_port(wirespeed):
    with socket.create_server(("127.0.0.1", 18081)):
        done = run_tiny(wirespeed, expect=1)
    assert "18081" in done.stdout + done.stderr
    assert not marked_processes()
