"""Part of the agent: forked helpers for slow work, each with one answer over a pipe.

Standard library of Python 3.9 only: see main.py.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from wirespeed.agent.children import Refused, die_with, send_signal

OUTPUT_MAX = 1 << 20  # of a program's output; the rest is dropped
ENDED_S = 5.0  # a killed helper needs a core to end
PROGRAM_S = 20.0  # that a program may take; the lab waits for its answer a little longer
LOOK_S = 0.01  # between two looks whether a program has ended whose pipes say nothing


class Helpers:
    """The running helpers: pipe → [id of the request, process, names of children, what came]."""

    def __init__(self) -> None:
        self.running: dict[int, list[Any]] = {}

    def pipes(self) -> list[int]:
        return list(self.running)

    def start(self, number: int, function: Callable[[], Any], *names: str) -> None:
        """Forks; what `function` returns is the answer to the request with this id."""
        read_end, write_end = os.pipe()
        agent = os.getpid()
        pid = os.fork()
        if pid == 0:
            answer: dict[str, Any] = {"id": number}
            try:
                die_with(agent)
                for one in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
                    signal.signal(one, signal.SIG_DFL)
                signal.set_wakeup_fd(-1)
                answer["result"] = function()
            except Refused as error:
                answer["error"] = str(error)
            except Exception as error:  # whatever it is, the request is answered
                answer["error"] = f"bad request: {type(error).__name__}: {error}"
            try:
                write_all(write_end, json.dumps(answer).encode())
            finally:
                os._exit(0)
        os.close(write_end)
        self.running[read_end] = [number, pid, names, b""]

    def take(self, readable: Collection[int], send: Callable[[dict[str, Any]], None]) -> None:
        """Passes on the answers that are complete."""
        for pipe in [pipe for pipe in readable if pipe in self.running]:
            data = os.read(pipe, 1 << 20)
            if data:
                self.running[pipe][3] += data
                continue
            os.close(pipe)
            number, _, _, text = self.running.pop(pipe)
            try:
                send(json.loads(text.decode()))
            except ValueError:
                send({"id": number, "error": "the helper was ended"})

    def end(self, names: Iterable[str]) -> None:
        """Ends helpers that wait for children which are being stopped, and returns when they have:
        one that is just freezing a child would do so behind the thaw of the stop."""
        ending = [pid for _, pid, own, _ in self.running.values() if not set(own).isdisjoint(names)]
        for pid in ending:
            send_signal(pid, signal.SIGKILL)
        for pid in ending:
            await_end(pid)


def await_end(pid: int) -> None:
    """Returns when a killed child has ended, or at the latest after `ENDED_S`."""
    deadline = time.monotonic() + ENDED_S
    try:
        while not os.waitpid(pid, os.WNOHANG)[0] and time.monotonic() < deadline:
            time.sleep(0.001)
    except ChildProcessError:  # it had ended before
        pass


def write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


def run_program(message: dict[str, Any]) -> dict[str, Any]:
    """Runs argv to its end, at most `timeout_s`."""
    environment = dict(os.environ)
    environment.update(message.get("env", {}))
    try:
        process = subprocess.Popen(
            message["argv"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
    except OSError as error:
        raise Refused("{}: {}".format(message["argv"][0], error.strerror)) from None
    assert process.stdout and process.stderr
    with process.stdout, process.stderr:
        pipes = process.stdout.fileno(), process.stderr.fileno()
        said = _said(process, pipes, message.get("timeout_s", PROGRAM_S))
    if said is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise Refused("{} did not end in time".format(message["argv"][0]))
    out, err = (text.decode(errors="replace") for text in said)
    return {"code": process.returncode, "out": out, "err": err}


def _said(
    process: subprocess.Popen[bytes], pipes: Sequence[int], within_s: float
) -> list[bytes] | None:
    """What a program wrote until it ended; None if it does not end in time. A process that it has
    left behind may keep its pipes open for ever."""
    deadline = time.monotonic() + within_s
    said, waiting = dict.fromkeys(pipes, b""), list(pipes)
    while True:
        has_ended = process.poll() is not None  # asked first: all that it wrote is in the pipes
        for pipe in select.select(waiting, [], [], 0 if has_ended else LOOK_S)[0]:
            piece = os.read(pipe, OUTPUT_MAX)  # more than a pipe holds
            said[pipe] = (said[pipe] + piece)[:OUTPUT_MAX]
            if not piece:
                waiting.remove(pipe)
        if has_ended:
            return list(said.values())
        if time.monotonic() > deadline:
            return None
