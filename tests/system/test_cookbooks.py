"""The recipes of the published methods run as they are shipped over links between namespaces."""

import json
import os
import shutil
import socket

import pytest
from test_measure import finished_trials, only_run, runs_here

RECIPES = [
    # recipe, part, budget, processes that each trial must have
    ("nginx", "test=rps1k,thr10M,workers=1,stack=kernel,link=25G", "12s", {"nginx", "load"}),
    # 1,000 connections at once to a JVM that has just started.
    ("netty", "payload=128,instances=1,stack=kernel", "12s", {"http", "load"}),
    ("zuul", "gateway=netty,connections=100", "25s", {"origin", "gateway", "load"}),
]


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("tc"), reason="needs root and iproute2")
@pytest.mark.parametrize(("recipe", "part", "budget", "programs"), RECIPES)
def test_a_shipped_recipe_runs_over_a_link(wirespeed, recipe, part, budget, programs):
    words = ("--site", "netns", "--only", part, "--repeat", "1", "--budget", budget)
    wirespeed("run", recipe, *words, *runs_here(wirespeed))
    run = only_run(wirespeed.folder)
    trials = [json.loads(path.read_text()) for path in finished_trials(run)]
    assert trials and all(trial["valid"] for trial in trials)
    for trial in trials:
        assert {process["name"] for process in trial["processes"]} == programs
        hosts = {process["role"]: process["host"] for process in trial["processes"]}
        assert hosts["server"] == "server" and hosts["load"] == "load"
    told = json.loads((run / "run.json").read_text())
    assert told["site"] == "netns" and told["state"] == "done"
    assert all(f"program {name}" in told["facts"] for name in programs & {"nginx", "http", "gateway"})
    unmeasured = [json.loads(line) for line in (run / "plan.jsonl").read_text().splitlines()]
    assert all(line["state"] == "planned" or line["reason"] for line in unmeasured)
    if recipe == "nginx":
        large = next(trial for trial in trials if trial["axes"]["test"] == "thr10M")
        share = large["metrics"]["link.share"]  # how full a busy machine gets it: see the next test
        assert share > 0 and (large["bottleneck"] == "link" or share < 0.9501)
        assert "stand for 25 Gb/s" in (run / "derived" / "report.html").read_text()


# So slow that it is the limit of a busy machine, too.
SLOW = """
[site.slow]
kind = "netns"
link."25G" = { rate = "50mbit", mtu = 1500, speed = "25G" }
"""
FILLED = {
    "quickstart": "server=nginx,payload=16384,connections=100,stack=kernel",
    "nginx": "test=thr1M,workers=1,stack=kernel,link=25G",
}


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("tc"), reason="needs root and iproute2")
@pytest.mark.parametrize("recipe", FILLED)
def test_a_slow_link_is_named_as_the_limit(wirespeed, recipe):
    (wirespeed.folder / "sites.toml").write_text(SLOW)
    words = ["--site", "slow", "--only", FILLED[recipe], "--repeat", "1"]
    times = {"warmup": "500ms", "duration": "1s", "settle": "0s", "cooldown": "0s"}
    words += [word for key, time in times.items() for word in ("--set", f"plan.{key}={time}")]
    wirespeed("run", recipe, *words, *runs_here(wirespeed))
    run = only_run(wirespeed.folder)
    # A machine that stands still for a moment leaves the link idle: not every window is full.
    for _ in range(9):
        trials = [json.loads(path.read_text()) for path in finished_trials(run)]
        assert trials and all(trial["valid"] for trial in trials)
        if any(trial["bottleneck"] == "link" and trial["metrics"].get("link.share", 0) >= 0.95 for trial in trials):
            break
        wirespeed("run", "--resume", str(run), "--add-rounds", "1", *runs_here(wirespeed))
    else:
        raise AssertionError([(trial["bottleneck"], trial["metrics"]) for trial in trials])
    told = json.loads((run / "run.json").read_text())
    assert told["facts"]["link 25G"].startswith("declared 0.05 Gb/s, MTU 1500")
    if recipe == "nginx":
        assert "stand for 25 Gb/s" in (run / "derived" / "report.html").read_text()
    else:
        assert all(trial["metrics"]["rps"] * 16_384 * 8 < 200e6 for trial in trials)


def has_af_xdp():
    try:
        socket.socket(44, socket.SOCK_RAW).close()
    except OSError:
        return False
    return True


@pytest.mark.skipif(os.geteuid() != 0 or not has_af_xdp(), reason="needs root and AF_XDP")
def test_bypass_carries_a_recipe_over_a_link(wirespeed):
    part = "server=nginx,payload=128,connections=100,stack=kernel,performance"
    words = ("--site", "netns", "--only", part, "--repeat", "1", "--budget", "12s")
    wirespeed("run", "quickstart", *words, *runs_here(wirespeed))
    trials = [json.loads(path.read_text()) for path in finished_trials(only_run(wirespeed.folder))]
    # Valid means too: every connection of the accelerated server was carried by bypass.
    valid = {trial["axes"]["stack"]: trial["valid"] for trial in trials}
    assert valid == {"kernel": True, "performance": True}
    started = [" ".join(process["argv"]) for trial in trials for process in trial["processes"]]
    assert sum("--interface=veth" in command for command in started) == 2
