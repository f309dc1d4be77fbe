"""docs/bypass-in-production.md, walked: its unit for Redis, checked by systemd and started by its own settings.

No systemd runs where tests run. So `systemd-analyze verify` reads the unit, and its commands are started as the
unit's user, with a socket for the notification that `Type=notify` waits for.
"""

import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from frontdoor import PATIENCE_S, ROOT
from ports import free_port
from test_jobs import RELEASE, USERS, group_of, sockets_of, uid_of

sys.path.insert(0, str(ROOT / "packaging"))
from jobs import settings

PAGE = (ROOT / "docs" / "bypass-in-production.md").read_text()
UNITS = Path("/lib/systemd/system")
SERVER_USER, CLIENT_USER = USERS
CLIENTS = 5


@pytest.fixture
def usr():
    """The programs of an installed package, in a folder that every user can read."""
    folder = Path(tempfile.mkdtemp(prefix="wirespeed-service-"))
    programs = folder / "target" / "release"
    programs.mkdir(parents=True)
    for name in ("bypass", "libbypass_preload.so"):
        shutil.copy(RELEASE / name, programs)
    shutil.copytree(ROOT / "profiles", folder / "profiles")
    folder.chmod(0o755)
    yield programs
    shutil.rmtree(folder)


def page_unit(usr):
    """The drop-in of the page, for the users of this machine."""
    text = re.search(r"^```ini\n(.*?)^```", PAGE, re.M | re.S)[1]
    return text.replace("/usr/bin/bypass", str(usr / "bypass")).replace("=998", f"={uid_of(CLIENT_USER)}")


def verify(folder, drop_in):
    """The mistakes that systemd finds in Debian's unit and this drop-in."""
    shutil.copy(UNITS / "redis-server.service", folder)
    (folder / "redis-server.service.d").mkdir()
    (folder / "redis-server.service.d" / "bypass.conf").write_text(drop_in)
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", folder / "redis-server.service"],
                          env={**os.environ, "SYSTEMD_UNIT_PATH": f"{folder}:"}, capture_output=True, text=True,
                          timeout=PATIENCE_S)
    return "\n".join(line for line in done.stderr.splitlines() if "redis-server" in line), done.returncode


def as_user(user, *command):
    return ["setpriv", f"--reuid={user}", f"--regid={group_of(user)}", "--clear-groups", *command]


def start_unit(unit, port, folder):
    """Starts the service as systemd does: its check, then its command, until it has reported READY."""
    environment = {"PATH": os.environ["PATH"], **dict(shlex.split(one)[0].split("=", 1)
                                                      for one in settings(unit, "Environment"))}
    for check in settings(unit, "ExecStartPre"):
        subprocess.run(as_user(SERVER_USER, *shlex.split(check)), env=environment, check=True, timeout=PATIENCE_S,
                       capture_output=True)
    (command,) = settings(unit, "ExecStart")
    own = ["--port", port, "--save", "", "--dir", "/", "--logfile", "", "--pidfile", ""]
    address = str(folder / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
        notified.bind(address)
        os.chmod(address, 0o777)
        notified.settimeout(PATIENCE_S)
        server = subprocess.Popen(as_user(SERVER_USER, *shlex.split(command), *own), stdout=subprocess.DEVNULL,
                                  env={**environment, "NOTIFY_SOCKET": address})
        try:
            while "READY=1" not in notified.recv(4096).decode():
                assert server.poll() is None
        except BaseException:
            stop(server)
            raise
    return server


def stop(server):
    server.terminate()
    server.wait(timeout=PATIENCE_S)


def ask(usr, port):
    """The application: it names the server's user, as the page says."""
    client = ["env", f"EF_SHARE_WITH={uid_of(SERVER_USER)}", str(usr / "bypass"), "run", "-p", "safe", "--",
              "redis-benchmark", "-p", port, "-c", str(CLIENTS), "-n", "2000", "-t", "set", "-q"]
    subprocess.run(as_user(CLIENT_USER, *client), check=True, timeout=PATIENCE_S, capture_output=True)


def bypass(usr, *words):
    return subprocess.run([usr / "bypass", *words], capture_output=True, text=True, timeout=PATIENCE_S)


def test_systemd_accepts_the_unit_of_the_page(usr, tmp_path):
    assert verify(tmp_path, page_unit(usr)) == ("", 0)


def test_systemd_accepts_what_bypass_unit_prints_and_it_says_the_same(usr, tmp_path):
    """systemctl, which needs a running systemd, is replaced by a program that prints the unit."""
    systemctl = tmp_path / "bin" / "systemctl"
    systemctl.parent.mkdir()
    systemctl.write_text(f"#!/bin/sh\nexec cat {UNITS}/redis-server.service\n")
    systemctl.chmod(0o755)
    done = subprocess.run([usr / "bypass", "unit", "redis-server"], capture_output=True, text=True, check=True,
                          env={"PATH": f"{systemctl.parent}:{os.environ['PATH']}"}, timeout=PATIENCE_S)
    printed, shown = done.stdout, page_unit(usr)
    (tmp_path / "units").mkdir()
    assert verify(tmp_path / "units", printed) == ("", 0)
    for name in ("ExecStart", "PrivateUsers"):
        assert settings(printed, name) == settings(shown, name), name
    families, needed = (set(" ".join(settings(text, "RestrictAddressFamilies")).split()) for text in (printed, shown))
    assert families == needed
    assert settings(printed, "ExecPaths") == [f"{usr}/bypass {usr}/libbypass_preload.so"]


def test_the_unit_starts_and_both_ends_are_accelerated_until_it_is_rolled_back(usr, tmp_path):
    tmp_path.chmod(0o755)
    folder = Path(tempfile.mkdtemp(prefix="wirespeed-notify-"))
    folder.chmod(0o755)
    port = str(free_port())
    try:
        server = start_unit(page_unit(usr), port, folder)
        try:
            before = sockets_of(usr, server.pid)
            ask(usr, port)
            memory, _ = (now - then for now, then in zip(sockets_of(usr, server.pid), before))
            assert memory >= CLIENTS
            for words in (["stat"], ["stat", "--connections"], ["stat", "--why"], ["doctor", str(server.pid)]):
                done = bypass(usr, *words)
                assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
            assert bypass(usr, "off", str(server.pid)).returncode == 0
            ask(usr, port)
            assert sockets_of(usr, server.pid)[1] >= before[1] + CLIENTS, "switched off, the kernel serves"
        finally:
            stop(server)
        (folder / "notify").unlink()
        server = start_unit((UNITS / "redis-server.service").read_text(), port, folder)
        try:
            ask(usr, port)  # the client is still wrapped, and uses the kernel
        finally:
            stop(server)
    finally:
        shutil.rmtree(folder)
