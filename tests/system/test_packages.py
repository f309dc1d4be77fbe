"""Debian packages are installed in spite of other programs that use apt or dpkg meanwhile."""

import contextlib
import os
import subprocess
import sys

import pytest
from frontdoor import ROOT, wait_until
from suite.needs import front_door

#: Takes the lock as apt and dpkg do (fcntl, not flock), until its standard input ends.
HOLDER = """
import fcntl, sys
file = open(sys.argv[1], "wb")
fcntl.lockf(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""
#: Fails as apt-get does where the lock is held, and where the file `refuse` is there, once.
APT = """#!/bin/sh
echo "$*" >> {folder}/calls
if rm {folder}/refuse 2> {folder}/null; then
    echo "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 1 (apt-get)"
    exit 100
fi
exec {python} -c 'import fcntl; fcntl.lockf(open("{folder}/lock", "wb"), fcntl.LOCK_EX | fcntl.LOCK_NB)'
"""


@contextlib.contextmanager
def held(path):
    """Another program that holds the lock; its process."""
    with subprocess.Popen([sys.executable, "-c", HOLDER, path], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"held\n"
        yield process
        process.stdin.close()


@pytest.fixture
def door(tmp_path, monkeypatch):
    """The front door with an apt-get, locks and a policy of the test's own."""
    program = tmp_path / "bin" / "apt-get"
    program.parent.mkdir()
    program.write_text(APT.format(folder=tmp_path, python=sys.executable))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.delenv("WIRESPEED_NO_INSTALL", raising=False)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    (tmp_path / "lock").touch()
    door = front_door()
    door.BUILD = tmp_path / "build"
    door.APT_LOCKS = (str(tmp_path / "absent"), str(tmp_path / "lock"))
    door._no_service_starts.POLICY = tmp_path / "policy-rc.d"
    return door


def install(door, package="one two"):
    door.Builder([door.Part("no-such-program", "two programs", 1, package=package)]).build()


def calls(folder):
    path = folder / "calls"
    return path.read_text().splitlines() if path.exists() else []


def test_the_holder_of_a_lock_is_named(door, tmp_path):
    lock = str(tmp_path / "lock")
    assert door.lock_holder(lock) is None and door.lock_holder(str(tmp_path / "absent")) is None
    with held(lock) as holder:
        assert door.lock_holder(lock).endswith(f" (process {holder.pid})")
    wait_until(lambda: door.lock_holder(lock) is None, "the lock to be free")


def test_packages_are_named_before_they_are_installed(door, tmp_path, capsys):
    install(door)
    (call,) = calls(tmp_path)
    assert call.startswith("install --no-install-recommends -y one two ")
    assert "DPkg::Lock::Timeout=300" in call
    reported = capsys.readouterr().err
    assert "installing two programs (Debian packages one, two) …" in reported
    assert "waiting" not in reported and not (tmp_path / "policy-rc.d").exists()


def test_a_held_lock_is_waited_for(door, tmp_path, capsys, monkeypatch):
    said = door.say
    with held(str(tmp_path / "lock")) as holder:

        def say(text):
            said(text)
            if text.startswith("waiting for "):  # only now the other program ends
                assert f"(process {holder.pid})" in text and not calls(tmp_path)
                holder.stdin.close()

        door.say = say
        install(door, "one")
        assert len(calls(tmp_path)) == 1
    assert capsys.readouterr().err.count("which holds the lock of dpkg or apt …") == 1


def test_a_lock_that_is_taken_at_the_last_moment_is_waited_for(door, tmp_path):
    """apt-get takes some locks without waiting, and is beaten to one of them."""
    (tmp_path / "refuse").touch()
    install(door)
    first, second = calls(tmp_path)
    assert first == second


def test_a_lock_that_is_never_free_is_an_error_that_names_its_holder(door, tmp_path):
    door.LOCK_WAIT_S = 0.3
    with held(str(tmp_path / "lock")) as holder, pytest.raises(
            door.BuildFailed, match=rf"\(process {holder.pid}\) has held the lock .* for 0.3 s"):
        install(door)
    assert not calls(tmp_path)


def test_the_list_of_packages_is_fetched_when_a_package_is_not_found(door, tmp_path):
    program = tmp_path / "bin" / "apt-get"
    program.write_text(f'#!/bin/sh\necho "$1" >> {tmp_path}/calls\n'
                       f'[ "$1" = update ] && touch {tmp_path}/known; [ -e {tmp_path}/known ]\n')
    install(door)
    assert calls(tmp_path) == ["install", "update", "install"]


@pytest.mark.parametrize("own", [None, "#!/bin/sh\nexit 0\n"], ids=["none", "of-the-machine"])
def test_the_benchmark_of_programs_starts_no_service_that_it_installs(tmp_path, monkeypatch, own):
    """It said so, and exim, mariadb, vsftpd and more went on listening on the machine."""
    monkeypatch.syspath_prepend(str(ROOT / "bypass" / "bench" / "programs"))
    import catalogue

    policy = tmp_path / "policy-rc.d"
    if own:
        policy.write_text(own)
    seen = []
    monkeypatch.setattr(catalogue, "POLICY", policy)
    monkeypatch.setattr(catalogue.subprocess, "run", lambda *_, **__: seen.append(policy.read_text()))
    catalogue.install(["exim"])
    mark = front_door()._no_service_starts.MARK
    assert seen == [own or f"#!/bin/sh\n{mark}{os.getpid()}\nexit 101\n"]
    assert (policy.read_text() if policy.exists() else None) == own
