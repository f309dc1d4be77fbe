"""Part of the agent: readiness, a request whose status and length are checked, or a connection.

Standard library of Python 3.6 only: see main.py.
"""

import re
import socket
import time

from wirespeed.agent.children import read_text

PAUSE_S = 0.02  # a JVM becomes ready in tenths of seconds; this adds little to them
ANSWER_S = 2.0
PIECE_BYTES = 1 << 20
WRONG_ANSWER_S = 3.0  # a server may answer 503 or short while it starts, but not for long


def prepare():
    """Imports what a request needs, in the agent itself, so that its helpers inherit it: it takes a
    quarter of the agent's start, and most agents never ask."""
    import http.client
    import urllib.parse

    return http.client, urllib.parse


def wait(message):
    """{"problem": ""} as soon as the answer is right, else what was wrong with the last one."""
    deadline = time.monotonic() + message["within_s"]
    wrong_since = None
    problem = "no answer"
    while True:
        if message.get("log"):
            answered, problem = False, unlogged(message["log"], message["files"])
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


def unlogged(pattern, files):
    """What is missing in the output of a server: "" when a line of it matches."""
    if any(re.search(pattern, read_text(path), re.M) for path in files):
        return ""
    return "no line of it matches"


def length_of(response):
    """Piece by piece: a body may be larger than the memory of a small host."""
    return sum(len(piece) for piece in iter(lambda: response.read(PIECE_BYTES), b""))


def connect(host, port):
    """The same of a server that speaks no HTTP: whether it takes a connection."""
    try:
        socket.create_connection((host, port), timeout=ANSWER_S).close()
    except OSError as error:
        return False, str(error)
    return True, ""


def request(address, status, length):
    """(whether an HTTP answer came, what is wrong with it or "")."""
    client, parse = prepare()
    url = parse.urlsplit(address)
    if url.scheme == "tcp":
        return connect(url.hostname, url.port)
    connection = client.HTTPConnection(url.hostname or "", url.port, timeout=ANSWER_S)
    try:
        connection.request("GET", (url.path or "/") + ("?" + url.query if url.query else ""))
        response = connection.getresponse()
        found = length_of(response) if status else None
    except (OSError, client.HTTPException) as error:
        return False, str(error) or type(error).__name__
    finally:
        connection.close()
    if status is None:  # any that means success
        return True, "" if response.status // 100 == 2 else "status %d" % response.status
    if response.status != status:
        return True, "status %d, wanted %d" % (response.status, status)
    if length is not None and found != length:
        return True, "a body of %d bytes, wanted %d" % (found, length)
    return True, ""
