"""`wirespeed init`: the recipe of a user's own server is tried, written and valid."""

import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from ports import free_port
from typer.testing import CliRunner

from wirespeed import template
from wirespeed.agent.children import is_alive
from wirespeed.cli.app import app
from wirespeed.cli.init import Answers, _asked
from wirespeed.errors import InputError, RunError
from wirespeed.recipe import read, sweep
from wirespeed.recipe.resolve import Place, Resolver
from wirespeed.runner import fit, tryout
from wirespeed.topology import one_host, roles_of

NO_MAIN_THREAD = Path(__file__).parents[1] / "fakes" / "no_main_thread.py"
SERVER = f"{sys.executable} -m http.server {{port}} --bind 127.0.0.1"


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file.txt").write_text("x" * 123)
    return tmp_path


def init(*words):
    return CliRunner().invoke(app, ["init", *words])


def test_the_server_is_asked_and_the_recipe_says_what_it_answered(here):
    port = str(free_port())
    done = init("mine.toml", "--command", SERVER, "--port", port, "--path", "/file.txt")
    assert done.exit_code == 0, done.output
    assert "/file.txt answers 200 with 123 bytes" in done.output
    recipe = read.read(here / "mine.toml")
    server = recipe.process[0]
    assert (server.ready.status, server.ready.length) == (200, 123)
    assert recipe.axes["stack"] == ["kernel", "kernel-again", "bypass"]
    with pytest.raises(ConnectionRefusedError):  # what was started is gone
        socket.create_connection(("127.0.0.1", int(port)))


def test_the_server_is_started_where_the_command_was_tried(here):
    command = ["--command", SERVER, "--no-try"]
    (here / "sub").mkdir()
    init("a.toml", *command)
    init("sub/b.toml", *command)
    assert read.read(here / "a.toml").process[0].cwd == "{{ recipe.dir }}"
    assert read.read(here / "sub" / "b.toml").process[0].cwd == str(here)


def test_a_program_that_lies_here_is_named_in_full(here):
    (here / "serve").write_text("#!/bin/sh\n")
    init("a.toml", "--command", "./serve {port}", "--no-try")
    assert read.read(here / "a.toml").process[0].argv == [str(here / "serve"), "{{ port }}"]


def test_a_server_of_a_folder_that_no_ordinary_users_path_has_is_found(here, monkeypatch):
    """Debian's nginx is in /usr/sbin, where runs look and doctor had found it; init had not."""
    program = here / "sbin" / "only-here"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setattr(tryout, "SEARCH_PATH", f"{tryout.SEARCH_PATH}:{program.parent}")
    done = init("a.toml", "--command", "only-here {port}", "--no-try")
    assert done.exit_code == 0, done.exception
    assert read.read(here / "a.toml").process[0].argv == ["only-here", "{{ port }}"]


def test_help_says_which_cores_a_server_gets_and_each_exit_code():
    """It said half of the machine's: one of four, as the lab keeps one."""
    shown = " ".join(init("--help").output.split())
    assert "Default: all that the machine has for servers." in shown
    assert len(roles_of(range(4), has_origin=False)["server"]) == 1
    codes = CliRunner().invoke(app, ["--help"]).output.partition("Exit codes: ")[2].split()
    assert [int(word) for word in codes if word.isdigit()] == [0, 1, 2, 3, 129, 130, 143]


def test_without_bypass_two_stacks_are_left(here):
    assert init("a.toml", "--command", SERVER, "--no-try", "--no-bypass").exit_code == 0
    assert read.read(here / "a.toml").axes["stack"] == ["kernel", "kernel-again"]


def test_a_server_that_somebody_else_started_does_not_answer_for_this_one(here):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = init("a.toml", "--command", SERVER, "--port", port)
    assert f"port {port} is in use" in str(done.exception)
    assert not (here / "a.toml").exists()


def test_a_missing_page_gives_no_recipe(here):
    done = init("a.toml", "--command", SERVER, "--port", str(free_port()), "--path", "/gone")
    assert "/gone responds with 404 (choose a --path that responds with 200)" in str(done.exception)
    assert not (here / "a.toml").exists()


def test_a_server_that_makes_itself_a_daemon_is_named_and_ended(here):
    port = str(free_port())
    daemon = f"sh -c '{SERVER} & exit 0'"
    done = init("a.toml", "--command", daemon, "--port", port)
    assert "left its process behind and ended; start it in the foreground" in str(done.exception)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(port)))


