"""Two servers that take turns in a run: a planted cost is found, and nothing stays behind."""

import json
import os
import shutil
import signal
import statistics
import sys
import time
from pathlib import Path

import pytest

PATIENCE_S = 180  # a loaded two-core machine
ROOT = Path(__file__).parents[3]
FAKES = Path(__file__).parents[1] / "fakes"
PROGRAM = ROOT / "target" / "release" / "wirespeed-load"

RECIPE = """
wirespeed = 2
name = "duet"
axes = {{ variant = ["A", "B"] }}
[axis.variant]
A = {{ work = {work_a} }}
B = {{ work = {work_b} }}
[plan]
method = "duet"
repeat = {repeat}
warmup = "300ms"
duration = "200ms"
baseline = {{ variant = "A" }}
duet = {{ pair = "{pair}", drain = "5s" }}
[[process]]
name = "app"
role = "server"
port = {{ base = {port} }}
pin  = {{ cores = "from 0", per = 1 }}
argv = ["{python}", "{server}", "--port", "{shown}", "--work", "{{{{ variant.work }}}}"]
ready = {{ http = "http://{{{{ server.addr }}}}:{{{{ port }}}}/", within = "60s" }}
[[process]]
name = "gen"
role = "load"
tool = "{tool}"
pin  = {{ cores = "from 0", per = 1 }}
argv = ["-t", "1", "-c", "4", "-d", "{{{{ duration }}}}",
  "http://{{{{ server.addr }}}}:{{{{ app.port }}}}/"]
[[metric]]
name = "rps"
from = "gen"
[[table]]
rows = "variant"
value = "rps"
"""


@pytest.fixture
def made(checkout):
    """Writes the recipe of a checkout that has the real generator."""
    assert PROGRAM.exists(), "./wirespeed build load makes it"
    target = checkout.root / "target" / "release" / "wirespeed-load"
    target.unlink()
    shutil.copy(PROGRAM, target)

    def recipe(**changes):
        path = checkout.recipe()
        port = path.read_text().split("base = ")[1].split()[0]
        values = {
            "work_a": 50, "work_b": 90, "repeat": 3, "pair": "1s", "port": port,
            "python": sys.executable, "server": FAKES / "planted.py", "shown": "{{ port }}",
            "tool": "load",
        } | changes  # fmt: skip
        path.write_text(RECIPE.format(**values))
        return path

    return recipe


def duets_of(checkout):
    return [trial["duet"] for trial in checkout.trials() if trial.get("duet")]


