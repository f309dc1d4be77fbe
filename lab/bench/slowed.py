"""Starts a server that is slower by a known share: a second thread takes that much of its core.

    python slowed.py SHARE nginx -p … -c …

The thief is part of the server as the lab sees it: in its cgroup, pinned with it, ended with it,
counted in its CPU per request. A server that fills its core then answers (1 - SHARE) of them.
"""

import ctypes
import os
import signal
import sys
import time

PR_SET_PDEATHSIG = 1
REST_S = 0.005  # a thief that has slept is scheduled at once, as it used less than its due


def steal(share: float) -> None:
    """Uses `share` of the time that goes by, to the end of the process that started it."""
    began, used = time.monotonic(), time.process_time()
    while True:
        wanted = share * (time.monotonic() - began)
        while time.process_time() - used < wanted:
            pass
        time.sleep(REST_S)


def main(share: float, argv: list[str]) -> None:
    if share > 0 and os.fork() == 0:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        steal(share)
    os.execvp(argv[0], argv)


if __name__ == "__main__":
    main(float(sys.argv[1]), sys.argv[2:])
