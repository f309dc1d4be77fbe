"""`wirespeed compare`: what it takes, and what it says of servers that do not answer alike."""

import pytest
from typer.testing import CliRunner

from wirespeed.cli import after, compare
from wirespeed.cli.app import app
from wirespeed.errors import InputError
from wirespeed.runner import tryout
from wirespeed.runner.plan import PlanOptions

TWO = ["compare", "--run", "true {port}", "--run", "true --port {port}"]
VALUES = {
    "--build": "make", "--ci": "out", "--connections": "50", "--duration": "2s",
    "--method": "duet", "--path": "/", "--port": "8000", "--rate": "5k", "--repeat": "10",
    "--server-cores": "2", "--threshold": "2%",
}  # fmt: skip


def refused(*words):
    done = CliRunner().invoke(app, words)
    assert isinstance(done.exception, InputError), done.output
    return str(done.exception)


@pytest.mark.parametrize("option", [f"--{name}" for name in after.OF_MEASUREMENT])
def test_options_of_a_measurement_are_refused_for_two_runs(option, tmp_path):
    """They were ignored, also where a value is the default one."""
    words = [option, VALUES[option]] if option in VALUES else [option]
    message = refused("compare", "a", "b", "--runs", str(tmp_path), *words)
    assert message == f"{option} belongs to compare --rev or --run"


@pytest.mark.parametrize("text", ["0%", "60%", "1", "one"])
def test_a_threshold_that_is_none_is_refused(text):
    assert refused(*TWO, "--threshold", text) == (
        f'--threshold: {text!r} is not a share from 0.1% to 50% (write "1%")'
    )


def test_a_build_of_commands_is_refused():
    assert refused(*TWO, "--build", "make").startswith("--build belongs to compare --rev")


def test_turns_at_a_fixed_rate_are_refused_where_they_were_asked_for(monkeypatch):
    assert refused(*TWO, "--rate", "5k", "--method", "duet").startswith("--method duet: an open")
    monkeypatch.setattr(compare, "measure", lambda *_: 0)
    assert CliRunner().invoke(app, [*TWO, "--rate", "5k"]).exit_code == 0


def test_force_needs_a_run_to_go_on_with():
    assert refused("run", "quickstart", "--force") == "--force: needs --resume RUN"


@pytest.mark.parametrize(("lengths", "listed"), [
    ((10_240, 0), "A with 10,240 bytes, B with 0 bytes"),
    ((10_240, 10_240, 5_000), "A with 10,240 bytes, B with 10,240 bytes, C with 5,000 bytes"),
    ((5, 0), "A with 5 bytes, B with 0 bytes"),
    ((10_240, 10_243), ""),  # a counter, a date
    ((0, 0), ""),
])  # fmt: skip
def test_servers_that_answer_with_bodies_of_different_lengths_are_named(
    monkeypatch, lengths, listed
):
    """A revision that breaks the body was a gain, and nothing said so."""
    answers, measured = iter(lengths), []
    monkeypatch.setattr(tryout, "ask", lambda *_: tryout.Answer(200, next(answers)))
    monkeypatch.setattr(
        compare.runs_of, "measure",
        lambda origin, options, *_, **__: measured.append(options) or compare.runs_of.Ended(1),
    )  # fmt: skip
    given = compare.CompareOptions(["true"] * len(lengths), "/", 8000, "1", "1s")
    compare.measure(given, None, PlanOptions(), "")
    (options,) = measured
    remark = f"The servers do not answer with the same: {listed}."
    assert options.remarks == ((remark,) if listed else ())
