"""wirespeed-load: the command line around the recipe's words, and its JSON."""

import json
from pathlib import Path

import pytest

from wirespeed import units
from wirespeed.driver import load
from wirespeed.driver.base import LoadRun
from wirespeed.errors import ProcessError
from wirespeed.recipe.resolve import Instance
from wirespeed.topology import Seat

H = {"unit": "ns", "count": 3, "min": 1, "max": 9, "mean": 5.0, "stdev": 1.0,
     "quantiles": {"0.5": 5, "0.9999": None}, "hdr_v2": "abc"}  # fmt: skip
JSON = {
    "schema": "wirespeed-load/1",
    "plan": {"mode": "open", "connections": 10},
    "window": {"start_unix_ns": 1, "length_ns": 2},
    "totals": {"due": 100, "sent": 99, "completed": 98, "non_2xx": 1},
    "rps": 49.0,
    "bytes_per_second": 1.0,
    "errors": {"timeout": 2, "total": 3},
    "latency": {"service": H, "response": H, "connect": None, "lateness": None, "probe": {"x": 1}},
    "threads": [{"busy": 0.25}, {"busy": 0.75}],
    "little": {"n": 10, "x_rps": 49.0, "mean_ns": 5, "residual": 0.01},
    "warnings": [{"id": "late", "value": 1, "threshold": 0, "text": "it was late"}],
}


def instance(argv=(), cores=(1, 3)):
    seats = [Seat("here", core) for core in cores]
    return Instance("gen", 0, "load", "load", list(argv), seats, None, "", {}, {}, None, {}, {})


def run_in(folder):
    return LoadRun(Path(folder), 1.0, 0.25, 123.5)


def test_the_command_adds_what_the_lab_needs():
    command = load.command(
        Path("/root"), instance(["-c", "5", "-d", "1s", "http://x/"]), run_in("/t")
    )
    assert command.argv == [
        "/root/target/release/wirespeed-load", "--pin", "1,3", "-t", "2", "--warmup", "250ms",
        "--json", "/t/load-gen-0.json", "--start-at", "123.500000", "-c", "5", "-d", "1s", "http://x/",
    ]  # fmt: skip


def test_a_generator_without_a_duration_gets_the_plans_window():
    made = load.command(Path("/root"), instance(["http://x/"]), run_in("/t")).argv
    assert made[made.index("-d") + 1] == units.duration_text(run_in("/t").duration_s)


def test_options_of_the_recipe_are_not_added_twice():
    argv = ["-t", "4", "--pin", "0", "--warmup", "1s", "http://x/"]
    command = load.command(Path("/root"), instance(argv), run_in("/t"))
    assert command.argv.count("-t") == command.argv.count("--pin") == 1
    assert command.argv.count("--warmup") == 1


def test_figures_are_read_from_the_json(tmp_path):
    (tmp_path / "load-gen-0.json").write_text(json.dumps(JSON))
    found = load.read(instance(), run_in(tmp_path), "")
    assert (found.rps, found.completed, found.errors, found.timeouts) == (49.0, 98, 3, 2)
    assert (found.due, found.sent, found.closed_loop) == (100, 99, False)
    assert found.busiest_thread == 0.75
    assert set(found.latency) == {"service", "response"}
    assert found.warnings == ["it was late"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "without writing its figures: boom"),
        ("{", "not JSON"),
        ('{"schema": "other/9"}', "rebuild with ./wirespeed build load"),
        ('{"schema": "wirespeed-load/1"}', "its figures lack 'totals'"),
    ],
)
def test_figures_that_are_not_there_are_one_line(tmp_path, text, problem):
    if text is not None:
        (tmp_path / "load-gen-0.json").write_text(text)
    with pytest.raises(ProcessError, match=problem):
        load.read(instance(), run_in(tmp_path), "boom")
