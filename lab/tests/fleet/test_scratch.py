"""The scratch folder of a run whose hosts are one machine: gone after the last of its agents."""

import base64
import hashlib
import sys
import time
from pathlib import Path

import pytest

from wirespeed.fleet.channel import Far
from wirespeed.fleet.fleet import Fleet
from wirespeed.runner import files

WAIT_S = 60


@pytest.fixture
def fleet():
    fars = [Far(name, python=sys.executable, shares_files=False) for name in ("one", "two")]
    fleet = Fleet(fars, "test-scratch", cgroups=False)
    yield fleet
    fleet.close()


def test_what_one_agent_writes_after_another_has_ended_is_removed_too(fleet, tmp_path):
    """A busy agent works through what it was asked for while the others are ending."""
    run_dir = tmp_path / "20261122T000000Z-test-scratch"
    files.prepare(fleet, run_dir)
    scratch = files.scratch_folder(run_dir.name)
    first, last = fleet["one"], fleet["two"]
    first.channel.close()
    first.channel.process.wait(WAIT_S)
    data = b"x"
    last.send(
        "put", path=f"{scratch}/nginx.conf", offset=0, data=base64.b64encode(data).decode(),
        sha256=hashlib.sha256(data).hexdigest(), is_last=True, mode=0o644,
    )  # fmt: skip
    deadline = time.monotonic() + WAIT_S
    while not (scratch / "nginx.conf").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert (scratch / "nginx.conf").exists()
    last.channel.close()
    last.channel.process.wait(WAIT_S)
    assert not list(Path(scratch).parent.glob(f"{scratch.name}*"))
