"""The NGINX cookbook between two hosts over ssh, as docs/two-hosts.md has it: bypass goes along."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest
from frontdoor import ROOT
from site_farm import SSHD, Farm

SITE = """
[site.rack]
kind    = "ssh"
options = ["-F", "{folder}/ssh_config"]
python  = "{python}"
server  = {{ host = "host0", cores = [0], addr = {{ "25G" = "{address}" }} }}
load    = {{ hosts = ["host1"], cores = [1] }}
link."25G" = {{ mtu = 1500, server = "cable", load = "cable", net = "192.0.2" }}
"""
SMALL = ["--only", "test=rps1k,workers=1,link=25G", "--repeat", "1", "--accept-noise",
         "--set", "plan.duration=1s", "--set", "plan.warmup=500ms", "--set", "plan.settle=0s",
         "--set", "plan.cooldown=0s"]


@pytest.fixture
def farm(tmp_path):
    """Two hosts with an sshd each, joined by a link of their own."""
    if os.geteuid() != 0 or not shutil.which(SSHD) or len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs root, sshd and two cores")
    farm = Farm(tmp_path, 2)
    try:
        address, _ = farm.cable(0, 1)
        (tmp_path / "sites.toml").write_text(
            SITE.format(folder=tmp_path, python=sys.executable, address=address))
        farm.wait()
        yield farm
    finally:
        farm.close()


def test_all_three_stacks_of_the_cookbook_run_between_two_hosts(farm, tmp_path):
    command = [str(ROOT / "wirespeed"), "run", "nginx", "--site", "rack", "--runs", "runs", *SMALL]
    done = subprocess.run(farm.at_desk(command), cwd=tmp_path, capture_output=True, text=True, timeout=400,
                          stdin=subprocess.DEVNULL)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    trials = [json.loads(path.read_text()) for path in (tmp_path / "runs").glob("2*/trials/*/trial.json")]
    assert {trial["axes"]["stack"] for trial in trials} == {"kernel", "balanced", "performance"}
    assert all(trial["valid"] for trial in trials), [trial["reasons"] for trial in trials]
    for trial in trials:
        (server,) = [one for one in trial["processes"] if one["role"] == "server"]
        is_sent = bool(re.search(r"/put/\w+/target/release/bypass run ", " ".join(server["argv"])))
        assert is_sent == (trial["axes"]["stack"] != "kernel"), server["argv"]
