"""Processes of a test's run, found by the mark that the lab puts into their environment."""

import os
from pathlib import Path


def marked(mark):
    """process id → its command line, for processes of the runs whose mark begins so."""
    found = {}
    for entry in os.listdir("/proc"):
        try:
            environment = Path(f"/proc/{entry}/environ").read_bytes() if entry.isdigit() else b""
            if f"WIRESPEED_RUN={mark}".encode() in environment:
                found[int(entry)] = Path(f"/proc/{entry}/cmdline").read_bytes()
        except OSError:  # it has ended
            continue
    return found