def test_a_server_whose_main_thread_has_ended_is_ended_too(here):
    """It was taken for a zombie and went on: the next server to be tried met a port in use."""
    port = str(free_port())
    command = f"{sys.executable} {NO_MAIN_THREAD} {{port}}"
    done = init("a.toml", "--command", command, "--port", port)
    assert done.exit_code == 0, done.output
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(port)))


def test_children_of_a_process_that_has_just_ended_are_looked_for(monkeypatch):
    """Its child becomes the lab's own after the list of processes was read."""
    lists = iter([{1, 7}, {1, 8}, {1}])
    monkeypatch.setattr(tryout, "descendants", lambda _: next(lists))
    monkeypatch.setattr(tryout, "is_alive", lambda pid: pid == 8)
    monkeypatch.setattr(tryout, "_is_reaped", lambda pid: pid == 7)
    assert tryout._started({1}) == {8}
    assert tryout._started({1}) == set()


def test_an_answer_after_the_command_has_ended_is_that_of_a_process_it_left(monkeypatch):
    """Where the daemon listened before the command's end was noticed, it was a good server."""
    looks = iter([None, 0])
    process = SimpleNamespace(poll=lambda: next(looks), returncode=0)
    monkeypatch.setattr(tryout, "_request", lambda *_: tryout.Answer(200, 5))
    with pytest.raises(tryout._Silent, match="ended with exit code 0"):
        tryout._answer(process, tryout.descendants(os.getpid()), 1, "/")


def test_a_server_that_this_user_may_not_end_is_named(monkeypatch):
    """`sudo ./server`: the user read "operation not permitted", and the server went on unnamed."""
    kill, refused = os.kill, []

    def not_permitted(pid, sign):
        refused.append(pid)
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "kill", not_permitted)
    monkeypatch.setattr(tryout, "TERM_S", 0.1)
    monkeypatch.setattr(tryout, "KILL_S", 0.1)
    try:
        with pytest.raises(RunError) as ended:
            tryout.ask(shlex.split(SERVER), free_port(), "/")
        assert f"process {refused[0]} goes on, and this user cannot end it" in str(ended.value)
        assert is_alive(refused[0])
    finally:
        kill(refused[0], signal.SIGKILL)
        os.waitpid(refused[0], 0)


def test_sudo_is_refused_before_it_starts_anything(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(InputError, match="sudo starts a program that this user could not end"):
        tryout.ask(["/usr/bin/sudo", "./server"], free_port(), "/")


def test_colours_of_a_server_that_ends_are_not_in_the_message():
    fails = r"print('\x1b[31mno such file\x1b[0m\n\x1b[0m')"
    with pytest.raises(InputError) as refused:
        tryout.ask([sys.executable, "-c", fails], free_port(), "/")
    assert str(refused.value).endswith("; its last line: no such file")


def test_braces_and_percents_of_the_user_are_the_users(here):
    (here / "a%20b").write_text("12345")
    code = "import sys; assert {1} == {1}; print({})"
    words = ["a.toml", "--command", f"python3 -c '{code}' {{port}}", "--path", "/a%20b", "--no-try"]
    assert init(*words).exit_code == 0
    recipe = read.read(here / "a.toml")
    server, load = recipe.process
    assert template.arguments_of(server.argv, {"port": 8000})[1:] == ["-c", code, "8000"]
    assert load.argv[-1].endswith("/a%20b")


def test_a_port_that_is_typed_in_is_checked_like_one_that_is_given(monkeypatch):
    """70000 was taken: the server "did not answer", or a recipe was written that is refused."""
    typed = iter(["app", 70000, "/", "1"])
    terminal = SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("wirespeed.cli.init.sys", terminal)
    monkeypatch.setattr("wirespeed.cli.init.typer.prompt", lambda *_, **__: next(typed))
    with pytest.raises(InputError, match="port 70000 is out of range"):
        _asked(Answers("", 8000, "/", "1", True, True, False))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["a.toml"], "init: --command is missing"),
        (["a.txt", "--command", "true"], "as in my-server.toml"),
        (["a.toml", "--command", "no-such-program-x"], "program 'no-such-program-x' not found"),
        (["a.toml", "--command", "sh -c 'echo broken; exit 3'", "--port", "FREE"], "exit code 3"),
        (["a.toml", "--command", "sh 'unclosed"], "No closing quotation"),
        (["a.toml", "--command", "true", "--connections", "many", "--no-try"], "'many'"),
        (["a.toml", "--command", "true", "--connections", "0", "--no-try"], "'0'"),
        (["file.toml", "--command", "true"], "file.toml: already exists"),
        (["my.server.toml", "--command", "true"], "letters, digits, - and _"),
        (["gone/a.toml", "--command", "true"], "folder gone does not exist"),
        (["a.toml", "--command", "true", "--path", "file.txt"], "does not start with /"),
        (["a.toml", "--command", "true", "--path", "/a b", "--no-try"], "write a space as %20"),
        (["a.toml", "--command", "true", "--path", "/ä", "--no-try"], "a URL must encode"),
        (
            ["a.toml", "--command", "true", "--connections", "1,1", "--no-try"],
            "has the same number twice",
        ),
        (["a.toml", "--command", "PORT={port} node x.js"], "write env PORT={port} node x.js"),
        (["a.toml", "--command", "cd app && true"], "'&&' needs a shell"),
    ],
)
def test_a_mistake_is_one_line_and_writes_nothing(here, words, said):
    (here / "file.toml").write_text("kept")
    done = init(*(str(free_port()) if word == "FREE" else word for word in words))
    assert done.exit_code == 1 and said in str(done.exception)
    assert "\n" not in str(done.exception)
    assert {path.name for path in Path().iterdir()} == {"file.txt", "file.toml"}


