"""The front door: help, bad input, builds, completion, and signals that reach the program."""

import contextlib
import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import types
from pathlib import Path

import pytest
from frontdoor import PATIENCE_S, ROOT, wait_until


def loaded():
    """The front door as a module of its own."""
    module = types.ModuleType("front_door")
    module.__file__ = str(ROOT / "wirespeed")
    exec(compile((ROOT / "wirespeed").read_text(), module.__file__, "exec"), module.__dict__)
    return module


COMMANDS = {name for group in loaded().COMMANDS.values() for name in group}


def test_help_describes_every_command(wirespeed):
    text = wirespeed("help").stdout
    for command in COMMANDS:
        assert re.search(rf"^  {command} +\w", text, re.M), command


def test_the_first_help_describes_the_commands_to_begin_with_and_names_the_others(wirespeed):
    """It had 28 commands in five groups, before a newcomer had run anything."""
    text = wirespeed("--help").stdout
    described = re.findall(r"^  ([\w-]+) +\w", text, re.M)
    assert described == ["run", "init", "compare", "report", "doctor", "load", "bypass", "gateway"]
    assert COMMANDS - set(described) == set(re.findall(r"[a-z-]+", re.search(r"More: (.*?)\s\(", text, re.S)[1]))
    assert len(text.splitlines()) <= 20


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_explains_itself(wirespeed, command):
    done = wirespeed(command, "--help")
    assert re.search("usage", done.stdout, re.I)


