"""A host as the rest of the lab sees it: commands to its agent, and what the agent reports."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import selectors
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wirespeed.agent import clock
from wirespeed.errors import HostError, LostHostError
from wirespeed.fleet.channel import Channel, Transport

PROTOCOL = 2
ANSWER_S = 30.0  # an agent answers in a millisecond; a loaded guest may take seconds
END_S = 60.0  # an agent that kills and removes what it made; a killed one would leave it
SILENCE_S = 10.0  # a host that keeps a lease speaks once a second; longer, and longer than its
# lease, and it is lost
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
        far: Transport,
        order: dict[str, Any],
        selector: selectors.BaseSelector | None = None,
    ) -> None:
        self.far, self.name = far, far.name
        self._serial = 0
        self._answers: dict[int, dict[str, Any]] = {}
        self.exits: dict[str, int] = {}
        self.nice = 0  # of what the agent spawns
        self.offset_s = 0.0  # this host's even time minus the lab's
        self.set_by_s = 0.0  # how far its wall clock has been set: minus its even time
        self.trip_s = 0.0  # a question and its answer
        self._clock = Reading(0.0, float("inf"), 0.0)
        self.folders: dict[str, str] = {}  # folder here → folder there, where files are not shared
        self._brought: dict[Path, list[int]] = {}  # file here → length and time of the one there
        self.heard = time.monotonic()
        self._loss: HostError | None = None  # why nothing comes from it any more
        self._selector = selector or selectors.DefaultSelector()
        self.channel = Channel(far, order)
        self._selector.register(self.channel.fd, selectors.EVENT_READ, self)
        self.info: dict[str, Any] = {}  # none until it has greeted
        self._hello = self.send("hello")

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
        self.check_lost()
        self._serial += 1
        self.channel.send({"id": self._serial, "op": op, **arguments})
        return self._serial

    def answer(self, serial: int, op: str, timeout_s: float = ANSWER_S) -> Any:
        deadline = time.monotonic() + timeout_s
        while serial not in self._answers:
            self.check_lost()
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
            self.check_lost()
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            self.poll(left)

    def poll(self, timeout_s: float) -> bool:
        """Takes in what agents have sent; False when nothing came in time."""
        return pump(self._selector, timeout_s)

    def take_in(self) -> None:
        messages = self.channel.receive()
        self.heard = time.monotonic()  # a part of a long message, or of the hello, counts too
        for message in messages:
            if message.get("event") == "exit":
                self.exits[message["name"]] = message["code"]
            elif message.get("id") is not None:
                self._answers[message["id"]] = message

    def check_heard(self) -> None:
        """A log-in may take longer: the hello has a time limit of its own."""
        if not self.info:
            return
        silent_s = time.monotonic() - self.heard
        if self.far.lease_s and silent_s > max(SILENCE_S, self.far.lease_s):
            raise LostHostError(f"{self.name} has sent nothing for {silent_s:.0f} s")

    def lose(self, why: HostError) -> None:
        """Nothing more is waited for from this host; the others are as they were."""
        self._loss = why
        self._selector.unregister(self.channel.fd)

    def check_lost(self) -> None:
        if self._loss:
            raise LostHostError(str(self._loss))

    def measure_clock(self) -> None:
        """Its clock's offset, from the question with the shortest way (as NTP, RFC 5905)."""
        if self.far.lease_s is None:  # it counts from the lab's own beginning
            self.set_by_s = clock.set_by_s()
            return
        now, best = 0.0, Reading(0.0, float("inf"), 0.0)
        for number in range(CLOCK_ASKS_MAX):
            if number >= CLOCK_ASKS and 2 * best.bound_s <= CLOCK_TRIP_S:
                break
            sent = clock.now()
            answer = self.ask("clock")
            there, self.set_by_s = answer["now"], answer["set_by_s"]
            now = clock.now()
            trip = now - sent
            if trip / 2 < best.bound_s:
                best = Reading(there - (sent + trip / 2), trip / 2, now)
        self.trip_s = 2 * best.bound_s
        self._clock = better(self._clock, best, now)
        self.offset_s = self._clock.offset_s

    @property
    def wall_ahead_s(self) -> float:
        """This host's wall clock minus the lab's even time."""
        return self.offset_s + self.set_by_s

    def clock_step_s(self) -> float:
        """By how much somebody has set its wall clock since it was measured."""
        is_far = self.far.lease_s is not None
        set_by_s = self.ask("clock")["set_by_s"] if is_far else clock.set_by_s()
        return abs(float(set_by_s) - self.set_by_s)

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
        return [self._word_there(word, ours) for word in words]

    def _word_there(self, word: str, ours: Sequence[Path]) -> str:
        """A word that is a path as a whole, which may hold spaces, or has some in it."""
        whole = self._there(word, ours) if word.startswith("/") else word
        if whole != word:
            return whole
        return _PATH.sub(lambda found: self._there(found[0], ours), word)

    def folder_there(self, folder: Path) -> str:
        """Where a folder of this machine is on the host."""
        for here, there in self.folders.items():
            if str(folder) == here or str(folder).startswith(here + "/"):
                return there + str(folder)[len(here) :]
        return str(folder)

    def _there(self, word: str, ours: Sequence[Path]) -> str:
        path, there = Path(word), self.folder_there(Path(word))
        if there != word:
            return self.put_file(path, there) if os.path.isfile(word) else there
        place = self._place_of(path, ours)
        if place is None or not os.path.isfile(word):
            return word
        return self.put_file(path, place)

    def _place_of(self, path: Path, ours: Sequence[Path]) -> str | None:
        """Of what is sent along: in the same places below one folder, where programs find what
        belongs to them. None of what is not ours."""
        root = next((root for root in ours if path.is_relative_to(root)), None)
        if root is None:
            return None
        base = next(iter(self.folders.values()))
        digest = hashlib.sha256(str(root).encode()).hexdigest()[:12]
        return f"{base}/put/{digest}/{path.relative_to(root)}"

    def cwd_there(self, cwd: str, words: Sequence[str], ours: Sequence[Path]) -> dict[str, str]:
        """Where a program is started: on a host that lacks a folder of `ours`, in the copy that has
        the files which its command names from there."""
        if self.far.shares_files:
            return {"cwd": cwd}
        copy = self._place_of(Path(cwd), ours)
        if copy is None:
            return {"cwd": self.folder_there(Path(cwd))}
        for file in (str(Path(cwd, word)) for word in words if word):
            if os.path.isfile(file):
                self._there(file, ours)
        return {"cwd": cwd, "cwd_else": copy}

    def bring_back(self, folder: Path) -> None:
        """Fetches what programs there wrote in the folder that stands for this one, and what they
        rewrote: a file of the same length may have other values."""
        if self.far.shares_files:
            return
        there = self.folder_there(folder)
        for name, *state in self.ask("list", folder=there):
            target = folder / name
            if target.exists() and self._brought.get(target) == state:
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            # An earlier copy stays where the host is lost meanwhile.
            part = target.with_name(f".{target.name}.part")
            with open(part, "wb") as file:
                file.writelines(self.pieces(f"{there}/{name}"))
            part.replace(target)
            self._brought[target] = state

    def pieces(self, path: str) -> Iterator[bytes]:
        """A file of the host; a program's output may be larger than the memory."""
        at = 0
        while True:
            got = self.ask("get", path=path, offset=at, length=PIECE_BYTES)
            piece = base64.b64decode(got["data"])
            yield piece
            at += len(piece)
            if not piece or at >= got["size"]:
                return

    def close(self) -> None:
        """Ends the agent, which kills whatever is left; returns when it has."""
        self.leave()
        self.channel.wait(END_S)

    def leave(self) -> None:
        """The first half of `close`: many hosts end in parallel."""
        try:
            self._selector.unregister(self.channel.fd)
        except (KeyError, ValueError):
            pass
        self.channel.close()
        if self.far.is_quoted and not self.info:
            # No agent has answered: a program that still logs in ignores the end of its input.
            self.channel.process.terminate()


def pump(selector: selectors.BaseSelector, timeout_s: float) -> bool:
    """Takes in what has come from any host of the selector; False when nothing came in time.

    Raises once for a host that is lost; after that only questions to that host itself do.
    """
    events = selector.select(max(0.0, timeout_s))
    for key, _ in events:
        _or_lose(key.data, key.data.take_in)
    for key in list(selector.get_map().values()):  # also the silent ones while others speak
        _or_lose(key.data, key.data.check_heard)
    return bool(events)


def _or_lose(host: Host, look: Callable[[], None]) -> None:
    try:
        look()
    except HostError as why:
        host.lose(why)
        raise
