"""What `./wirespeed build` is asked for before a run."""

import os
import signal
import threading
import time

import pytest

from wirespeed.agent.children import is_alive
from wirespeed.interrupts import Terminated, signals_as_interrupts
from wirespeed.runner import build

PATIENCE_S = 120.0
DOOR = """#!/bin/sh
sleep 600 &
echo $! > pid.new && mv pid.new pid
wait
"""


def wait_for(condition):
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_stop_ends_a_build_with_all_that_it_started(tmp_path):
    """The compiler went on for minutes after `timeout` or a CI system had stopped the run."""
    door, pid = tmp_path / "wirespeed", tmp_path / "pid"
    door.write_text(DOOR)
    door.chmod(0o755)

    def stop():
        wait_for(pid.exists)
        os.kill(os.getpid(), signal.SIGTERM)

    stopper = threading.Thread(target=stop)
    stopper.start()
    with pytest.raises(Terminated), signals_as_interrupts():
        build.build(tmp_path, ["load"])
    stopper.join()
    wait_for(lambda: not is_alive(int(pid.read_text())))


def test_a_build_that_fails_has_its_own_exit_code(tmp_path):
    door = tmp_path / "wirespeed"
    door.write_text("#!/bin/sh\nexit 7\n")
    door.chmod(0o755)
    with pytest.raises(build.BuildError, match="build load failed; nothing was measured") as raised:
        build.build(tmp_path, ["load"])
    assert raised.value.exit_code == 7
