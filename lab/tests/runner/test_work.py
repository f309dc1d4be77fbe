"""The share of a server's CPU time that was work, and when it is unknown."""

from types import SimpleNamespace

import pytest

from wirespeed.driver.bypass import Served
from wirespeed.runner import work


def found(told_s, used_s, loaded_s=1.0, window_s=1.0, before=None):
    """At 1,000 requests/s: bypass reported so much CPU time, the cgroup of so much."""
    server = SimpleNamespace(label="pg", instance=SimpleNamespace(role="server", cores=[0]))
    session = SimpleNamespace(running=[server])
    served = (Served(1, 0, 0), Served(1, 9, 0, polled_s=0.1, cpu_s=told_s))
    completed = int(1000 * window_s)
    figures = {"load": SimpleNamespace(rps=1000.0, completed=completed, before=before)}
    usage = SimpleNamespace(process_cpu_s={"pg": used_s}, seconds=window_s)
    return work.of_window(session, served, figures, usage, loaded_s)


def test_work_is_the_reported_cpu_time_without_empty_polls():
    assert found(0.5, 0.5).us_per_request == pytest.approx(400)


def test_processes_that_have_ended_make_the_work_unknown():
    """PostgreSQL forks one for each connection: its work was 1 % of what the server used."""
    assert found(0.005, 0.5) is None


def test_the_load_before_a_window_is_part_of_the_time_that_was_worked_in():
    """Slow answers make that load longer than planned; the readings lie before and after it."""
    work = found(1.25, 0.5, loaded_s=2.5)
    assert work.us_per_request == pytest.approx(0.46e6 / 1000)
    assert work.useful == pytest.approx(0.46)


def test_cpu_per_request_is_of_the_requests_that_were_worked_for():
    """The step before the window opens connections, so its rate is lower: at the window's rate its
    requests were too many, and the work of each too small."""
    assert found(0.7, 0.4, 2.0, before=200).us_per_request == pytest.approx(0.6e6 / 1200)
    assert found(0.9, 0.4, 2.0, before=None).us_per_request == pytest.approx(0.8e6 / 2000)


def test_a_process_that_is_missing_is_noticed_however_long_the_step_was():
    """The reported time of step and window was compared with the window's alone: with a step as
    long as the window half of the processes could be missing."""
    assert found(1.0, 0.5, loaded_s=2.0) is not None
    assert found(0.5, 0.5, loaded_s=2.0) is None
