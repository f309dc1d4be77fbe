"""A server that should be accelerated must have bypassed the kernel."""

import pytest

from wirespeed.driver import bypass
from wirespeed.driver.bypass import Served
from wirespeed.errors import ProcessError


def stat(*rows):
    processes = [
        {"pid": pid, "counters": {"accepts_shm": shm, "accepts_kernel": kernel}}
        for pid, shm, kernel in rows
    ]
    return {"schema": "bypass-stat/1", "processes": processes}


def test_only_our_processes_count():
    found = bypass.counted(stat((1, 10, 2), (2, 20, 0), (3, 99, 99)), 0.0, {1, 2})
    assert (found.processes, found.bypassed, found.kernel) == (2, 30, 2)


def test_connections_with_other_hosts_count_as_bypassed():
    counters = {"accepts_shm": 1, "accepts_packets": 6, "accepts_kernel": 0}
    data = {"schema": "bypass-stat/1", "processes": [{"pid": 1, "counters": counters}]}
    assert bypass.counted(data, 0.0, {1}).bypassed == 7


def test_work_is_cpu_time_without_the_empty_looks():
    """A server that polls fills its core whatever it does; bypass counts its empty looks."""
    before = Served(1, 0, 0, polled_s=3.0, cpu_s=10.0)
    after = Served(1, 9, 0, polled_s=3.7, cpu_s=11.0)
    assert after.since(before).work_s == pytest.approx(0.3)
    ours = {"schema": "bypass-stat/1", "processes": [
        {"pid": 7, "counters": {"accepts_shm": 1, "accepts_kernel": 0, "spin_ns": 5e8}},
    ]}  # fmt: skip
    found = bypass.counted(ours, 1.5, {7})
    assert (found.polled_s, found.cpu_s) == (0.5, 1.5)


@pytest.mark.parametrize(
    ("before", "after", "segments", "problem"),
    [
        (Served(1, 5, 1), Served(1, 105, 1), 2.0, ""),
        (Served(1, 5, 1), Served(1, 5, 101), 2.0, "100 of 100 connections used the kernel"),
        (Served(1, 5, 1), Served(1, 95, 11), 0.0, "10 of 100 connections used the kernel"),
        (Served(0, 0, 0), Served(0, 0, 0), 0.0, "does not list it"),
        # A forked worker is not counted: the kernel's segments show it.
        (Served(1, 0, 0), Served(1, 0, 0), 0.01, ""),
        (Served(1, 0, 0), Served(1, 0, 0), 2.0, "2.0 TCP segments a request"),
        (Served(1, 0, 0), Served(1, 0, 0), None, "? TCP segments a request"),
    ],
)
def test_a_stack_that_fell_back_is_found(before, after, segments, problem):
    found = after.since(before).problem(segments)
    assert problem in found if problem else not found


def test_another_schema_is_refused_with_the_remedy():
    with pytest.raises(ProcessError, match="wirespeed build bypass"):
        bypass.counted({"schema": "bypass-stat/2"}, 0.0, {1})


def test_output_that_is_not_json_is_one_line():
    with pytest.raises(ProcessError, match="printed no JSON"):
        bypass.served("bypass: not found", 0.0, {1})
