"""`wirespeed init`: the recipe of a user's own server is tried, written and valid."""

import socket
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from wirespeed.cli.app import app
from wirespeed.recipe import read

SERVER = f"{sys.executable} -m http.server {{port}} --bind 127.0.0.1"


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file.txt").write_text("x" * 123)
    return tmp_path


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return str(listener.getsockname()[1])


def init(*words):
    return CliRunner().invoke(app, ["init", *words])


def test_the_server_is_asked_and_the_recipe_says_what_it_answered(here):
    port = free_port()
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
    assert read.read(here / "a.toml").process[0].cwd == "{recipe.dir}"
    assert read.read(here / "sub" / "b.toml").process[0].cwd == str(here)


def test_a_program_that_lies_here_is_named_in_full(here):
    (here / "serve").write_text("#!/bin/sh\n")
    init("a.toml", "--command", "./serve {port}", "--no-try")
    assert read.read(here / "a.toml").process[0].argv == [str(here / "serve"), "{port}"]


def test_without_bypass_two_stacks_are_left(here):
    assert init("a.toml", "--command", SERVER, "--no-try", "--no-bypass").exit_code == 0
    assert read.read(here / "a.toml").axes["stack"] == ["kernel", "kernel-again"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["a.toml"], "init wants --command"),
        (["a.txt", "--command", "true"], "named like my-server.toml"),
        (["a.toml", "--command", "no-such-program-x"], "no program 'no-such-program-x'"),
        (["a.toml", "--command", "sh -c 'echo broken; exit 3'"], "exit code 3"),
        (["a.toml", "--command", "sh 'unclosed"], "No closing quotation"),
        (["a.toml", "--command", "true", "--connections", "many", "--no-try"], "'many'"),
        (["a.toml", "--command", "true", "--connections", "0", "--no-try"], "'0'"),
        (["file.toml", "--command", "true"], "file.toml exists"),
    ],
)
def test_a_mistake_is_one_line_and_writes_nothing(here, words, said):
    (here / "file.toml").write_text("kept")
    done = init(*words)
    assert done.exit_code == 1 and said in str(done.exception)
    assert "\n" not in str(done.exception)
    assert {path.name for path in Path().iterdir()} == {"file.txt", "file.toml"}
