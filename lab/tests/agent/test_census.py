"""The census of other processes: every process but our own, the largest first."""

import os
import subprocess

import pytest

from wirespeed.agent import census


@pytest.fixture
def sleeper():
    process = subprocess.Popen(["sleep", "500"])
    yield process
    process.kill()
    process.wait()


def test_a_census_sees_every_process_but_our_own(sleeper, monkeypatch):
    monkeypatch.setattr(census, "CENSUS_S_MAX", 60.0)
    found = census.census({os.getpid()})
    assert os.getpid() not in found
    assert found[sleeper.pid][1] >= 0
    assert os.getpid() in census.census(set())


def test_a_machine_with_too_many_processes_is_not_read_to_the_end(monkeypatch):
    monkeypatch.setattr(census, "CENSUS_S_MAX", -1.0)
    assert census.census(set()) == {}


def test_use_since_the_census_before_is_summed_by_name(monkeypatch):
    second = 1_000_000_000
    rounds = [
        {1: ("init", 5 * second), 2: ("kdamond.0", 0), 3: ("cc1", 0), 4: ("cc1", second)},
        # One more cc1 was born since: what it used before is not known.
        {1: ("init", 5 * second), 2: ("kdamond.0", second), 3: ("cc1", 2 * second),
         4: ("cc1", 2 * second), 5: ("cc1", 9 * second)},
    ]  # fmt: skip
    monkeypatch.setattr(census, "census", lambda _ours: rounds.pop(0))
    one = census.Census()
    assert one.take(set()) == []
    assert one.take(set()) == [["cc1", 3.0], ["kdamond.0", 1.0]]


def test_a_process_that_has_gone_has_no_use():
    assert census.usage_of(2**22 + 1) is None