def wait_for_turns(checkout, process):
    """Until both sides have a gate, and one of them is at rest."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()
        if (checkout.runs / "latest").exists():
            folder = Path("/dev/shm") / f"wirespeed-{checkout.latest.name}"
            gates = list(folder.glob("control-gen-0")) + list(folder.glob("b/control-gen-0b"))
            if len(gates) == 2 and any(gate.read_bytes()[12] for gate in gates):
                return
        time.sleep(0.01)
    raise AssertionError("no turns were taken")


def test_a_planted_cost_is_found_by_a_duet_and_the_report_names_the_method(checkout, made):
    process = checkout.start("run", made(pair="2s"))
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    for _ in range(8):  # three duets make the comparison, and a busy machine may spoil some
        found = duets_of(checkout)
        counted = [duet["ratios"] for duet in found if not duet["problem"]]
        if len(counted) >= 3:
            break
        code, out, err = checkout.call("run", "--resume", "latest", "--add-rounds", "1")
        assert code == 0, err
    assert len(counted) >= 3, [duet["problem"] for duet in found]
    assert all(duet["seconds"] > 2.0 for duet in found if duet["ratios"]), "what they took"
    cpu, rps = (
        statistics.median(ratios[metric]["log"] for ratios in counted)
        for metric in ("server.work_us_per_request", "rps")
    )
    # a request costs at most 80 % more, and what is the same for both is not nothing
    assert 0.1 < cpu < 0.75 and -0.85 < rps < 0, found
    verdicts = json.loads((checkout.latest / "derived" / "verdict.json").read_text())["comparisons"]
    assert {one["method"] for one in verdicts} == {"duet"}
    assert "requests/s (duet)" in out
    assert (
        "In a duet two fresh servers live next to each other for 2 s"
        in (checkout.latest / "derived" / "report.html").read_text()
    )
    assert len(list(checkout.latest.glob("trials/*/slices.jsonl"))) >= len(counted)
    assert checkout.nothing_left(process.pid)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_ended_between_two_turns_leaves_nothing_frozen_or_alive(
    checkout, made, number
):
    process = checkout.start("run", made(pair="60s"))
    wait_for_turns(checkout, process)
    process.send_signal(number)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == {2: 130, 15: 143, 9: -9}[number]
    assert checkout.nothing_left(process.pid)


def test_a_finished_pair_survives_an_interrupt_and_the_rest_is_measured(checkout, made):
    process = checkout.start("run", made(repeat=3))
    checkout.wait_for_trials(2, process)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE_S)
    kept = {path: path.stat().st_mtime_ns for path in checkout.latest.glob("trials/*/trial.json")}
    assert 2 <= len(kept) < 6
    code, _, err = checkout.call("run", "--resume", "latest")
    assert code == 0, err
    assert len(checkout.trials()) == 6
    assert len(duets_of(checkout)) == 3
    assert all(path.stat().st_mtime_ns == was for path, was in kept.items())


def test_servers_that_refuse_to_freeze_are_measured_in_separate_trials(checkout, made):
    """The whole run ended. Without cgroups a process in a session of its own goes on."""
    checkout.environment["WIRESPEED_NO_CGROUPS"] = "1"
    recipe = made()
    recipe.write_text(recipe.read_text().replace('"--work"', '"--own-session", "--work"'))
    process = checkout.start("run", recipe)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    assert err.count("no duet, separate trials instead: app-0 cannot be frozen") == 1
    assert [trial["valid"] for trial in checkout.trials()] == [True] * 6
    assert "0 of 3 duets count; 3: app-0 cannot be frozen." in " ".join(out.split())
    verdicts = json.loads((checkout.latest / "derived" / "verdict.json").read_text())["comparisons"]
    assert {one["method"] for one in verdicts} == {"separate trials"}
    assert checkout.nothing_left(process.pid)


def kill_agents(checkout, process):
    """Returns once the lab has noticed."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    for child in children:
        os.kill(int(child), signal.SIGKILL)
    deadline = time.monotonic() + PATIENCE_S
    while '"event": "agent_lost"' not in (checkout.latest / "journal.jsonl").read_text():
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.001)


def test_a_killed_agent_leaves_nothing_frozen_or_alive(checkout, made):
    process = checkout.start("run", made(pair="60s"))
    wait_for_turns(checkout, process)
    kill_agents(checkout, process)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert not checkout.left_behind(process.pid)


@pytest.mark.parametrize("agents", ["alive", "killed"])
def test_interrupts_that_come_again_and_again_leave_nothing(checkout, made, agents):
    process = checkout.start("run", made(pair="60s"))
    wait_for_turns(checkout, process)
    if agents == "killed":
        kill_agents(checkout, process)
    deadline = time.monotonic() + PATIENCE_S
    while process.poll() is None:
        assert time.monotonic() < deadline
        process.send_signal(signal.SIGINT)
        time.sleep(0.003)
    process.communicate(timeout=PATIENCE_S)
    assert not checkout.left_behind(process.pid)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"shown": "{{ app.count }}"}, "the command of app does not use its port"),
        ({"tool": "wrk"}, "wrk cannot be held back between requests"),
    ],
)
def test_the_plan_gives_the_reason_for_separate_trials(checkout, made, changes, reason):
    code, out, err = checkout.call("plan", made(**changes))
    assert code == 0, err
    assert "1 of 2 cells are compared by separate trials, not by duets" in out
    assert reason in " ".join(out.split())


def test_contenders_take_turns_on_a_far_host_too(checkout, made):
    """The second server's generator had no folder for its gate there, and the next pair found the
    gate of the pair before."""
    site = """
[site.far]
kind = "exec"
command = ["env"]
server = { host = "box", addr = "127.0.0.1" }
load = { host = "box" }
"""
    (checkout.root / "sites.toml").write_text(site)
    code, _, err = checkout.call("run", made(), "--site", "far")
    assert code == 0, err
    found = duets_of(checkout)
    assert len(found) == 3 and not any(duet["is_failure"] for duet in found), found
    # On a busy machine too few groups may be left of one; the gate of another pair left none.
    assert all(duet["groups"] for duet in found), found
