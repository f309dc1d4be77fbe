"""The share of a server's CPU time that was work, and when it is unknown."""

from types import SimpleNamespace

import pytest

from wirespeed.driver.bypass import Served
from wirespeed.runner import work


def found(told_s, used_s, loaded_s=1.0):
    """At 1,000 requests/s: bypass reported so much CPU time, the cgroup of so much."""
    server = SimpleNamespace(label="pg", instance=SimpleNamespace(role="server", cores=[0]))
    life = SimpleNamespace(running=[server])
    served = (Served(1, 0, 0), Served(1, 9, 0, polled_s=0.1, cpu_s=told_s))
    figures = {"load": SimpleNamespace(rps=1000.0)}
    usage = SimpleNamespace(process_cpu_s={"pg": used_s})
    return work.of_window(life, served, figures, usage, loaded_s)


def test_work_is_the_reported_cpu_time_without_empty_polls():
    assert found(0.5, 0.5).us_per_request == pytest.approx(400)


def test_processes_that_have_ended_make_the_work_unknown():
    """PostgreSQL forks one for each connection: its work was 1 % of what the server used."""
    assert found(0.005, 0.5) is None


def test_the_load_before_a_window_is_part_of_the_time_that_was_worked_in():
    """Slow answers make that load longer than planned; the readings lie before and after it."""
    work = found(1.25, 1.25, loaded_s=2.5)
    assert work.us_per_request == pytest.approx(0.46e6 / 1000)
    assert work.useful == pytest.approx(0.46)