@pytest.mark.parametrize(("words", "hint"), [
    (["build", "nonsense"], "unknown part 'nonsense'"),
    (["gateway", "--carrier", "jetty"], "netty or tomcat"),
    (["completion", "tcsh"], "bash, zsh, fish"),
    (["run", "no-such-recipe"], "no-such-recipe"),
    (["no-such-command"], "unknown command 'no-such-command'"),
    (["rum", "quickstart"], "unknown command 'rum' (did you mean 'run'?)"),
    (["./my.toml"], "measure it with: "),
    (["qickstart"], "did you mean the recipe 'quickstart': "),
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
        assert server.wait(PATIENCE_S) == 0
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


def test_an_environment_whose_interpreter_was_replaced_is_made_again(tmp_path):
    """After an upgrade of the system's Python every command was a traceback, for ever."""
    door = loaded()
    environment, programs = tmp_path / "venv", tmp_path / "usr"
    (environment / "bin").mkdir(parents=True)
    (environment / "lib" / "python3.11" / "site-packages").mkdir(parents=True)
    programs.mkdir()
    for version in ("3.11", "3.13"):
        (programs / f"python{version}").touch()
    (programs / "python3").symlink_to("python3.11")
    (environment / "bin" / "python").symlink_to(programs / "python3")
    assert door.has_interpreter(environment)
    door.VENV = environment
    door.PYTHON.product = environment / "bin" / "wirespeed"
    door.PYTHON.product.touch()
    door.BUILD = tmp_path
    door.PYTHON.sign(door.PYTHON.fingerprint(), "content")
    assert door.PYTHON.is_ready()
    (programs / "python3").unlink()
    (programs / "python3").symlink_to("python3.13")
    assert not door.PYTHON.is_ready(), "it looks for its packages in lib/python3.13"
    (programs / "python3").unlink()
    (programs / "python3").symlink_to("python3.11")
    (programs / "python3.11").unlink()
    assert not door.PYTHON.is_ready(), "it is gone"


@pytest.mark.parametrize(("number", "is_owner", "way"), [
    (errno.EROFS, True, r" \(mount it writable, or clone the checkout elsewhere\)"),
    (errno.EROFS, False, r" \(mount it writable, or clone the checkout elsewhere\)"),
    (errno.EACCES, True, ""),  # of a program on a mount with noexec, for example
    (errno.EACCES, False, r" \(build as the owner of the checkout: .* build\)"),
])
def test_a_file_that_cannot_be_used_has_advice_that_helps(tmp_path, monkeypatch, number, is_owner, way):
    door = loaded()
    door.ROOT = tmp_path
    owner = tmp_path.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner if is_owner else owner + 1)
    said = door.explained(OSError(number, os.strerror(number), str(tmp_path / "build")))
    assert re.fullmatch(rf"{tmp_path}/build: {os.strerror(number).lower()}{way}", said), said


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
def test_a_checkout_of_another_user_is_one_line(wirespeed):
    folder = Path(tempfile.mkdtemp(dir="/tmp"))  # pytest's own folders are for its user only
    try:
        folder.chmod(0o755)
        shutil.copy(ROOT / "wirespeed", folder)
        done = subprocess.run([folder / "wirespeed", "build", "load"], capture_output=True, text=True, user=65534,
                              group=65534, extra_groups=[], cwd="/")
        assert done.returncode == 1
        (line,) = done.stderr.splitlines()
        assert re.fullmatch(r"wirespeed: \S+/build: permission denied \(build as the owner .* build\)", line)
        (folder / "build").mkdir()
        done = subprocess.run([folder / "wirespeed", "build", "load"], capture_output=True, text=True, user=65534,
                              group=65534, extra_groups=[], cwd="/")
        assert done.returncode == 1 and done.stderr.startswith(f"wirespeed: {folder}/build/lock: permission denied (")
        assert done.stderr.count("\n") == 1
    finally:
        shutil.rmtree(folder)


def test_the_version_is_shown_where_there_is_no_git(monkeypatch, capsys, tmp_path):
    """In a container without git it was a traceback."""
    monkeypatch.setenv("PATH", str(tmp_path))
    loaded().show_version()
    assert re.fullmatch(r"wirespeed \d+\.\d+\.\S+\n", capsys.readouterr().out)


def test_the_tree_that_is_built_from_is_this_one():
    """A fresh clone must not pick up another checkout's build."""
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


@pytest.mark.parametrize(("user", "said"), [
    ("kim", r"bypass needs cargo, which is not on sudo's path \(as kim try: .* build bypass\); else get it with: "),
    (None, "bypass needs cargo, which is not installed; get it with: "),
])
def test_a_toolchain_that_sudo_does_not_find_is_not_said_to_be_missing(monkeypatch, user, said):
    """rustup's is in the user's own folder: `sudo ./wirespeed bypass …` of a page said to install Rust."""
    door = loaded()
    if user:
        monkeypatch.setenv("SUDO_USER", user)
    else:
        monkeypatch.delenv("SUDO_USER", raising=False)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    door._program = lambda _: None
    with pytest.raises(door.BuildFailed, match=said):
        door.Builder([])._run(door.PARTS["bypass"], door.PARTS["bypass"].command)


def test_missing_parts_are_built_in_parallel_each_with_its_time(capsys):
    door = loaded()
    gone = Path("/nowhere/gone")
    parts = [door.Part("one", "1", 60, product=gone, command=["cargo"]),
             door.Part("two", "2", 30, product=gone, command=["cargo"]),
             door.Part("three", "3", 40, product=gone, command=["mvn"]),
             door.Part("sh", "a shell", 500, package="dash")]
    door.list_parts(parts, as_json=True)
    reported = json.loads(capsys.readouterr().out)
    assert reported["seconds"] == 90
    assert [part["state"] for part in reported["parts"]] == ["missing"] * 3 + ["ready"]


def test_sources_that_are_as_they_were_need_no_build_whatever_their_times(tmp_path):
    """Looking at another branch and coming back gave each file a new time, and built all again."""
    door = loaded()
    door.ROOT, door.INSTALLED = tmp_path, tmp_path / "installed"
    source, product = tmp_path / "source.c", tmp_path / "product"
    source.write_text("int a;")
    product.touch()

    class Thing(door.Part):
        stamp = tmp_path / "stamps" / "thing"

    part = Thing("thing", "a thing", 1, inputs=["source.c"], product=product, command=["cc"])
    assert not part.is_ready()
    part.sign(part.fingerprint(), part.fingerprint(by_content=True))
    assert part.is_ready()
    os.utime(source, (1, 1))
    before = part.stamp.read_text()
    assert part.is_ready() and part.stamp.read_text() != before, "and is quick again from then on"
    source.write_text("int b;")
    assert not part.is_ready()
    part.stamp.write_text("0123456789abcdef")  # as an earlier build signed
    assert not part.is_ready()


def test_an_installed_lab_runs_on_a_python_that_its_package_is_for(tmp_path):
    door, started = loaded(), []
    door.INSTALLED = tmp_path / "INSTALLED"
    door.become = lambda argv, **_: started.append(argv[0])

    def run(*versions):
        door.INSTALLED.write_text(json.dumps({"pythons": versions}))
        door.installed_lab(["list"])
        return started[-1]

    own = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert run("3.1", own) == sys.executable
    door._program = {"python3.2": "/usr/bin/python3.2"}.get
    assert run("3.1", "3.2") == "/usr/bin/python3.2"
    with pytest.raises(door.BuildFailed, match=f"needs Python 3.1 or 3.3, and this is {own}"):
        run("3.1", "3.3")


def test_a_part_whose_stamp_is_just_being_taken_away_is_not_ready(tmp_path):
    """Another build removes it between a look whether it is there and the reading."""
    door = loaded()
    gone = tmp_path / "stamp"

    class Taken(door.Part):
        stamp = types.SimpleNamespace(exists=lambda: True, read_text=gone.read_text)

    door.INSTALLED = tmp_path / "installed"
    assert not Taken("thing", "a thing", 1, product=tmp_path, command=["cargo"]).is_ready()


STOPPED = """
import pathlib, signal, sys, types
signal.signal(signal.SIGINT, signal.default_int_handler)  # nohup and background jobs ignore some
for sign in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(sign, signal.SIG_DFL)
folder = pathlib.Path({folder!r})
door = types.ModuleType("front_door")
door.__file__ = {door!r}
exec(compile(pathlib.Path(door.__file__).read_text(), door.__file__, "exec"), door.__dict__)
door.ROOT, door.BUILD = folder, folder / "build"
door.os.geteuid = lambda: 0
door._no_service_starts.POLICY = folder / "policy-rc.d"
made = door.Part("thing", "a thing", 1, ("source",), folder / "product", ["cargo", "build"])
installed = door.Part("no-such-program", "a program", 1, package="no-such-package")
try:
    door.Builder([{part}]).build()
except KeyboardInterrupt as stop:
    sys.exit(40 if made.is_ready() else 41)
"""


@pytest.fixture
def stopped(tmp_path):
    """Builds a part with programs that take for ever, stops that, and returns the exit code."""
    for name in ("cargo", "apt-get"):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/begun.new; "
                           f"mv {tmp_path}/begun.new {tmp_path}/begun\nexec sleep 500\n")
        program.chmod(0o755)
    for name in ("source", "product"):
        (tmp_path / name).write_text("earlier")

    def run(part, sign):
        script = STOPPED.format(folder=str(tmp_path), door=str(ROOT / "wirespeed"), part=part)
        environment = {**os.environ, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
        environment.pop("WIRESPEED_NO_INSTALL", None)
        process = subprocess.Popen([sys.executable, "-c", script], env=environment)
        try:
            wait_until((tmp_path / "begun").exists, "the build to begin")
            process.send_signal(sign)
            return process.wait(PATIENCE_S)
        finally:
            process.kill()
            process.wait()
            with contextlib.suppress(ProcessLookupError):  # only SIGKILL leaves it
                os.kill(int((tmp_path / "begun").read_text()), signal.SIGKILL)

    return run


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_build_that_is_stopped_leaves_nothing_that_looks_fresh(stopped, sign):
    """The program of an earlier build was taken for the new one, and measured."""
    assert stopped("made", sign) == 41


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_installation_that_is_stopped_lets_services_start_again(stopped, tmp_path, sign):
    """Without the line that Debian asks, no service of any package was started ever after."""
    assert stopped("installed", sign) == 41
    assert not (tmp_path / "policy-rc.d").exists()


def test_leftovers_of_a_killed_installation_are_removed_and_no_others(stopped, tmp_path):
    policy = tmp_path / "policy-rc.d"
    stopped("installed", signal.SIGKILL)
    assert policy.exists()
    door = loaded()
    door._no_service_starts.POLICY = policy
    door._no_service_starts.tidy()
    assert not policy.exists()
    policy.write_text("#!/bin/sh\nexit 101\n")  # as images of Docker have it
    door._no_service_starts.tidy()
    assert policy.exists()
