"""A run that changes the machine leaves it as it was: at its end, on Ctrl-C, after kill -9."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

PATIENCE_S = 180
MANY = 50  # rounds of a run that is ended early: it never ends before, however busy the machine
CORES = sorted(os.sched_getaffinity(0))
pytestmark = pytest.mark.skipif(len(CORES) < 2, reason="needs two cores")


@pytest.fixture
def other(checkout, tmp_path):
    """The one program that the run may move; everything else on the machine is left alone."""
    process = subprocess.Popen(["sleep", "500"])
    checkout.environment["WIRESPEED_TUNE_UNDER"] = str(process.pid)
    checkout.environment["WIRESPEED_TUNED"] = str(tmp_path / "tuned.json")
    yield process
    process.kill()
    process.wait()


def cores_of(process):
    return sorted(os.sched_getaffinity(process.pid))


def comes_back(process):
    deadline = time.monotonic() + PATIENCE_S
    while cores_of(process) != CORES and time.monotonic() < deadline:
        time.sleep(0.02)
    return cores_of(process) == CORES


def is_removed(checkout, process, run):
    """Whether nothing is left of a killed run; agents of other tests may be removing it, too."""
    scratch = Path("/dev/shm") / f"wirespeed-{run}"
    deadline = time.monotonic() + PATIENCE_S
    while scratch.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    return checkout.nothing_left(process.pid) and not scratch.exists()


def tuning_agent(checkout):
    """The process that put its settings into the file of the test."""
    return json.loads(Path(checkout.environment["WIRESPEED_TUNED"]).read_text())["by"][0]


def kill_both(checkout, process):
    """Stopped first, the lab cannot start another agent, which would put the settings back."""
    process.send_signal(signal.SIGSTOP)
    os.kill(tuning_agent(checkout), signal.SIGKILL)
    process.kill()
    process.communicate(timeout=PATIENCE_S)


def events(checkout):
    lines = (checkout.latest / "journal.jsonl").read_text().splitlines()
    return {event["event"]: event for event in map(json.loads, lines)}


def test_a_tuned_run_says_what_it_changed_and_puts_it_back(checkout, other):
    checkout.hold()
    process = checkout.start("run", checkout.recipe(), "--tune")
    checkout.wait_for_trials(1, process)
    assert cores_of(other) != CORES
    checkout.go_on()
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    assert cores_of(other) == CORES
    assert "for this run: 1 threads and 0 interrupts of other programs left core" in err
    assert "left core" in checkout.run_json()["tuned"][0]
    assert "left core" in (checkout.latest / "derived" / "report.html").read_text()
    assert "the cores of 1 threads" in events(checkout)["restored"]["text"]


def test_without_the_option_nothing_is_changed(checkout, other):
    code, _, err = checkout.call("run", checkout.recipe(connections=[1]))
    assert code == 0, err
    assert checkout.run_json()["tuned"] is None
    assert "tuned" not in events(checkout)


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGKILL])
def test_a_run_that_is_ended_from_outside_puts_everything_back(checkout, other, sign):
    process = checkout.start("run", checkout.recipe(duration="700ms", repeat=MANY), "--tune")
    checkout.wait_for_trials(1, process)
    assert cores_of(other) != CORES
    process.send_signal(sign)
    process.communicate(timeout=PATIENCE_S)
    assert comes_back(other)
    assert checkout.nothing_left(process.pid)


def test_a_tuned_run_is_tuned_again_when_it_goes_on(checkout, other, interrupt):
    checkout.hold()
    process = checkout.start("run", checkout.recipe(), "--tune")
    checkout.wait_for_trials(1, process)
    interrupt(process)
    process.communicate(timeout=PATIENCE_S)
    checkout.go_on()
    code, _, err = checkout.call("run", "--resume", "latest")
    assert code == 0, err
    assert "for this run: 1 threads" in err
    assert cores_of(other) == CORES


@pytest.mark.parametrize("remedy", ["recover", "run"])
def test_lab_and_agent_killed_together_are_made_good_by_the_next_command(checkout, other, remedy):
    process = checkout.start("run", checkout.recipe(duration="700ms", repeat=MANY), "--tune")
    checkout.wait_for_trials(1, process)
    cut_off = checkout.latest.name
    kill_both(checkout, process)
    assert cores_of(other) != CORES
    following = checkout.recipe(name="next", connections=[1])
    words = ["recover"] if remedy == "recover" else ["run", following]
    code, out, err = checkout.call(*words)
    assert code == 0, err
    assert "the cores of 1 threads" in out + err
    assert cores_of(other) == CORES
    assert checkout.call("recover")[0] == 0  # also the folders and cgroups that they left
    assert is_removed(checkout, process, cut_off)


def test_an_agent_that_is_killed_alone_leaves_nothing_changed(checkout, other):
    checkout.hold()
    process = checkout.start("run", checkout.recipe(), "--tune")
    checkout.wait_for_trials(1, process)
    os.kill(tuning_agent(checkout), signal.SIGKILL)
    checkout.go_on()
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    assert "the agent has ended" in err and "the run goes on" in err
    assert cores_of(other) == CORES
    assert "the cores of 1 threads" in events(checkout)["restored"]["text"]
    assert checkout.nothing_left(process.pid)


def test_settings_of_two_killed_runs_are_gone_after_the_next_run(checkout, other):
    process = checkout.start("run", checkout.recipe(duration="700ms", repeat=MANY), "--tune")
    checkout.wait_for_trials(1, process)
    cut_off = checkout.latest.name
    kill_both(checkout, process)
    code, out, _ = checkout.call("runs")
    assert code == 0 and "cut off" in out
    code, _, err = checkout.call("run", checkout.recipe(name="next", connections=[1]))
    assert code == 0, err
    assert is_removed(checkout, process, cut_off)
