"""docs/from-wrk2.md, walked: its commands are run, and its tables are compared with the programs they speak of."""

import os
import re
import shlex
import shutil
import socket
import subprocess
import sys

import pytest
from frontdoor import PATIENCE_S, ROOT, wait_until

sys.path.insert(0, str(ROOT / "packaging"))
from jobs import commands_of

PAGE = (ROOT / "docs" / "from-wrk2.md").read_text()
OPTIONS = (ROOT / "docs" / "load-options.md").read_text()  # generated from the option table, and compared with it
GENERATOR = ROOT / "target" / "release" / "wirespeed-load"
NGINX = """
daemon off; pid {folder}/nginx.pid; error_log stderr; worker_processes 1;
events {{ worker_connections 512; }}
http {{
  access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  server {{ listen unix:{folder}/web.sock; location / {{ return 200 "ok"; }} }}
}}
"""


@pytest.fixture
def server(tmp_path):
    """A URL at which NGINX answers. A Unix socket needs no port, which another program could have."""
    (tmp_path / "nginx.conf").write_text(NGINX.format(folder=tmp_path))
    nginx = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    process = subprocess.Popen([nginx, "-c", tmp_path / "nginx.conf"], stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: can_connect(tmp_path / "web.sock"), "nginx to listen")
        yield f"unix://{tmp_path}/web.sock:/"
    finally:
        process.terminate()
        process.wait(timeout=PATIENCE_S)


def can_connect(path):
    """The file is there before NGINX listens."""
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == 0


def short(words, url):
    """A command of the page for a second and this server."""
    words = [re.sub(r"^http://\S+$", url, word) for word in words]
    return [re.sub(r"^-d\d+s$", "-d1s", word) for word in words]


def run(words, folder, **environment):
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S,
                          stdin=subprocess.DEVNULL, env={**os.environ, **environment})


def table(heading):
    """The rows of the first table below a heading, without its head."""
    rows = re.findall(r"^\|(.+)\|$", PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0], re.M)
    return [[cell.strip() for cell in row.split(" | ")] for row in rows[2:]]


def group(name):
    """Of the option table: short and long names of a group."""
    rows = re.findall(r"^\| (`-.+?`) \|", OPTIONS.split(f"## Options of {name}\n")[1].split("\n## ")[0], re.M)
    return {word for row in rows for word in re.findall(r"(?<![\w-])--?[\w-]+", row)}


def test_the_commands_of_the_page_measure(server, tmp_path):
    (tmp_path / "wirespeed").symlink_to(ROOT / "wirespeed")
    commands = commands_of(PAGE)
    assert len(commands) == 2
    for command in commands:
        done = run(short(shlex.split(command), server), tmp_path)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    assert re.search(r"^Requests/sec: +\d", done.stdout, re.M), done.stdout


def test_the_links_of_the_page_make_a_script_of_wrk2_run(server, tmp_path):
    """The row of the checkout, and a script that calls wrk2 by its name and reads what it prints."""
    (line,) = re.findall(r"`(mkdir as-wrk && [^`]+)`", PAGE)
    (tmp_path / "target").symlink_to(ROOT / "target")
    environment = {"PATH": f"{tmp_path}/as-wrk:{os.environ['PATH']}", "PWD": str(tmp_path)}
    assert run(["sh", "-c", line], tmp_path, **environment).returncode == 0
    script = f"wrk2 -t1 -c2 -d1s -R 200 --latency {server} | grep -c '^Requests/sec:\\|99.000%'"
    done = run(["sh", "-c", script], tmp_path, **environment)
    assert int(done.stdout) >= 2, f"{done.stdout}\n{done.stderr}"


def test_the_options_of_the_page_are_those_of_the_option_table():
    shown = {word for theirs, *_ in table("Options") for word in re.findall(r"(?<![\w-])--?[\w-]+", theirs)}
    short_names = {word for word in group("wrk") | group("wrk2") if not word.startswith("--")}
    assert short_names - {"-h"} <= shown, "each option of wrk and wrk2 is named"
    assert shown <= group("wrk") | group("wrk2"), "and none that does not exist"


#: A value that each option of the page takes, where it takes one.
VALUES = {"-c": "2", "-d": "1s", "-t": "1", "-s": "script.lua", "-H": "A: b", "-T": "2s", "-R": "200",
          "--timeout": "2s"}


def test_every_option_of_the_page_is_taken_together(server, tmp_path):
    (tmp_path / "script.lua").write_text("function response() end\n")
    shown = dict.fromkeys(word for theirs, *_ in table("Options") for word in re.findall(r"(?<![\w-])--?\w+", theirs))
    words = [word for name in shown if name != "-v" for word in (name, VALUES.get(name)) if word]
    done = run([GENERATOR, *words, "--json", "result.json", server], tmp_path)
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    assert (tmp_path / "result.json").exists()


@pytest.mark.parametrize("name", ["wrk", "wrk2"])
def test_the_differences_that_the_page_states_are_there(server, tmp_path, name):
    rows = {row[0]: row for row in table("Differences in the output")}
    (tmp_path / name).symlink_to(GENERATOR)
    words = [tmp_path / name, "-t1", "-c1", "-d1s", "-R", "200"]
    assert run([*words, "http://127.0.0.1:1/"], tmp_path).returncode == 1, "as under wrk and wrk2"
    text = run([*words, "--latency", server], tmp_path).stdout
    last = rows["last line of the spectrum"][2].strip("`")
    assert re.search(rf"\[?{re.escape(last.split(' = ')[0])} *= *{last.split(' = ')[1]}\b", text), text
    assert "-nan" not in text.split("Thread Stats")[1].split("Latency Distribution")[0]
