"""Readiness: a real request whose status and length are checked, asked on the server's own host;
or a line of its output."""

from __future__ import annotations

import time

from wirespeed.errors import HostError, LastingError, ProcessError
from wirespeed.fleet.fleet import Fleet
from wirespeed.process.start import Started
from wirespeed.recipe.resolve import Check

REACH_S = 15.0  # the server answers already: a lost packet or a busy host is not a wrong address
_SPARE_S = 20.0  # beyond the recipe's own time, for an agent on a loaded host


def attempt(check: Check) -> str:
    """The action, for a message."""
    url = check.url
    if check.log:
        return f"look for {check.log!r} in its output"
    return f"connect to {url[6:]}" if url.startswith("tcp://") else f"GET {url}"


def wait_ready(fleet: Fleet, started: Started) -> None:
    """Returns when the server answers as the recipe says; raises with what it did instead."""
    check = started.instance.ready
    if check is None:
        return
    host = fleet.host_of(started.label)
    question = host.send(
        "ready",
        name=started.label,
        url=check.url,
        status=check.status,
        length=check.length,
        within_s=check.within_s,
        log=check.log,
        files=[host.folder_there(path) for path in (started.stdout, started.stderr)],
    )
    deadline = time.monotonic() + check.within_s + _SPARE_S
    while not host.has_answered(question):
        fail_if_dead(fleet, started)
        if time.monotonic() > deadline:
            raise ProcessError(f"{host.name} did not say whether {started.label} is ready")
        fleet.poll(min(1.0, deadline - time.monotonic()))
    try:
        problem = host.answer(question, "ready")["problem"]
    except HostError as error:
        problem = str(error)
    fail_if_dead(fleet, started)
    if problem:
        raise ProcessError(f"{started.label} never became ready: {attempt(check)}: {problem}")


def check_reach(fleet: Fleet, started: Started, hosts: list[str]) -> None:
    """One request from each host that will load the server: the way between them works."""
    check = started.instance.ready
    own = fleet.host_of(started.label)
    far = [fleet[name] for name in hosts if name != own.name]
    if check is None or check.log or not far:
        return
    answers = fleet.each(
        far, "ready", name=started.label, url=check.url, status=check.status, length=check.length,
        within_s=REACH_S,
    )  # fmt: skip
    for name, answer in answers.items():
        if answer["problem"]:
            raise ProcessError(
                f"{name} cannot reach {started.label}: {attempt(check)}: {answer['problem']}; "
                "check the address of the server in the site file"
            )


def check_url(fleet: Fleet, label: str, host: str, url: str) -> None:
    """One request as the generator will send it: a response other than 2xx is useless to it."""
    problem = fleet[host].ask("ready", name=label, url=url, status=None, length=None, within_s=0.0)[
        "problem"
    ]
    if problem.startswith("status "):
        raise LastingError(f"{label} would get the wrong response: GET {url}: {problem}")


def fail_if_dead(fleet: Fleet, started: Started) -> None:
    code = fleet.exit_of(started.label)
    if code is None:
        return
    words = started.last_words(fleet)
    if code == 0:
        is_left = fleet.state(started.label)["members"]
        how = "left its process behind and ended" if is_left else "ended"
        said = f": {words}" if words and not is_left else ""
        raise ProcessError(
            f"{started.label} {how} (exit code 0){said}; start it in the foreground, without the "
            "option that makes it a daemon"
        )
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    raise ProcessError(f"{started.label} died ({how})" + (f": {words}" if words else ""))
