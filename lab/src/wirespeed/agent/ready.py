"""Part of the agent: readiness, a request whose status and length are checked, or a connection.

Standard library of Python 3.9 only: see main.py.
"""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Sequence
from typing import Any

PAUSE_S = 0.02  # a JVM becomes ready in tenths of seconds; this adds little to them
ANSWER_S = 2.0
PIECE_BYTES = 1 << 20
LINE_MAX = 1 << 16  # of a line that has no end yet
WRONG_ANSWER_S = 3.0  # a server may answer 503 or short while it starts, but not for long


def prepare() -> Any:
    """Imports what a request needs, in the agent itself, so that its helpers inherit it: it takes a
    quarter of the agent's start, and most agents never ask."""
    import http.client
    import urllib.parse

    return http.client, urllib.parse


def wait(message: dict[str, Any]) -> dict[str, str]:
    """{"problem": ""} as soon as the answer is right, else what was wrong with the last one."""
    deadline = time.monotonic() + message["within_s"]
    wrong_since: float | None = None
    problem = "no answer"
    log = LogLines(message["log"], message["files"]) if message.get("log") else None
    while True:
        if log:
            answered, problem = False, "" if log.has_line() else "no line of it matches"
        else:
            answered, problem = request(message["url"], message["status"], message["length"])
        if not problem:
            return {"problem": ""}
        now = time.monotonic()
        if answered:
            wrong_since = wrong_since or now
            if now - wrong_since > WRONG_ANSWER_S:
                return {"problem": problem}
        if now > deadline:
            return {"problem": problem}
        time.sleep(PAUSE_S)


class LogLines:
    """The output of a server, of which each byte is read once: it may be long, and each second has
    fifty looks, on the host that is measured."""

    def __init__(self, pattern: str, files: Sequence[str]) -> None:
        self.pattern = re.compile(pattern, re.M)
        self.read: dict[str, tuple[int, str]] = {
            path: (0, "") for path in files
        }  # bytes so far, and the line without its end

    def has_line(self) -> bool:
        """Whether a line that has come since the last look matches."""
        return any([self._has_line(path) for path in self.read])

    def _has_line(self, path: str) -> bool:
        at, rest = self.read[path]
        try:
            with open(path, "rb") as file:
                if file.seek(0, os.SEEK_END) < at:  # another file has its name
                    at, rest = 0, ""
                file.seek(at)
                data = file.read(PIECE_BYTES)
        except OSError:
            return False
        text = rest + data.decode("utf-8", "replace")
        self.read[path] = (at + len(data), text[text.rfind("\n") + 1 :][-LINE_MAX:])
        return bool(self.pattern.search(text))


def length_of(response: Any) -> int:
    """Piece by piece: a body may be larger than the memory of a small host."""
    return sum(len(piece) for piece in iter(lambda: response.read(PIECE_BYTES), b""))


def connect(host: str, port: int) -> tuple[bool, str]:
    """The same of a server that speaks no HTTP: whether it takes a connection."""
    try:
        socket.create_connection((host, port), timeout=ANSWER_S).close()
    except OSError as error:
        return False, str(error)
    return True, ""


def get(address: str, timeout_s: float = ANSWER_S, has_body: bool = True) -> tuple[int, int | None]:
    """(status, bytes of the body) of one GET; raises OSError or http.client.HTTPException."""
    client, parse = prepare()
    url = parse.urlsplit(address)
    connection = client.HTTPConnection(url.hostname or "", url.port, timeout=timeout_s)
    try:
        connection.request("GET", (url.path or "/") + ("?" + url.query if url.query else ""))
        response = connection.getresponse()
        return response.status, length_of(response) if has_body else None
    finally:
        connection.close()


def request(address: str, status: int | None, length: int | None) -> tuple[bool, str]:
    """(whether an HTTP answer came, what is wrong with it or "")."""
    client, parse = prepare()
    url = parse.urlsplit(address)
    if url.scheme == "tcp":
        return connect(url.hostname, url.port)
    try:
        answer, size = get(address, has_body=status is not None)
    except (OSError, client.HTTPException) as error:
        return False, str(error) or type(error).__name__
    if status is None:  # any that means success
        return True, "" if answer // 100 == 2 else f"status {answer}"
    if answer != status:
        return True, f"status {answer}, wanted {status}"
    if length is not None and size != length:
        return True, f"a body of {size} bytes, wanted {length}"
    return True, ""
