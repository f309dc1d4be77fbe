"""Output that is not read to its end: the measurement is finished and kept all the same."""

import io
import os
import subprocess
import sys

import pytest
from rich.console import Console

from wirespeed.cli.live import Display
from wirespeed.results.model import PlannedTrial, Trial
from wirespeed.runner.watcher import Progress

RUN = "import sys; from wirespeed.cli import main; main()"


def piped(checkout, *arguments, out=subprocess.PIPE, err=subprocess.PIPE):
    return subprocess.Popen(
        [sys.executable, "-c", RUN, *map(str, arguments)], cwd=checkout.root, text=True,
        env={**checkout.environment, "WIRESPEED_RUNS": str(checkout.runs)}, stdout=out, stderr=err,
    )  # fmt: skip


def test_a_run_whose_tables_are_not_read_ends_well_and_names_its_report(checkout):
    process = piped(checkout, "run", checkout.recipe(connections=[1, 2]), "--accept-noise")
    process.stdout.close()  # as `head` does
    err = process.stderr.read()
    assert process.wait() == 0, err
    assert checkout.run_json()["state"] == "done" and len(checkout.trials()) == 2
    assert "not all of this was read; the report: " in err.splitlines()[-1]
    assert (checkout.latest / "derived" / "report.html").exists()


def test_a_run_goes_on_when_its_progress_is_read_no_longer(checkout):
    process = piped(
        checkout, "run", checkout.recipe(connections=[1, 2]), "--accept-noise",
        err=subprocess.STDOUT,
    )  # fmt: skip
    process.stdout.readline()
    process.stdout.close()
    assert process.wait() == 0
    assert checkout.run_json()["state"] == "done" and len(checkout.trials()) == 2


def test_a_failed_check_keeps_its_exit_code_when_the_tables_are_not_read(checkout):
    process = piped(
        checkout, "run", checkout.recipe(connections=[1]), "--accept-noise",
        "--require", "rps > 1000000000",
    )  # fmt: skip
    process.stdout.close()
    process.stderr.read()
    assert process.wait() == 3


@pytest.mark.parametrize("command", [("runs",), ("list",), ("schema",), ("--help",)])
def test_a_closed_pipe_does_not_fail_a_command(checkout, command):
    process = piped(checkout, *command)
    process.stdout.close()
    err = process.stderr.read()
    assert (process.wait(), err) == (0, "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_behind_standard_output_is_one_line_and_exit_1(checkout):
    with open("/dev/full", "w") as full:
        process = piped(checkout, "schema", out=full)
        err = process.stderr.read()
    assert process.wait() == 1
    assert err == "wirespeed: standard output could not be written: No space left on device\n"


def test_a_terminal_that_knows_no_such_letters_gets_the_tables_all_the_same(checkout):
    checkout.environment["PYTHONIOENCODING"] = "ascii"
    recipe = checkout.recipe(connections=[1, 2])
    text = recipe.read_text(encoding="utf-8")
    recipe.write_text(text.replace("[[table]]", '[[table]]\ntitle = "×2 ≥ 1"'), encoding="utf-8")
    process = piped(checkout, "run", recipe, "--accept-noise")
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert "?2 ? 1" in out and "Report: " in out and "Traceback" not in err


def test_closed_standard_streams_do_not_stop_a_run(checkout):
    words = f"run {checkout.recipe(connections=[1])} --accept-noise"
    shell = f'exec "{sys.executable}" -c "{RUN}" {words} >&- 2>&-'
    environment = {**checkout.environment, "WIRESPEED_RUNS": str(checkout.runs)}
    assert subprocess.run(["sh", "-c", shell], cwd=checkout.root, env=environment).returncode == 0
    assert checkout.run_json()["state"] == "done"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("init my.toml", "init: --command is missing"),
        ("init my.toml --command 'sleep 1' --port 1", "sleep 1: ended with exit code 0"),
        ("query latest 'select 1'", "run 'latest': not found"),
    ],
)
def test_a_closed_standard_input_is_an_empty_one(checkout, words, problem):
    """`init` ended in a traceback: a closed standard input is not a terminal either."""
    shell = f'exec "{sys.executable}" -c "{RUN}" {words} <&-'
    environment = {**checkout.environment, "WIRESPEED_RUNS": str(checkout.runs)}
    done = subprocess.run(["sh", "-c", shell], cwd=checkout.root, env=environment, text=True,
                          capture_output=True)  # fmt: skip
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith(f"wirespeed: {problem}")


def test_a_terminal_without_moving_lines_gets_those_of_a_log(monkeypatch):
    """In Emacs' shell (TERM=dumb) a run of hours showed nothing until its end."""
    monkeypatch.setenv("TERM", "dumb")
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    with Display(console) as display:
        display.phase(PlannedTrial(1, 1, "c", "k"), "measuring", Progress(0, 1, 60.0))
        display.recorded(Trial("k", "c", 1, 1), Progress(1, 1, 0.0))
    assert console.file.getvalue().startswith("trial 1 of 1, 0 s left")
