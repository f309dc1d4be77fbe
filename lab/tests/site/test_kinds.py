"""Every kind of site: the same recipe runs on it, and nothing is left however a run ends."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes import marked
from site_farm import PATIENCE_S, SSHD, Farm, Slurm, address
from warm import program

KINDS = ("here", "netns", "ssh", "slurm", "exec")
NEEDS = {"netns": "unshare", "ssh": SSHD, "slurm": "slurmctld"}
SITES = """
[site.ssh]
kind = "ssh"
options = ["-F", "{folder}/ssh_config"]
python = "{python}"
server = {{ host = "host0", addr = "{server}" }}
load = {{ hosts = ["host1", "host2"] }}

[site.slurm]
kind = "slurm"
python = "{python}"
server = {{ addr = "127.0.0.1" }}
slurm = {{ nodes = 3 }}

[site.exec]
kind = "exec"
command = ["env", "WIRESPEED_HOST={{{{ host }}}}"]
python = "{python}"
server = {{ host = "c0", addr = "127.0.0.1", cores = [0] }}
load = {{ hosts = ["c1", "c2"], cores = [1] }}
"""


@pytest.fixture(params=KINDS)
def kind(request, checkout, tmp_path):
    """A checkout whose lab runs on a site of this kind."""
    name = request.param
    if name != "here" and os.geteuid() != 0:
        pytest.skip("needs root for namespaces")
    if name in NEEDS and not shutil.which(NEEDS[name]):
        pytest.skip(f"needs {NEEDS[name]}")
    text = SITES.format(folder=tmp_path, python=sys.executable, server=address(11))
    (checkout.root / "sites.toml").write_text(text)
    farm = Farm(tmp_path, 3) if name == "ssh" else None
    slurm = Slurm(tmp_path / "slurm", 3) if name == "slurm" else None
    checkout.site, checkout.farm, checkout.slurm = name, farm, slurm
    checkout.environment.update(slurm.environment if slurm else {})
    if farm:
        farm.wait()
    yield checkout
    for one in (farm, slurm):
        if one:
            one.close()


def started(checkout, recipe, first=""):
    command = [*program(first), "run", recipe, "--site", checkout.site]
    command += ["--runs", checkout.runs, "--accept-noise"]
    command = list(map(str, command))
    if checkout.farm:
        command = checkout.farm.at_desk(command)
    return subprocess.Popen(
        command, env=checkout.environment, cwd=checkout.root, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def recipe(checkout, **changes):
    """The fake server is sent along where hosts do not share files."""
    folder = checkout.root / "programs"
    folder.mkdir(exist_ok=True)
    fakes = Path(__file__).parents[1] / "fakes"
    shutil.copy(fakes / "server.py", folder / "server.py")
    return checkout.recipe(server=folder / "server.py", **changes)


def scratch_folders(checkout):
    return list(Path("/dev/shm").glob(f"wirespeed-{checkout.latest.name}*"))


def test_a_recipe_runs_and_leaves_nothing(kind):
    process = started(kind, recipe(kind, connections=[1, 2]))
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    trials = kind.trials()
    assert [trial["valid"] for trial in trials] == [True, True]
    assert all(trial["metrics"]["rps"] > 0 and trial["window"] for trial in trials)
    for trial in trials:
        by_role = {one["role"]: one for one in trial["processes"]}
        assert by_role["server"]["cpu_s"] > 0 and by_role["load"]["cpu_s"] > 0
    hosts = {one["role"]: one["host"] for trial in trials for one in trial["processes"]}
    assert (hosts["server"] == hosts["load"]) == (kind.site == "here")
    (folder, *_) = sorted(kind.latest.glob("trials/*"))
    assert json.loads((folder / "load-gen-0.json").read_text())["rps"] > 0
    assert (folder / "server-app-0.out").exists()
    assert kind.nothing_left(process.pid)
    assert not scratch_folders(kind)
    if kind.slurm:
        assert wait_until(lambda: not kind.slurm.jobs())


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGKILL])
def test_a_run_that_is_ended_from_outside_leaves_nothing(kind, sign):
    process = started(kind, recipe(kind, duration="700ms", server_options=["--fork"], repeat=50))
    kind.wait_for_trials(1, process)
    assert kind.left_behind(process.pid)  # so that finding nothing means something
    process.send_signal(sign)
    process.communicate(timeout=PATIENCE_S)
    assert kind.nothing_left(process.pid)
    left = wait_until(lambda: not scratch_folders(kind)) or scratch_folders(kind)
    assert left is True, [list(map(str, folder.rglob("*"))) for folder in left]
    if kind.slurm:
        assert wait_until(lambda: not kind.slurm.jobs())


@pytest.mark.parametrize("kind", ["netns"], indirect=True)
def test_a_killed_agent_is_replaced_and_does_not_count_against_its_server(kind):
    """Its server dies with it, and the generator on the other host fails for that reason: the trial
    counted as failed, and later the run ended there."""
    kind.hold()
    process = started(kind, recipe(kind, duration="1500ms"))
    kind.wait_for_trials(1, process)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert wait_until(lambda: programs_of(process.pid, "/000002-"))  # the next trial's generator
    kind.go_on()
    os.kill(int(children[1]), signal.SIGKILL)  # after the machine's comes the server's
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0 and "the run goes on" in err, err
    assert kind.nothing_left(process.pid)
    assert [trial["valid"] for trial in kind.trials()] == [True, True, True]


@pytest.mark.parametrize("kind", ["ssh"], indirect=True)
def test_a_cut_cable_ends_what_runs_behind_it_and_the_run_says_so(kind):
    # The host does not come back: one attempt to reach it is enough.
    once = "from wirespeed.runner import session; session.AGAIN_FOR_S = 0.1"
    endless = recipe(kind, duration="700ms", server_options=["--fork"], repeat=50)
    process = started(kind, endless, first=once)
    kind.wait_for_trials(1, process)
    kind.farm.cut(0)
    assert wait_until(lambda: not programs_of(process.pid, "server.py"))
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert "host0" in err
    assert kind.nothing_left(process.pid)


@pytest.mark.parametrize("kind", ["ssh"], indirect=True)
def test_a_host_that_cannot_be_reached_is_one_line(kind):
    text = (kind.root / "sites.toml").read_text().replace('"host1"', '"host9"')
    (kind.root / "sites.toml").write_text(text)
    process = started(kind, recipe(kind, connections=[1]))
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert err.startswith("wirespeed: host9: ") and len(err.splitlines()) == 1, err


@pytest.mark.parametrize("kind", ["ssh"], indirect=True)
def test_a_wrong_address_of_the_server_is_reported_before_anything_is_measured(kind):
    text = (kind.root / "sites.toml").read_text().replace(address(11), "127.0.0.1")
    (kind.root / "sites.toml").write_text(text)
    soon = "from wirespeed.process import ready; ready.REACH_S = 1.0"  # nothing answers there
    process = started(kind, recipe(kind, connections=[1]), first=soon)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert "host1 cannot reach host0 at 127.0.0.1" in err and "address of the server" in err
    assert not list((kind.runs).glob("*/trials/*/trial.json"))


def programs_of(pid, name):
    return [one for one, words in marked(f"{pid}-").items() if name.encode() in words]


def wait_until(condition):
    """Whether the condition held once: what is there between two looks may be gone at the next."""
    deadline = time.monotonic() + PATIENCE_S
    while not (holds := condition()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return holds
