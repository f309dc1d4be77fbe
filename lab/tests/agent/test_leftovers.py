"""Cleaning up while another run does so too."""

import errno
import os
import shutil
import subprocess
import sys

import pytest

from wirespeed.agent import leftovers
from wirespeed.agent.children import Refused, identity
from wirespeed.errors import StorageError
from wirespeed.fleet.channel import Transport
from wirespeed.fleet.host import Host
from wirespeed.runner import files


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
    # The mark of an agent that lives: runs of other tests end the processes of dead ones.
    environment = {**os.environ, "WIRESPEED_AGENT": identity(os.getpid())}
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
    """Its process id means nothing here, and the run was reported as another user's."""
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


def test_a_lock_is_for_everybody_unless_an_administrator_says_otherwise(tmp_path):
    """Any user may hold a lock that it can read, and each run made it readable for all again."""
    path = tmp_path / "lock"
    before = os.umask(0o077)
    try:
        os.close(leftovers.open_lock(str(path)))
        assert path.stat().st_mode & 0o777 == 0o644
        path.chmod(0o640)
        os.close(leftovers.open_lock(str(path)))
        assert path.stat().st_mode & 0o777 == 0o640
    finally:
        os.umask(before)


def test_a_process_that_only_holds_the_lock_is_named(tmp_path, monkeypatch):
    """Any user of the host may: the run was refused for one `of another user`, and no more."""
    lock = tmp_path / "lock"
    handle = leftovers.open_lock(str(lock))
    command = ["flock", "--no-fork", str(lock), "sh", "-c", "echo held; exec sleep 60"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "held\n"
        name = leftovers.holder(handle)
        other.kill()
    assert name.startswith(f"of another user (process {other.pid}, s")
    os.close(handle)


def test_a_scratch_folder_that_is_a_link_or_open_to_others_is_refused(tmp_path):
    """As root, the agent followed another user's link and overwrote root's files."""
    target = tmp_path / "etc"
    target.mkdir()
    link = tmp_path / "wirespeed-link"
    link.symlink_to(target)
    shared = tmp_path / "wirespeed-shared"
    shared.mkdir()
    shared.chmod(0o777)
    for folder in (link, shared):
        with pytest.raises(Refused, match="belongs to another user or is open to others"):
            leftovers.own(str(folder))
    assert not list(target.iterdir()) and not list(shared.iterdir())
    leftovers.own(str(tmp_path / "wirespeed-new"))
    leftovers.own(str(tmp_path / "wirespeed-new"))  # hosts of one machine share it
    assert not (tmp_path / "wirespeed-new").stat().st_mode & 0o066


@pytest.mark.skipif(os.geteuid() != 0, reason="another user's folder needs root")
def test_a_scratch_folder_that_another_user_made_first_is_refused(tmp_path):
    folder = tmp_path / "wirespeed-20261128T000000Z-a-1234"
    folder.mkdir(mode=0o755)
    victim = tmp_path / "victim"
    victim.write_text("of root")
    (folder / leftovers.OWNER).symlink_to(victim)
    os.chown(folder, 65534, 65534)
    with pytest.raises(Refused):
        leftovers.own(str(folder))
    with pytest.raises(StorageError, match="cannot use the scratch folder"):
        files.claim(folder)
    assert victim.read_text() == "of root"


def test_a_pipe_in_the_place_of_a_lock_or_an_owner_blocks_no_agent(tmp_path, monkeypatch):
    """A reader that opens a pipe waits for a writer, possibly forever."""
    lock = tmp_path / "lock"
    os.mkfifo(lock)
    monkeypatch.setattr(leftovers, "lock_files", lambda: [str(lock)])
    assert not leftovers.is_ending()
    folder = tmp_path / "wirespeed-open"
    folder.mkdir()
    folder.chmod(0o777)
    os.mkfifo(folder / leftovers.OWNER)
    monkeypatch.setattr(leftovers, "scratch_roots", lambda: [str(tmp_path)])
    assert leftovers.remove_scratch() == []


def test_servers_that_give_up_root_reach_the_files_whatever_the_umask_is(tmp_path):
    """Root's umask of hardened hosts shut them out of payloads: status 403."""
    before = os.umask(0o077)
    try:
        leftovers.claim(tmp_path / "claimed")
        host = Host(Transport("here", python=sys.executable), {"mark": "umask", "cgroups": False})
    finally:
        os.umask(before)
    try:
        host.greet()
        one = {"name": "a.bin", "size_bytes": 1, "fill": "zero", "mount": None}
        host.ask("make_files", sets=[{**one, "folder": str(tmp_path / "claimed" / "files")}])
    finally:
        host.close()
    made = [tmp_path / "claimed", *sorted((tmp_path / "claimed").rglob("*"))]
    assert [oct(path.stat().st_mode & 0o777) for path in made] == ["0o711", "0o755", "0o644"]
