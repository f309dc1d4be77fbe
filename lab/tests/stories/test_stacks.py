"""A stack is used where a recipe asks for it, and a trial that did not use it does not count."""

import json
import os
import sys
from pathlib import Path

import pytest

FAKE = Path(__file__).parents[1] / "fakes" / "stack.py"
STACKS = """
[stacks.kernel]
[stacks.fast]
provider = "{provider}"
profile = "fast"
"""


def put(program):
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(f"#!{sys.executable}\n{FAKE.read_text()}")
    program.chmod(0o755)


@pytest.fixture
def recipe(checkout):
    """A recipe of two stacks, with `bypass` built in this checkout."""
    put(checkout.root / "target" / "release" / "bypass")
    (checkout.root / "target" / "release" / "libbypass_preload.so").touch()
    (checkout.root / "profiles").mkdir()
    (checkout.root / "profiles" / "fast.opf").touch()

    def made(provider="auto"):
        path = checkout.recipe(connections=[1], duration="300ms")
        text = path.read_text().replace(
            "axes = {", 'axes = { stack = ["kernel", "fast"],', 1
        ) + STACKS.format(provider=provider)
        server = 'role = "server"'
        path.write_text(text.replace(server, f'{server}\nstack = "{{{{ stack }}}}"', 1))
        return path

    return made


@pytest.fixture
def onload(checkout, tmp_path):
    """An `onload` in the path; requests/s so high that the kernel seems to carry none of them."""
    put(tmp_path / "bin" / "onload")
    checkout.environment["PATH"] = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    checkout.environment["WIRESPEED_FAKE_RPS"] = "1e9"


def server_of(checkout, trial):
    """How the server of the trial was started."""
    return next(process for process in trial["processes"] if process["role"] == "server")["argv"]


def by_stack(checkout):
    return {trial["axes"]["stack"]: trial for trial in checkout.trials()}


def test_an_accelerated_trial_counts_and_the_kernel_is_started_bare(checkout, recipe):
    code, _, err = checkout.call("run", recipe())
    assert code == 0, err
    found = by_stack(checkout)
    start = server_of(checkout, found["fast"])
    assert start[0].endswith("/bypass")
    assert start[1:4] == ["run", "--profile=fast", "--"]
    assert server_of(checkout, found["kernel"])[0] == sys.executable
    assert [trial["valid"] for trial in found.values()] == [True, True]


def test_a_trial_that_fell_back_to_the_kernel_is_invalid_with_the_reason(checkout, recipe):
    checkout.environment["WIRESPEED_FAKE_WAY"] = "kernel"
    code, _, err = checkout.call("run", recipe())
    assert code == 1
    found = by_stack(checkout)
    assert found["kernel"]["valid"]
    assert not found["fast"]["valid"]
    assert found["fast"]["reasons"] == ["1 of 1 connections used the kernel"]
    assert "connections used the kernel" in err
    page = (checkout.latest / "derived" / "report.html").read_text()
    assert "connections used the kernel" in page


def test_a_generator_that_polls_shows_its_headroom_without_the_server_once(checkout, recipe):
    path = recipe()
    text = path.read_text().replace("connections = [1]", "connections = [1, 2]")
    text = text.replace('role = "load"', 'role = "load"\nstack = "{{ stack }}"').replace(
        "repeat = 1", "repeat = 2"
    )
    path.write_text(text)
    process = checkout.start("run", path)
    _, err = process.communicate(timeout=180)
    assert process.returncode == 0, err
    found = {
        (*trial["axes"].values(), trial["round"]): trial["metrics"].get("load.headroom")
        for trial in checkout.trials()
    }
    assert len(found) == 8
    told = {place for place, headroom in found.items() if headroom}
    assert told == {("fast", 2, 1), ("fast", 2, 2)}, "one request at a time has no limit"
    sinks = checkout.root / "target" / "release" / "wirespeed-load.sinks"
    assert sinks.read_text() == "x", "once in a run"
    assert not (checkout.latest / "servers" / "headroom").exists()
    assert checkout.nothing_left(process.pid)


def test_the_same_recipe_uses_onload_where_it_is_installed(checkout, recipe, onload):
    code, _, err = checkout.call("run", recipe())
    assert code == 0, err
    found = by_stack(checkout)
    assert server_of(checkout, found["fast"])[:2] == ["onload", "--profile=fast"]
    assert found["fast"]["valid"]


def test_an_onload_that_left_the_traffic_to_the_kernel_is_found_out(checkout, recipe, onload):
    del checkout.environment["WIRESPEED_FAKE_RPS"]
    assert checkout.call("run", recipe())[0] == 1
    assert (
        "TCP segments a request, so it was not bypassed" in by_stack(checkout)["fast"]["reasons"][0]
    )


def test_a_recipe_that_wants_bypass_uses_it_despite_an_installed_onload(checkout, recipe, onload):
    assert checkout.call("run", recipe("bypass"))[0] == 0
    assert server_of(checkout, by_stack(checkout)["fast"])[0].endswith("/bypass")


def test_a_recipe_that_wants_onload_says_that_it_is_not_there(checkout, recipe):
    code, _, err = checkout.call("run", recipe("onload"))
    assert code == 0, err
    lines = (checkout.latest / "plan.jsonl").read_text().splitlines()
    states = {line["axes"]["stack"]: line for line in map(json.loads, lines)}
    assert states["fast"]["state"] == "not-runnable"
    assert states["fast"]["reason"] == "not runnable here: onload is not installed"
