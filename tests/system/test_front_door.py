"""The front door: help, bad input, builds, completion, and signals that reach the program."""

import re
import signal
import subprocess
import types
from pathlib import Path

import pytest
from frontdoor import ROOT, wait_until


def loaded():
    """The front door as a module of its own."""
    module = types.ModuleType("front_door")
    module.__file__ = str(ROOT / "wirespeed")
    exec(compile((ROOT / "wirespeed").read_text(), module.__file__, "exec"), module.__dict__)
    return module


COMMANDS = {name for group in loaded().COMMANDS.values() for name in group}


def test_help_names_every_command(wirespeed):
    text = wirespeed("--help").stdout
    for command in COMMANDS:
        assert re.search(rf"^  {command} +\w", text, re.M), command


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_explains_itself(wirespeed, command):
    done = wirespeed(command, "--help")
    assert re.search("usage", done.stdout, re.I)


@pytest.mark.parametrize(("words", "hint"), [
    (["build", "nonsense"], "there is no part 'nonsense'"),
    (["gateway", "--carrier", "jetty"], "netty or tomcat"),
    (["completion", "tcsh"], "bash, zsh, fish"),
    (["run", "no-such-recipe"], "no-such-recipe"),
    (["no-such-command"], "no command 'no-such-command'"),
    (["rum", "quickstart"], "no command 'rum'; did you mean 'run'?"),
    (["./my.toml"], "measure it with: "),
    (["load", "--no-such-option", "http://127.0.0.1/"], "no-such-option"),
    (["http-server", "--port", "0", "--payload", "16", "--transport", "carrier-pigeon"],
     "carrier-pigeon"),
])
def test_bad_input_is_one_clear_line_and_exit_code_2(wirespeed, words, hint):
    done = wirespeed(*words, expect=2)
    assert hint in done.stdout + done.stderr


def test_help_of_a_command_is_asked_for_in_two_ways(wirespeed):
    assert wirespeed("help", "build").stdout == wirespeed("build", "--help").stdout


def test_a_second_start_builds_nothing(wirespeed):
    wirespeed("build", "python", "load")
    assert wirespeed("build", "python", "load").stderr == ""


@pytest.fixture(scope="module")
def completions():
    """The bash script, made once: it asks every program for its options."""
    command = [ROOT / "wirespeed", "completion", "bash"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(("typed", "offered"), [
    ("wirespeed ", COMMANDS),
    ("wirespeed run qui", {"quickstart"}),
    ("wirespeed run --bud", {"--budget"}),
    ("wirespeed tune ", {"apply", "status", "restore"}),
    ("wirespeed baseline save --js", {"--json"}),
    ("wirespeed completion ", {"bash", "zsh", "fish"}),
    ("wirespeed build stu", {"stub-origin"}),
    ("wirespeed build --li", {"--list"}),
    ("wirespeed package --on", {"--only"}),
    ("wirespeed gateway --car", {"--carrier"}),
    ("wirespeed load --head", {"--header", "--headroom"}),
    ("wirespeed bypass stat --prom", {"--prometheus"}),
    ("bypass stat --prom", {"--prometheus"}),
])
def test_completion_offers_commands_recipes_and_options(completions, typed, offered):
    words = typed.split(" ")
    asked = f"COMP_WORDS=({' '.join(words)} ''); COMP_CWORD={len(words) - 1}; _wirespeed; " \
            'echo "${COMPREPLY[@]}"'
    done = subprocess.run(["bash", "-c", f"{completions}\n{asked}"], capture_output=True, text=True)
    assert set(done.stdout.split()) == offered, done.stderr


def test_a_server_started_through_the_front_door_gets_the_signal_itself(wirespeed, tmp_path):
    server = wirespeed.start("http-server", "--port", "0", "--payload", "16")
    try:
        line = server.stdout.readline()
        assert re.search(r":\d+", line), line
        server.send_signal(signal.SIGTERM)
        assert server.wait(30) == 0
    finally:
        server.kill()
        server.wait()


def test_the_python_environment_belongs_to_the_folder_that_it_was_made_in():
    """Its programs name their folder: in a moved or copied checkout it is made again."""
    door = loaded()
    here, built = door.PYTHON.fingerprint(), door.PARTS["load"].fingerprint()
    door.VENV = Path("/elsewhere/build/venv")
    assert door.PYTHON.fingerprint() != here
    assert door.PARTS["load"].fingerprint() == built


def test_the_tree_that_is_built_from_is_this_one():
    """A fresh clone must not pick up another checkout's build."""
    wait_until(lambda: (ROOT / "build").is_dir(), "the build folder", 1)
    python = ROOT / "build" / "venv" / "bin" / "python"
    found = subprocess.run([python, "-c", "import wirespeed; print(wirespeed.__file__)"],
                           capture_output=True, text=True, cwd="/").stdout
    assert found.startswith(str(ROOT))


def test_no_package_is_installed_for_who_asks_not_to(monkeypatch):
    door = loaded()
    monkeypatch.setenv("WIRESPEED_NO_INSTALL", "1")
    gone = door.Part("no-such-program", "a program", 1, package="no-such-package")
    with pytest.raises(door.BuildFailed, match="is missing; install it with: sudo apt-get install"):
        door.Builder([gone]).build()
