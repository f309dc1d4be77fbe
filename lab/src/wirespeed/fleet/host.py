"""A host as the rest of the lab sees it: commands to its agent, and what the agent reports."""

from __future__ import annotations

import base64
import hashlib
import re
import selectors
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wirespeed.errors import HostError
from wirespeed.fleet.channel import Channel, Far

PROTOCOL = 2
ANSWER_S = 30.0  # an agent answers in a millisecond; a loaded guest may take seconds
END_S = 60.0  # an agent that kills and removes what it made; a killed one would leave it
SILENCE_S = 10.0  # a host that keeps a lease speaks once a second; longer and it is lost
PIECE_BYTES = 1 << 20  # of a file that is sent or fetched
CLOCK_ASKS = 7  # the one with the shortest way counts
CLOCK_ASKS_MAX = 40  # on a busy machine until one was quick
CLOCK_TRIP_S = 0.002  # quick enough: the error is at most half of it
DRIFT = 1e-4  # of two clocks against each other, in seconds a second; crystals do better
_PATH = re.compile(r"/[^\s,;:='\"]+")


@dataclass(frozen=True)
class Reading:
    """A clock's offset, how far it may be wrong, and when it was read."""

    offset_s: float
    bound_s: float
    read_at: float

    def bound_at(self, now: float) -> float:
        return self.bound_s + DRIFT * max(0.0, now - self.read_at)


def better(kept: Reading, fresh: Reading, now: float) -> Reading:
    """The one that may be less wrong now; the fresh one when a clock was set meanwhile."""
    bound = kept.bound_at(now)
    if abs(kept.offset_s - fresh.offset_s) > bound + fresh.bound_s:
        return fresh
    return kept if bound < fresh.bound_s else fresh


