"""Tidying beside another run that tidies too."""

import errno
import os
import shutil
import subprocess
import sys

import pytest

from wirespeed.agent import leftovers


def test_a_folder_that_another_agent_removes_meanwhile_is_passed_over(tmp_path, monkeypatch):
    group = tmp_path / "wirespeed-7-abcd-1.2"
    (group / "app-0").mkdir(parents=True)
    other = tmp_path / "wirespeed-7-abcd-3.4"
    (other / "app-0").mkdir(parents=True)

    def gone(owner, _namespace):
        if owner == "1.2":
            shutil.rmtree(group)
        return False

    monkeypatch.setattr(leftovers, "CGROUP_TREES", (str(tmp_path),))
    monkeypatch.setattr(leftovers, "is_at_work", gone)
    leftovers.remove_cgroups()
    assert not other.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="a namespace of process ids needs root")
def test_a_lab_in_a_container_is_not_taken_for_one_that_was_killed():
    """Its processes are seen from outside, and its agent has another number there."""
    command = ["unshare", "--pid", "--fork", "--kill-child", "sh", "-c", "echo ready; sleep 60"]
    environment = {**os.environ, "WIRESPEED_AGENT": "1.1"}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as inside:
        assert inside.stdout.readline() == "ready\n"
        with open(f"/proc/{inside.pid}/task/{inside.pid}/children") as file:
            (child,) = map(int, file.read().split())
        try:
            assert child not in leftovers.marked()
            assert inside.pid in leftovers.marked(), "of this side it would be found"
        finally:
            inside.kill()


def test_a_lock_on_a_full_disk_is_one_all_the_same(tmp_path, monkeypatch):
    handle = leftovers.open_lock(str(tmp_path / "lock"))

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(leftovers.os, "pwrite", full)
    leftovers.sign(handle, "a run")
    os.close(handle)


@pytest.mark.skipif(os.geteuid() != 0, reason="a namespace of process ids needs root")
def test_a_run_in_a_container_that_has_the_lock_is_named(tmp_path):
    """Its process id means nothing here, and the run was told as another user's."""
    lock = tmp_path / "lock"
    script = (
        "import sys; from wirespeed.agent import leftovers\n"
        "leftovers.sign(leftovers.open_lock(sys.argv[1]), 'run 7')"
    )
    apart = ["unshare", "-pf", "--mount-proc", sys.executable, "-c", script, str(lock)]
    if subprocess.run(["unshare", "-pf", "--mount-proc", "true"], capture_output=True).returncode:
        pytest.skip("no namespace of process ids can be made here")
    subprocess.run(apart, check=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    handle = os.open(lock, os.O_RDONLY)
    try:
        assert leftovers.holder(handle) == "run 7"
        lock.write_text("run 8\n1.1\n")  # as earlier builds signed, and gone
        assert leftovers.holder(handle) == "of another user"
        lock.write_text("run 9\n")
        assert leftovers.holder(handle) == "run 9"
    finally:
        os.close(handle)
