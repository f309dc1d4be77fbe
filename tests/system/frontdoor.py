"""Runs the front door as a user would, and finds the processes of a run by their mark."""

import os
import signal
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 120


class FrontDoor:
    """`./wirespeed` in a working directory of the test's own."""

    root = ROOT

    def __init__(self, folder):
        self.folder = folder

    def __call__(self, *words, expect=0):
        done = subprocess.run([ROOT / "wirespeed", *words], cwd=self.folder, capture_output=True,
                              text=True, timeout=PATIENCE_S * 3, stdin=subprocess.DEVNULL)
        assert done.returncode == expect, f"{words} → {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def start(self, *words):
        """Starts it in a session of its own; the caller ends it."""
        return subprocess.Popen([ROOT / "wirespeed", *words], cwd=self.folder, text=True,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, start_new_session=True)


def wait_until(condition, what, seconds=PATIENCE_S):
    """Polls a condition; fails with what was awaited."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"waited {seconds} s for {what}")


def marked_processes():
    """Processes that carry the lab's mark in their environment: pid → command line. Those of other tests that run in
    parallel are in another IPC namespace."""
    own, found = os.readlink("/proc/self/ns/ipc"), {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if b"WIRESPEED_RUN=" in (entry / "environ").read_bytes() and os.readlink(entry / "ns/ipc") == own:
                found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ")
        except OSError:
            continue
    return found


def interrupt(process, sign=signal.SIGINT):
    """Sends what a terminal sends on Ctrl-C: the signal to the whole foreground group."""
    os.killpg(process.pid, sign)
