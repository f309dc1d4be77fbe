"""A host as the rest of the lab sees it: commands to its agent, and what the agent reports.

The agent's sources travel over stdin, so a host needs a Python and nothing else. `Host` is the
same for every kind of site; only the command that starts the far Python differs (local.py).
"""

from __future__ import annotations

import base64
import json
import os
import select
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from wirespeed.errors import HostError

_PARTS = ("children", "census", "sampling", "tuning", "agent")
_ANSWER_S = 30.0  # an agent answers in a millisecond; a loaded guest may take seconds

# Installs the sources as modules, so that they import each other here as in the package.
BOOTSTRAP = """
import base64, json, os, sys, types
line = b""
while not line.endswith(b"\\n"):
    line += os.read(0, 1) or sys.exit(0)
for name in ("wirespeed", "wirespeed.host"):
    sys.modules[name] = types.ModuleType(name)
order = json.loads(line.decode())
for name, source in order["modules"]:
    module = types.ModuleType(name)
    sys.modules[name] = module
    exec(compile(base64.b64decode(source), name, "exec"), module.__dict__)
sys.modules["wirespeed.host.agent"].main(order["mark"], order["cgroups"])
"""


class Host:
    """One running host agent."""

    def __init__(self, command: Sequence[str], mark: str, cgroups: bool = True) -> None:
        self._buffer = b""
        self._serial = 0
        self._answers: dict[int, dict[str, Any]] = {}
        self.exits: dict[str, int] = {}
        self.nice = 0  # of what the agent spawns
        # A session of its own: Ctrl-C in the terminal is for the lab, which then tells the agent.
        self._agent = subprocess.Popen(
            list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        self._send({"modules": _sources(), "mark": mark, "cgroups": cgroups})
        self.info = self.ask("hello")

    def ask(self, op: str, timeout_s: float = _ANSWER_S, **arguments: Any) -> Any:
        """One command and its answer; exits reported meanwhile are kept in `exits`."""
        self._serial += 1
        serial = self._serial
        self._send({"id": serial, "op": op, **arguments})
        deadline = time.monotonic() + timeout_s
        while serial not in self._answers:
            if not self.poll(deadline - time.monotonic()):
                raise HostError(f"the host agent did not answer {op!r} within {timeout_s:.0f} s")
        answer = self._answers.pop(serial)
        if "error" in answer:
            raise HostError(answer["error"])
        return answer["result"]

    def prefer(self, nice: int) -> int:
        """Has everything spawned from now on run before others, where this user may."""
        self.nice = int(self.ask("prefer", nice=nice)["nice"])
        return self.nice

    def wait_exit(self, names: Sequence[str], timeout_s: float) -> str | None:
        """Waits until one of these processes has ended, and says which; None after the time."""
        deadline = time.monotonic() + timeout_s
        while True:
            for name in names:
                if name in self.exits:
                    return name
            left = deadline - time.monotonic()
            if left <= 0 or not self.poll(left):
                return next((name for name in names if name in self.exits), None)

    def poll(self, timeout_s: float) -> bool:
        """Takes in what the agent has sent; False when nothing came in time."""
        assert self._agent.stdout
        handle = self._agent.stdout.fileno()
        if not select.select([handle], [], [], max(0.0, timeout_s))[0]:
            return False
        data = os.read(handle, 1 << 20)
        if not data:
            raise HostError("the host agent has ended; nothing it started is left running")
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            self._take(json.loads(line))
        return True

    def close(self) -> None:
        """Ends the agent, which kills whatever is left; returns when it has."""
        if self._agent.stdin and not self._agent.stdin.closed:
            try:
                self._agent.stdin.close()
            except BrokenPipeError:
                pass
        try:
            self._agent.wait(timeout=15)
        except subprocess.TimeoutExpired:
            self._agent.kill()
            self._agent.wait()

    def _take(self, message: dict[str, Any]) -> None:
        if message.get("event") == "exit":
            self.exits[message["name"]] = message["code"]
        else:
            self._answers[message["id"]] = message

    def _send(self, message: dict[str, Any]) -> None:
        assert self._agent.stdin
        try:
            self._agent.stdin.write((json.dumps(message) + "\n").encode())
            self._agent.stdin.flush()
        except BrokenPipeError:
            raise HostError("the host agent has ended") from None


def _sources() -> list[list[str]]:
    folder = Path(__file__).parent
    return [
        [
            f"wirespeed.host.{name}",
            base64.b64encode((folder / f"{name}.py").read_bytes()).decode(),
        ]
        for name in _PARTS
    ]