class Host:
    """One running agent. Hosts of a fleet share a selector, so that none is kept waiting."""

    def __init__(
        self,
        far: Far,
        order: dict[str, Any],
        selector: selectors.BaseSelector | None = None,
    ) -> None:
        self.far, self.name = far, far.name
        self._serial = 0
        self._answers: dict[int, dict[str, Any]] = {}
        self.exits: dict[str, int] = {}
        self.nice = 0  # of what the agent spawns
        self.offset_s = 0.0  # this host's clock minus the lab's
        self.trip_s = 0.0  # a question and its answer
        self._clock = Reading(0.0, float("inf"), 0.0)
        self.folders: dict[str, str] = {}  # folder here → folder there, where files are not shared
        self.heard = time.monotonic()
        self._selector = selector or selectors.DefaultSelector()
        self.channel = Channel(far, order)
        self._selector.register(self.channel.fd, selectors.EVENT_READ, self)
        self._hello = self.send("hello")
        self.info: dict[str, Any] = {}

    def greet(self, timeout_s: float = ANSWER_S) -> None:
        """Waits for the agent's first answer: what this host is."""
        self.info = self.answer(self._hello, "hello", timeout_s)
        if self.info["protocol"] != PROTOCOL:
            raise HostError(
                f"{self.name}: the agent speaks protocol {self.info['protocol']}, not {PROTOCOL}"
            )

    def ask(self, op: str, timeout_s: float = ANSWER_S, **arguments: Any) -> Any:
        """One command and its answer; exits reported meanwhile are kept in `exits`."""
        return self.answer(self.send(op, **arguments), op, timeout_s)

    def send(self, op: str, **arguments: Any) -> int:
        """Sends a command without waiting; `answer` with the number gets what comes back."""
        self._serial += 1
        self.channel.send({"id": self._serial, "op": op, **arguments})
        return self._serial

    def answer(self, serial: int, op: str, timeout_s: float = ANSWER_S) -> Any:
        deadline = time.monotonic() + timeout_s
        while serial not in self._answers:
            left = deadline - time.monotonic()
            if not pump(self._selector, left) and time.monotonic() >= deadline:
                raise HostError(f"{self.name} did not answer {op!r} within {timeout_s:.0f} s")
        answer = self._answers.pop(serial)
        if "error" in answer:
            raise HostError(answer["error"])
        return answer["result"]

    def has_answered(self, serial: int) -> bool:
        return serial in self._answers

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
            if left <= 0:
                return None
            self.poll(left)

    def poll(self, timeout_s: float) -> bool:
        """Takes in what agents have sent; False when nothing came in time."""
        return pump(self._selector, timeout_s)

    def take_in(self) -> None:
        for message in self.channel.receive():
            self.heard = time.monotonic()
            if message.get("event") == "exit":
                self.exits[message["name"]] = message["code"]
            elif message.get("id") is not None:
                self._answers[message["id"]] = message

    def check_heard(self) -> None:
        silent_s = time.monotonic() - self.heard
        if self.far.lease_s and silent_s > SILENCE_S:
            raise HostError(f"{self.name} has not been heard for {silent_s:.0f} s")

    def measure_clock(self) -> None:
        """Its clock's offset, from the question with the shortest way (as NTP, RFC 5905)."""
        now, best = 0.0, Reading(0.0, float("inf"), 0.0)
        for number in range(CLOCK_ASKS_MAX):
            if number >= CLOCK_ASKS and 2 * best.bound_s <= CLOCK_TRIP_S:
                break
            sent = time.time()
            there = self.ask("clock")["now"]
            now = time.time()
            trip = now - sent
            if trip / 2 < best.bound_s:
                best = Reading(there - (sent + trip / 2), trip / 2, now)
        self.trip_s = 2 * best.bound_s
        self._clock = better(self._clock, best, now)
        self.offset_s = self._clock.offset_s

    # -- files ------------------------------------------------------------------------------

    def put_file(self, path: Path, there: str) -> str:
        """Sends a file unless it is there already; returns its path there."""
        data = path.read_bytes()
        known: dict[str, Any] = {"path": there, "sha256": hashlib.sha256(data).hexdigest()}
        if self.ask("put", **known)["has"]:
            return there
        mode = path.stat().st_mode & 0o777
        for offset in range(0, max(1, len(data)), PIECE_BYTES):
            piece = data[offset : offset + PIECE_BYTES]
            self.ask(
                "put",
                **known,
                data=base64.b64encode(piece).decode(),
                offset=offset,
                is_last=offset + PIECE_BYTES >= len(data),
                mode=mode,
            )
        return there

    def carried(self, words: Sequence[str], ours: Sequence[Path]) -> list[str]:
        """The words of a command with paths as they are there; files of `ours` are sent along."""
        if self.far.shares_files:
            return list(words)
        return [_PATH.sub(lambda found: self._there(found[0], ours), word) for word in words]

    def folder_there(self, folder: Path) -> str:
        """Where a folder of this machine is on the host."""
        for here, there in self.folders.items():
            if str(folder) == here or str(folder).startswith(here + "/"):
                return there + str(folder)[len(here) :]
        return str(folder)

    def _there(self, word: str, ours: Sequence[Path]) -> str:
        path, there = Path(word), self.folder_there(Path(word))
        if there != word:
            return self.put_file(path, there) if path.is_file() else there
        if path.is_file() and any(path.is_relative_to(root) for root in ours):
            base = next(iter(self.folders.values()))
            digest = hashlib.sha256(str(path.parent).encode()).hexdigest()[:12]
            return self.put_file(path, f"{base}/put/{digest}/{path.name}")
        return word

    def bring_back(self, folder: Path) -> None:
        """Fetches what programs there wrote in the folder that stands for this one."""
        if self.far.shares_files:
            return
        there = self.folder_there(folder)
        for name, size in self.ask("list", folder=there):
            target = folder / name
            if target.exists() and target.stat().st_size == size:
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(self.fetched(f"{there}/{name}"))

    def fetched(self, path: str) -> bytes:
        data = b""
        while True:
            got = self.ask("get", path=path, offset=len(data), length=PIECE_BYTES)
            piece = base64.b64decode(got["data"])
            data += piece
            if not piece or len(data) >= got["size"]:
                return data

    def close(self) -> None:
        """Ends the agent, which kills whatever is left; returns when it has."""
        self.leave()
        self.channel.wait(END_S)

    def leave(self) -> None:
        """The first half of `close`: many hosts end side by side."""
        try:
            self._selector.unregister(self.channel.fd)
        except (KeyError, ValueError):
            pass
        self.channel.close()


def pump(selector: selectors.BaseSelector, timeout_s: float) -> bool:
    """Takes in what has come from any host of the selector; False when nothing came in time."""
    events = selector.select(max(0.0, timeout_s))
    for key, _ in events:
        key.data.take_in()
    if not events:
        for key in selector.get_map().values():
            key.data.check_heard()
    return bool(events)
