"""The CPU quota of a container or a service: found where it is set, counted while it holds."""

import os
import sys
import time
from pathlib import Path

import pytest

from wirespeed.agent import quota
from wirespeed.fleet.channel import Transport
from wirespeed.fleet.host import Host

TREE_V1 = Path("/sys/fs/cgroup/cpu")
TWO_CORES = {"cpu_cfs_quota_us": "20000", "cpu_cfs_period_us": "10000"}
NAME = f"wirespeed-test-{os.getpid()}"
PATIENCE_S = 120.0


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A tree of each kind; what it is asked for is made in it."""
    for names in ("TREES_V1", "TREES_V2"):
        monkeypatch.setattr(quota, names, (str(tmp_path / names),))
    monkeypatch.setattr(quota, "read_text", lambda path: asked(path, tmp_path))

    def put(folder, **files):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (tmp_path / folder / name.replace("_", ".", 1)).write_text(text + "\n")

    return put


def asked(path, folder):
    path = folder / "own" if path == "/proc/self/cgroup" else Path(path)
    return path.read_text() if path.exists() else ""


@pytest.mark.parametrize(
    ("own", "where", "files", "cores"),
    [
        ("0::/a/b", "TREES_V2/a", {"cpu_max": "150000 100000"}, 1.5),
        ("0::/a/b", "TREES_V2/a/b", {"cpu_max": "max 100000"}, None),
        ("0::/", "TREES_V2", {"cpu_max": "50000 100000"}, 0.5),  # a container's own root
        ("4:cpu,cpuacct:/docker/x", "TREES_V1", TWO_CORES, 2.0),
        ("4:cpu:/", "TREES_V1", {"cpu_cfs_quota_us": "-1", "cpu_cfs_period_us": "100000"}, None),
        ("3:cpuset:/a", "TREES_V1/a", TWO_CORES, None),
        ("0::/gone", "TREES_V2/other", {"cpu_max": "1000 1000"}, None),
    ],
)  # fmt: skip
def test_the_quota_is_that_of_the_group_or_of_one_above_it(
    tree, tmp_path, own, where, files, cores
):
    (tmp_path / "own").write_text(own + "\n")
    tree(where, **files)
    assert (quota.tightest() or (None,))[0] == cores


def test_the_tightest_of_several_counts(tree, tmp_path):
    (tmp_path / "own").write_text("0::/a/b\n")
    tree("TREES_V2/a", cpu_max="100000 100000", cpu_stat="throttled_usec 7")
    tree("TREES_V2/a/b", cpu_max="300000 100000", cpu_stat="throttled_usec 9")
    assert quota.limit_text() == str(tmp_path / "TREES_V2/a/cpu.stat")


@pytest.fixture
def limited():
    """A cgroup that gets a twentieth of a core."""
    folder = TREE_V1 / NAME
    try:
        folder.mkdir()
        (folder / "cpu.cfs_quota_us").write_text("5000")
    except OSError:
        pytest.skip("no cgroup with a CPU quota can be made here")
    yield folder
    remove_when_empty(folder)


def remove_when_empty(folder):
    """A helper of the agent may still be on its way out: it closes its pipe before it leaves the
    group, and in between it may wait for its next twentieth of a core."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            folder.rmdir()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.01)


def test_an_agent_in_a_group_with_a_quota_samples_how_long_it_held_back(limited):
    prefix = ("sh", "-c", f'echo $$ > {limited}/cgroup.procs && exec "$@"', "sh")
    host = Host(
        Transport("limited", prefix, python=sys.executable), {"mark": "quota", "cgroups": False}
    )
    try:
        host.greet()
        host.ask("sample_start", names=[], every_s=60, instants=[])
        host.ask("calibration", core=host.info["cores"][0])  # of 10 ms: two periods at least
        first, last = (sample["text"]["quota"] for sample in host.ask("sample_stop"))
        assert throttled(last) > throttled(first)
    finally:
        host.close()


def throttled(text):
    return next(int(line.split()[1]) for line in text.splitlines() if "throttled_time" in line)
