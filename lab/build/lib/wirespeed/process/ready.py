"""Readiness: a real request whose status and length are checked, not an open port."""

from __future__ import annotations

import http.client
import time
import urllib.parse

from wirespeed.errors import ProcessError
from wirespeed.host.base import Host
from wirespeed.process.start import Started
from wirespeed.recipe.resolve import Check

_PAUSE_S = 0.02  # a JVM becomes ready in tenths of seconds; this adds little to them
_ANSWER_S = 2.0
_WRONG_ANSWER_S = 3.0  # a server may answer 503 or short while it starts, but not for long


def wait_ready(host: Host, started: Started) -> None:
    """Returns when the server answers as the recipe says; raises with what it did instead."""
    check = started.instance.ready
    if check is None:
        return
    deadline = time.monotonic() + check.within_s
    wrong_since = None
    problem = "no answer"
    while time.monotonic() < deadline:
        fail_if_dead(host, started)
        answered, problem = request(check)
        if not problem:
            return
        if answered:
            wrong_since = wrong_since or time.monotonic()
            if time.monotonic() - wrong_since > _WRONG_ANSWER_S:
                break
        host.poll(_PAUSE_S)
    raise ProcessError(f"{started.label} never became ready: GET {check.url}: {problem}")


def fail_if_dead(host: Host, started: Started) -> None:
    code = host.exits.get(started.label)
    if code is None:
        return
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    words = started.last_words()
    raise ProcessError(f"{started.label} died ({how})" + (f": {words}" if words else ""))


def request(check: Check) -> tuple[bool, str]:
    """(whether an HTTP answer came, what is wrong with it or "")."""
    url = urllib.parse.urlsplit(check.url)
    connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=_ANSWER_S)
    try:
        connection.request("GET", (url.path or "/") + (f"?{url.query}" if url.query else ""))
        response = connection.getresponse()
        length = len(response.read())
    except (OSError, http.client.HTTPException) as error:
        return False, str(error) or type(error).__name__
    finally:
        connection.close()
    if response.status != check.status:
        return True, f"status {response.status}, wanted {check.status}"
    if check.length is not None and length != check.length:
        return True, f"a body of {length} bytes, wanted {check.length}"
    return True, ""
