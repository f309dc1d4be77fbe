"""The section on CPU time: shares, functions and flame graphs from samples that are made up."""

import json
import re

import pytest
from report.make_run import KINDS, make_run

from wirespeed.analysis import profiles
from wirespeed.analysis.profiles import Profile
from wirespeed.analysis.summary import load
from wirespeed.report import page, profile

BASE = ((("app", "main", "parse"), 30), (("app", "main", "writev", "tcp_sendmsg_[k]"), 70))
FASTER = ((("app", "main", "parse"), 60), (("app", "main", "push_[l]"), 40))


@pytest.fixture
def run_dir(tmp_path):
    """A run in which the contender of the profiled cell needs half the CPU time."""
    run_dir = make_run(KINDS["quickstart"](), tmp_path)
    for path in run_dir.glob("trials/*/trial.json"):
        trial = json.loads(path.read_text())
        us = 5.0 if trial["axes"]["stack"] == "balanced" else 10.0
        trial["metrics"]["server.cpu_us_per_request"] = us
        path.write_text(json.dumps(trial))
    return run_dir


def keep(run_dir, *stacks):
    for cell, own in zip(profiles.profiled(load(run_dir)), stacks, strict=False):
        profiles.write(run_dir, Profile(cell.key, own))


def test_what_is_written_is_read_again(run_dir):
    keep(run_dir, BASE, FASTER)
    found = {one.cell: one for one in profiles.read(run_dir)}
    base, faster = profiles.profiled(load(run_dir))
    assert found[base.key].stacks == BASE and found[faster.key].stacks == FASTER
    assert found[base.key].by_kind == {"kernel": 0.7, "library": 0.0, "program": 0.3}


def test_the_profiled_cells_differ_in_the_stack_alone(run_dir):
    base, other = profiles.profiled(load(run_dir))
    assert (base.axes["stack"], other.axes["stack"]) == ("kernel", "balanced")
    assert {**base.axes, "stack": ""} == {**other.axes, "stack": ""}


def test_cpu_per_request_is_split_and_functions_are_compared(run_dir):
    keep(run_dir, BASE, FASTER)
    part = profile.of(load(run_dir))
    assert part.rows == [
        ("kernel", ["100", "10", "7", "0", "3"]),
        ("balanced", ["100", "5", "0", "2", "3"]),
    ]
    assert part.functions[0] == ("tcp_sendmsg", "kernel", ["7", "0", "−7"])
    assert part.functions[1] == ("push", "the stack's library", ["0", "2", "+2"])
    assert ("parse", "program", ["3", "3", "0"]) in part.functions


def test_a_flame_is_as_wide_as_its_cpu_time_and_coloured_by_the_difference(run_dir):
    keep(run_dir, BASE, FASTER)
    (_, first), (caption, second) = profile.of(load(run_dir)).flames
    width = {
        name: float(found)
        for drawn in (first, second)
        for name, found in re.findall(r"<title>(\w+): .*?width=\"([\d.]+)\"", drawn)
    }
    assert width["tcp_sendmsg"] == pytest.approx(0.7 * profile.WIDTH, abs=1)
    assert width["push"] == pytest.approx(0.2 * profile.WIDTH, abs=1)
    assert "Red functions" in caption
    assert re.search(r"<title>push: 2 µs \(\+2\)</title><rect class=\"library more3\"", second)
    assert re.search(r"<title>parse: 3 µs \(0\)</title><rect class=\"program same\"", second)
    assert re.search(r"<title>main: 5 µs \(−5\)</title><rect class=\"program less3\"", second)


def test_many_functions_leave_the_page_small_and_every_name_is_escaped(run_dir):
    many = tuple(
        (("app", *(f"<f{number}_{depth}>" for depth in range(40))), 1) for number in range(100)
    )
    keep(run_dir, many, many)
    text = page.html(load(run_dir))
    assert len(text.encode()) <= page.PAGE_BYTES_MAX
    assert "<f1_" not in text
    keep(run_dir, ((("app", "<main>"), 9),), ((("app", "<main>"), 9),))
    text = page.html(load(run_dir))
    assert "&lt;main&gt;" in text and "<main>:" not in text


def test_trials_without_cpu_time_share_nothing_out(run_dir):
    keep(run_dir, BASE, FASTER)
    for path in run_dir.glob("trials/*/trial.json"):
        trial = json.loads(path.read_text())
        trial["metrics"]["server.cpu_us_per_request"] = None
        path.write_text(json.dumps(trial))
    assert "No profile of kernel: its trials have no CPU time" in page.html(load(run_dir))


def test_a_profile_that_failed_says_why_and_a_run_without_has_no_section(run_dir):
    assert profile.of(load(run_dir)) is None
    assert 'id="profile"' not in page.html(load(run_dir))
    base, other = profiles.profiled(load(run_dir))
    profiles.write(run_dir, Profile(base.key, BASE))
    profiles.write(run_dir, Profile(other.key, problem="perf failed (exit code 255)"))
    text = page.html(load(run_dir))
    assert "No profile of balanced: perf failed (exit code 255)" in text
    assert "tcp_sendmsg" in text
