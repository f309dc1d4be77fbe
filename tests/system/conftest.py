"""Fixtures of every system test: a front door, and the check that nothing is left behind."""

import contextlib
import os
from pathlib import Path

import pytest
from frontdoor import FrontDoor, marked_processes, wait_until


@pytest.fixture
def wirespeed(tmp_path):
    return FrontDoor(tmp_path)


@pytest.fixture(autouse=True, scope="session")
def own_lock(tmp_path_factory):
    """Tests note interference as noise, so they need not wait for a run of other tests."""
    os.environ["WIRESPEED_LOCK"] = str(tmp_path_factory.mktemp("machine") / "lock")


@pytest.fixture(autouse=True)
def nothing_is_left_behind():
    """No process, shared-memory file or mount of a run outlives its test."""
    before = leftovers()
    yield
    wait_until(lambda: not marked_processes(), "the run's processes to be gone")
    with contextlib.suppress(AssertionError):  # files go away with the last process that has them
        wait_until(lambda: leftovers() <= before, "its files to be gone")
    assert leftovers() <= before


def leftovers():
    """What a run can leave on the machine. Another program may remove files of its own meanwhile."""
    files = {("/dev/shm", name) for name in os.listdir("/dev/shm")}
    return files | {("mount", line) for line in Path("/proc/mounts").read_text().splitlines()}
