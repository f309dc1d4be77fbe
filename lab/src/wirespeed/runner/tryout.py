"""Starts a server once and asks it one request: does the command work, and what does it answer?"""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass

from wirespeed.errors import InputError

WITHIN_S = 15.0
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Answer:
    """A server's answer to one request."""

    status: int
    length: int


def ask(argv: Sequence[str], port: int, path: str) -> Answer:
    """The answer of the started command; it is ended afterwards, with everything it started."""
    command = [word.replace("{port}", str(port)) for word in argv]
    with tempfile.TemporaryFile() as said:
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True
            )
        except OSError as error:
            raise InputError(f"{command[0]}: cannot be started: {error.strerror}") from None
        try:
            return _answer(process, port, path)
        except _Silent as silent:
            said.seek(0)
            last = said.read()[-2000:].decode(errors="replace").strip().splitlines()
            shown = f"; its last line: {last[-1]}" if last else ""
            raise InputError(f"{' '.join(command)}: {silent}{shown}") from None
        finally:
            _end(process)


class _Silent(Exception):
    """No answer, and why."""


def _answer(process: subprocess.Popen[bytes], port: int, path: str) -> Answer:
    end = time.monotonic() + WITHIN_S
    while time.monotonic() < end:
        if process.poll() is not None:
            raise _Silent(f"ended with exit code {process.returncode} before it answered")
        connection = http.client.HTTPConnection(LOOPBACK, port, timeout=WITHIN_S)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return Answer(response.status, len(response.read()))
        except ConnectionRefusedError:
            time.sleep(0.05)
        except (OSError, http.client.HTTPException) as error:
            raise _Silent(f"no HTTP answer on port {port}: {error}") from None
        finally:
            connection.close()
    raise _Silent(f"nobody listens on port {port} of {LOOPBACK} after {WITHIN_S:.0f} s")


def _end(process: subprocess.Popen[bytes]) -> None:
    for sign in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, sign)
            process.wait(2)
        except ProcessLookupError:
            break
        except subprocess.TimeoutExpired:
            continue
    process.wait()
