"""The lab as a copy of a process that has its modules loaded: half a second less for each start.

A copy is made by fork before any command of the lab has run, so it holds no state of another test;
from there on it is `python -m wirespeed` with its own environment, folder, output and exit.
"""

import contextlib
import json
import os
import pkgutil
import re
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import time

LONGEST_ORDER = 1 << 20
#: What Python or a module of the lab reads when it is loaded: another value needs a fresh process.
AT_LOAD = re.compile(r"PATH|PYTHON.*|LANG|LC_.*|WIRESPEED_COMMAND")


def program(first=""):
    """The start of a command line: the lab, which runs these statements before its command."""
    if not first:
        return [sys.executable, "-m", "wirespeed"]
    return [sys.executable, "-c", f"{first}\nfrom wirespeed.cli import main\nmain()"]


class Started:
    """A lab that was started; its methods are those of subprocess.Popen."""

    def __init__(self, out, err, status):
        self.stdout, self.stderr = (os.fdopen(end, encoding="utf-8") for end in (out, err))
        self._status = os.fdopen(status, "rb", buffering=0)
        self.pid = int(self._line())
        self.returncode = None

    def _line(self):
        line = b""
        while not line.endswith(b"\n"):
            byte = self._status.read(1)
            if not byte:
                raise EOFError("the process that starts copies of the lab has ended")
            line += byte
        return line

    def poll(self):
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.wait(0)

    def wait(self, timeout=None):
        if self.returncode is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("wirespeed", timeout)
            self.returncode = int(self._line())
        return self.returncode

    def send_signal(self, number):
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout=None):
        texts = ["", ""]

        def read(place, stream):
            texts[place] = stream.read()

        readers = [
            threading.Thread(target=read, args=pair, daemon=True)
            for pair in enumerate((self.stdout, self.stderr))
        ]
        end = None if timeout is None else time.monotonic() + timeout
        for reader in readers:
            reader.start()
        self.wait(timeout)
        for reader in readers:
            reader.join(None if end is None else max(0.0, end - time.monotonic()))
            if reader.is_alive():  # something that the lab has left has its output open
                raise subprocess.TimeoutExpired("wirespeed", timeout)
        return tuple(texts)


class Starter:
    """The process that is copied; it ends with the tests."""

    def __init__(self, environment):
        self.environment = environment
        self.orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.orders.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LONGEST_ORDER)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())],
                env=environment, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()],
            )  # fmt: skip

    def fits(self, environment):
        """Whether nothing differs that was read when the modules were loaded."""
        both = environment.keys() | self.environment.keys()
        return all(
            environment.get(name) == self.environment.get(name)
            for name in both if AT_LOAD.fullmatch(name)
        )  # fmt: skip

    def start(self, arguments, environment, folder, first):
        pipes = [os.pipe() for _ in range(3)]
        order = {"argv": arguments, "env": environment, "cwd": str(folder), "first": first}
        socket.send_fds(self.orders, [json.dumps(order).encode()], [end for _, end in pipes])
        for _, end in pipes:
            os.close(end)
        return Started(*(begin for begin, _ in pipes))

    def close(self):
        self.orders.close()
        self.process.wait()


def next_lab(orders):
    """Returns in each copy, as the lab that was ordered; ends with the tests."""
    while True:
        text, ends, _, _ = socket.recv_fds(orders, LONGEST_ORDER, 3)
        ended = -1
        while ended:  # the earlier ones that have ended
            try:
                ended, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
        if not text:
            raise SystemExit
        if os.fork():
            for end in ends:
                os.close(end)
            continue
        lab = os.fork()
        if lab:
            watch(lab, ends)
        return json.loads(text), ends


def watch(lab, ends):
    """Reports the process and its exit code, as the parent of a program sees it."""
    *outputs, status = ends
    for end in outputs:
        os.close(end)
    os.write(status, b"%d\n" % lab)
    _, ended = os.waitpid(lab, 0)
    with contextlib.suppress(BrokenPipeError):  # the test has ended
        os.write(status, b"%d\n" % os.waitstatus_to_exitcode(ended))
    os._exit(0)


def become(order, ends):
    """This process as one that was started so."""
    out, err, _ = ends
    os.dup2(out, 1)
    os.dup2(err, 2)
    os.closerange(3, max(ends) + 1)
    os.environ.clear()
    os.environ.update(order["env"])
    os.chdir(order["cwd"])
    sys.argv[1:] = order["argv"]
    sys.path[0] = os.getcwd()
    exec(order["first"], {})


def main():
    sys.path[0] = "/"  # nothing here has the name of a module
    import wirespeed

    for module in pkgutil.walk_packages(wirespeed.__path__, "wirespeed."):
        if not module.name.endswith("__main__"):
            __import__(module.name)
    orders = socket.socket(fileno=int(sys.argv[1]))
    ordered = next_lab(orders)
    orders.close()
    become(*ordered)
    runpy.run_module("wirespeed", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
