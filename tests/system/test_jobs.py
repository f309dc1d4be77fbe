"""Pages about one job each, walked by their own files and commands with a server like the reader's."""

import json
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
from frontdoor import ROOT, wait_until
from ports import free_port

sys.path.insert(0, str(ROOT / "packaging"))
from jobs import APP, CERTIFICATE, NGINX, commands_of

DOCS = ROOT / "docs"
RELEASE = ROOT / "target" / "release"
USERS = ("redis", "nobody")


def own_folder(folder):
    """The reader's folder: a configuration with TLS and an application behind it."""
    (folder / "nginx.conf").write_text(NGINX)
    (folder / "app.py").write_text(APP)
    subprocess.run(CERTIFICATE.split(), cwd=folder, check=True, capture_output=True)
    (folder / "wirespeed").symlink_to(ROOT / "wirespeed")


def test_nginx_with_tls_in_front_of_an_application_is_measured_as_its_page_says(tmp_path):
    text = (DOCS / "is-nginx-faster-with-bypass.md").read_text()
    own_folder(tmp_path)
    (tmp_path / "my.toml").write_text(re.search(r"^```toml\n(.*?)^```", text, re.M | re.S)[1])
    environment = {**os.environ, "PATH": f"{RELEASE}:{os.environ['PATH']}:/usr/sbin"}
    for command in commands_of(text):
        words = shlex.split(command.replace("COMMAND", "python3 app.py"))
        if words[1] == "run":
            words += ["--only", "connections=50", "--repeat", "1", "--accept-noise", "--runs", "runs",
                      "--set", "plan.duration=1s", "--set", "plan.warmup=1s"]
        done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=400,
                              stdin=subprocess.DEVNULL)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    assert "3 valid trials" in done.stdout, done.stdout


@pytest.fixture
def installed():
    """The programs of bypass where every user can read them; this checkout may be in a closed folder."""
    folder = Path(tempfile.mkdtemp(prefix="wirespeed-jobs-"))
    for name in ("bypass", "libbypass_preload.so"):
        shutil.copy(RELEASE / name, folder)
    shutil.copy(ROOT / "profiles" / "safe.opf", folder)
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def as_user(user, share_with, installed, *command):
    return ["setpriv", f"--reuid={user}", f"--regid={group_of(user)}", "--clear-groups",
            "env", f"EF_SHARE_WITH={share_with}",
            str(installed / "bypass"), "run", "-p", str(installed / "safe.opf"), "--", *command]


def group_of(user):
    return subprocess.run(["id", "-g", user], capture_output=True, text=True, check=True).stdout.strip()


def uid_of(user):
    return int(subprocess.run(["id", "-u", user], capture_output=True, text=True, check=True).stdout)


def sockets_of(installed, pid):
    """The connections that a process accepted over shared memory and through the kernel."""
    shown = subprocess.run([installed / "bypass", "stat", "--json"], capture_output=True, text=True, check=True).stdout
    mine = [one for one in json.loads(shown)["processes"] if one["pid"] == pid]
    assert mine, shown
    return mine[0]["counters"]["accepts_shm"], mine[0]["counters"]["accepts_kernel"]


@pytest.mark.parametrize("is_named", [True, False], ids=["both-named", "client-does-not-name"])
def test_redis_and_a_client_of_another_user_meet_where_each_names_the_other(installed, is_named):
    server_user, client_user = USERS
    port = str(free_port())
    server = subprocess.Popen(
        as_user(server_user, uid_of(client_user), installed, "redis-server", "--port", port, "--save", "",
                "--dir", "/"), stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: can_connect(port), "redis-server to listen")
        before = sockets_of(installed, server.pid)
        named = uid_of(server_user) if is_named else uid_of(client_user)
        subprocess.run(as_user(client_user, named, installed, "redis-benchmark", "-p", port, "-c", "5", "-n", "2000",
                               "-t", "set", "-q"), check=True, timeout=120, capture_output=True)
        over_memory, over_kernel = (now - then for now, then in zip(sockets_of(installed, server.pid), before))
        assert (over_memory >= 5) == is_named and (over_kernel >= 5) != is_named, (over_memory, over_kernel)
    finally:
        server.terminate()
        server.wait()


def can_connect(port):
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", int(port))) == 0