@pytest.mark.parametrize("cores", [1, 2, 4, 8, 128])
@pytest.mark.parametrize("wanted", [None, 1])
def test_a_draft_uses_the_cores_of_any_machine(here, monkeypatch, cores, wanted):
    """The server had one core and the generator one thread on 128 cores."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    words = ["--server-cores", "1"] if wanted else []
    assert init("a.toml", "--command", SERVER, "--no-try", *words).exit_code == 0
    place = Place(Path("/kit"), here / "a.toml", one_host(roles_of(range(cores), False)))
    recipe = read.read(here / "a.toml")
    (cell,) = [
        one for one in sweep.cells(recipe) if one.axes == {"stack": "kernel", "connections": 50}
    ]
    fitted = fit.fit(Resolver(recipe, cell, place), "strict")
    assert not fitted.problem and fitted.shared == (cores == 1)
    server, load = len(fitted.seats["server-0"]), len(fitted.seats["load-0"])
    assert server == (1 if wanted else max(1, (cores - (cores >= 4)) // 2))
    assert load == max(1, cores - (cores >= 4) - max(1, (cores - (cores >= 4)) // 2))
    argv = Resolver(recipe, cell, place).instances(fitted.seats)[-1].argv
    assert argv[argv.index("-t") + 1] == str(min(50, load))


def test_a_machine_that_cannot_give_or_decide_something_says_so(here, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    done = init("a.toml", "--command", SERVER, "--no-try", "--server-cores", "4")
    assert "of this machine's 8 cores servers get 3 at most" in f"{done.exception} {done.output}"
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    done = init("a.toml", "--command", SERVER, "--no-try")
    assert done.exit_code == 0 and "only CPU per request" in done.output


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_ends_the_server_that_is_tried(here, number, code):
    """A job that was cancelled left it behind, in a session of its own."""
    (here / "silent.sh").write_text("#!/bin/sh\necho $$ > pid.new && mv pid.new pid\nsleep 600\n")
    command = "sh silent.sh {port}"
    words = ["init", "a.toml", "--command", command, "--port", str(free_port())]
    process = subprocess.Popen(
        [sys.executable, "-m", "wirespeed", *words], stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
    )  # fmt: skip
    deadline = time.monotonic() + 180
    while not (here / "pid").exists() and time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    process.send_signal(number)
    _, err = process.communicate(timeout=180)
    assert (process.returncode, err) == (code, "wirespeed: stopped\n")
    assert not is_alive(int((here / "pid").read_text()))
    assert not (here / "a.toml").exists()


def test_a_signal_while_the_tried_server_is_ended_leaves_it_not_running(monkeypatch):
    """A server that ignores TERM went on, since the signal came before its KILL."""
    told, send = [], tryout.send_signal

    def sent(pid, sign):
        send(pid, sign)
        told.append((pid, sign))
        if len(told) == 1:
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(tryout, "send_signal", sent)
    monkeypatch.setattr(tryout, "TERM_S", 0.1)
    stubborn = ["sh", "-c", f"trap '' TERM; exec {SERVER}"]
    try:
        with pytest.raises(RunError, match="stopped") as stop:
            tryout.ask(stubborn, free_port(), "/")
        assert stop.value.exit_code == 143
        assert not is_alive(told[0][0])
    finally:
        send(told[0][0], signal.SIGKILL)
