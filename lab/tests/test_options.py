"""Options: what does not fit is refused in the same words, before anything is started."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from wirespeed.cli import knee
from wirespeed.cli.app import app
from wirespeed.cli.options import whole_number
from wirespeed.errors import InputError
from wirespeed.interrupts import Terminated


def commands(group):
    for command in group.commands.values():
        yield from commands(command) if hasattr(command, "commands") else [command]


def test_no_option_leaves_its_number_to_the_library():
    """Its messages are "Input should be a valid integer, unable to parse string as an integer"."""
    kinds = [
        (f"{command.name} {parameter.name}", parameter.type_descriptor)
        for command in commands(get_command(app))
        for parameter in command.params
    ]
    numbers = {name: kind for name, kind in kinds if kind.annotation in (int, float)}
    assert {"run repeat", "knee repeat", "init port", "runs keep"} <= numbers.keys()
    assert not {name for name, kind in numbers.items() if kind.parameter_info.parser is None}


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("many", "--repeat: 'many' is not a whole number (1 to 9)"),
        ("1.5", "--repeat: '1.5' is not a whole number (1 to 9)"),
        ("", "--repeat: '' is not a whole number (1 to 9)"),
        ("0", "--repeat: 0 is out of range (1 to 9)"),
        ("10", "--repeat: 10 is out of range (1 to 9)"),
    ],
)
def test_a_number_that_does_not_fit(value, said):
    with pytest.raises(InputError) as refused:
        whole_number("--repeat", 1, 9)(value)
    assert str(refused.value) == said


def test_a_number_without_a_highest_value():
    assert whole_number("--seed", 0)("12345678901") == 12345678901
    with pytest.raises(InputError, match="0 or more"):
        whole_number("--seed", 0)("-1")


def call(*words, **environment):
    """The command in a process of its own: only its `main` reads what the system gives."""
    return subprocess.run(
        [sys.executable, "-m", "wirespeed", *words], capture_output=True, check=False,
        env={**os.environ, **environment}, timeout=180,
    )  # fmt: skip


def test_what_is_not_utf8_is_refused_before_anything_is_written(tmp_path):
    """A note in Latin-1 was measured, and then no command could read the run."""
    strange = os.fsencode(tmp_path) + b"/caf\xe9"
    for words, environment in [
        ([b"run", b"quickstart", b"--note", b"caf\xe9"], {}),
        ([b"runs", b"--runs", strange], {}),
        ([b"runs"], {"WIRESPEED_RUNS": os.fsdecode(strange)}),
    ]:
        done = call(*words, **environment)
        assert (done.returncode, done.stderr.count(b"\n")) == (2, 1), done.stderr
        assert b"caf\\udce9" in done.stderr and b": not UTF-8 (" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("option", "value"),
    [("--budget", "5x"), ("--wait-for-quiet", "soon"), ("--for", "1"), ("--for", "0s")],
)
def test_a_time_that_is_none_is_named_with_its_option(option, value):
    words = ["run", "quickstart", "--until-decided", option, value]
    refused = CliRunner().invoke(app, words).exception
    assert isinstance(refused, InputError) and str(refused).startswith(option)


@pytest.mark.parametrize("columns", ["1", "0", "-3", "many", ""])
def test_any_width_of_a_terminal_will_do(columns, tmp_path):
    done = call("list", COLUMNS=columns, NO_COLOR="1", WIRESPEED_RUNS=str(tmp_path))
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("stop", "code"), [(KeyboardInterrupt(), 130), (Terminated(signal.SIGTERM), 143)]
)
def test_a_search_that_a_signal_ends_has_its_exit_code(stop, code, monkeypatch, capsys):
    def stopped(*_):
        raise stop

    monkeypatch.setattr(knee, "_measured", stopped)
    monkeypatch.setattr(knee, "_rate_of", lambda _: "rps")
    monkeypatch.setattr(knee.rates, "at_rates", lambda *_: None)
    origin = SimpleNamespace(text="", recipe=None)
    assert knee.knee(origin, knee.Search([], "", 3, False), Path(), True) == code
    printed = capsys.readouterr()
    assert (printed.out, printed.err.count("stopped")) == ("", 1), "the output is JSON or nothing"
