"""Starts a server once and asks it one request: does the command work, and what does it answer?"""

from __future__ import annotations

import http.client
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO

from wirespeed.agent import ready
from wirespeed.agent.children import (
    LIBC,
    PR_SET_CHILD_SUBREAPER,
    Refused,
    clean_environment,
    descendants,
    is_alive,
    refuse_elevation,
    send_signal,
)
from wirespeed.errors import InputError, RunError
from wirespeed.interrupts import Terminated, held_back, signals_as_interrupts
from wirespeed.process.start import SEARCH_PATH, readable

WITHIN_S = 60.0  # a JVM that compiles its source first, on a loaded machine
TERM_S, KILL_S = 2.0, 15.0
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Answer:
    """A server's answer to one request."""

    status: int
    length: int


def finds(program: str) -> bool:
    """Whether it is where programs are started from, which an ordinary user's PATH may lack."""
    return shutil.which(program, path=SEARCH_PATH) is not None


def ask(argv: Sequence[str], port: int, path: str, cwd: str = ".") -> Answer:
    """The 2xx answer of the started command; it is ended afterwards, with everything it started."""
    command = [word.replace("{port}", str(port)) for word in argv]
    try:
        refuse_elevation(command[0])
    except Refused as why:
        raise InputError(str(why)) from None
    _refuse_taken(port)
    others = descendants(os.getpid())
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # so that daemons become our children too
    try:
        with signals_as_interrupts():  # else TERM would leave the server behind
            return _tried(command, cwd, others, (port, path))
    except KeyboardInterrupt as stop:
        error = RunError("stopped")
        error.exit_code = 128 + (stop.number if isinstance(stop, Terminated) else signal.SIGINT)
        raise error from None
    finally:
        LIBC.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def _tried(command: list[str], cwd: str, others: set[int], where: tuple[int, str]) -> Answer:
    with tempfile.TemporaryFile() as said:
        try:
            with held_back():  # else a server that has just been started is not known yet
                process = _start(command, cwd, said)
            return _answer(process, others, *where)
        except _Silent as silent:
            said.seek(0)
            text = said.read()[-2000:].decode(errors="replace")
            last = list(filter(None, map(readable, text.split("\n"))))
            shown = f"; its last line: {last[-1]}" if last else ""
            raise InputError(f"{' '.join(command)}: {silent}{shown}") from None
        finally:
            with held_back():  # else a server that ignores TERM would not get its KILL
                _end(others)


def _start(command: list[str], cwd: str, said: IO[bytes]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True,
            cwd=cwd, env=clean_environment({"PATH": SEARCH_PATH}),
        )  # fmt: skip
    except OSError as error:
        raise InputError(f"{command[0]}: cannot be started: {error.strerror}") from None


def _refuse_taken(port: int) -> None:
    """Another server there would answer in this one's place."""
    try:
        socket.create_connection((LOOPBACK, port), timeout=1).close()
    except OSError:
        return
    raise InputError(
        f"port {port} is in use (stop its owner, see ss -ltnp, or choose another with --port)"
    )


class _Silent(Exception):
    """No answer that could be measured, and why."""


def _answer(process: subprocess.Popen[bytes], others: set[int], port: int, path: str) -> Answer:
    end = time.monotonic() + WITHIN_S
    problem = f"port {port} of {LOOPBACK} has no listener after {WITHIN_S:.0f} s"
    while time.monotonic() < end:
        if process.poll() is not None:
            raise _Silent(_ended(process.returncode, others))
        try:
            answer = _request(port, path)
        except ConnectionRefusedError:
            time.sleep(0.05)
            continue
        except (OSError, http.client.HTTPException) as error:
            raise _Silent(f"no HTTP answer on port {port}: {error}") from None
        if process.poll() is not None:  # a process that it left behind has answered
            raise _Silent(_ended(process.returncode, others))
        if answer.status // 100 == 2:
            return answer
        problem = f"{path} responds with {answer.status} (choose a --path that responds with 200)"
        end = min(end, time.monotonic() + ready.WRONG_ANSWER_S)
        time.sleep(0.2)
    raise _Silent(problem)


def _ended(code: int, others: set[int]) -> str:
    if _started(others):
        return (
            "left its process behind and ended; start it in the foreground, without the option "
            "that makes it a daemon"
        )
    return f"ended with exit code {code} before it answered"


def _request(port: int, path: str) -> Answer:
    url = f"http://{LOOPBACK}:{port}{path}"
    status, length = ready.get(url, WITHIN_S)
    return Answer(status, length or 0)


def _end(others: set[int]) -> None:
    """Ends what was started, politely first."""
    for sign, wait_s in ((signal.SIGTERM, TERM_S), (signal.SIGKILL, KILL_S)):
        deadline = time.monotonic() + wait_s
        for pid in _started(others):
            send_signal(pid, sign)
        while _started(others) and time.monotonic() < deadline:
            time.sleep(0.02)
    if left := _started(others):
        pids = ", ".join(map(str, sorted(left)))
        raise RunError(
            f"the server's process {pids} goes on, and this user cannot end it: it is another "
            "user's, as under sudo, or in uninterruptible I/O (end it, and run all of it as root)"
        )


def _started(others: set[int]) -> set[int]:
    """Processes below this one that are not among the others; ended ones are reaped.

    A process that has ended since the list was read may have left this one its children, so the
    list is read again.
    """
    while True:
        below = descendants(os.getpid()) - others
        alive = {pid for pid in below if is_alive(pid)}
        reaped = [pid for pid in below - alive if _is_reaped(pid)]
        if alive or not reaped:
            return alive


def _is_reaped(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:  # a grandchild, whose parent will
        return False
