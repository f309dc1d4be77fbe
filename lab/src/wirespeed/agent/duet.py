"""Part of the agent: two contenders take turns while the other rests, held at its gate and frozen.

Each contender is a side: its servers and its generators, whose control files have the gate and
the counters (docs/internals/load.md, "Holding the load back"). A slice: go and thaw, wait, hold,
wait until nothing is in flight, freeze, read. Nothing moves in a frozen side, so counters and CPU
time are read at rest and belong together. Standard library of Python 3.9 only: see main.py.
"""

from __future__ import annotations

import ctypes
import gc
import mmap
import os
import platform
import random
import signal
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

from wirespeed.agent.children import (
    LIBC,
    Child,
    Refused,
    is_alive,
    read_text,
    start_ticks,
    stat_fields,
    threads_of,
)
from wirespeed.agent.sampling import process_time_of

MAGIC = b"wsload1\0"
THREADS_AT, WANTED_AT, UNTIL_AT, SLOTS_AT, SLOT_BYTES = 8, 12, 16, 64, 64
HELD = 2
LEASE_S = 10.0  # so long a hold lasts when this program is gone
FOUND_S = 20.0  # until a generator's control file is there and it has had an answer
FROZEN_S = 5.0  # a process in an uninterruptible call takes so long at most
LOOK_S = 0.00002
SILENT_SLICES = 40  # without a response: nothing more will come
FIFO_PRIORITY = 10
PR_SET_TIMERSLACK = 29
FUTEX_WAKE = 1
FUTEX = {"x86_64": 202, "aarch64": 98}.get(platform.machine())
CLOCK_NS = 1e9
PF_KTHREAD = 0x00200000
FLAGS, POLICY = 6, 38  # places in /proc/PID/stat after the name
REALTIME_POLICIES = (1, 2)  # SCHED_FIFO, SCHED_RR
BUSY_SHARE, BUSY_LOOK_S = 0.01, 0.05


class Gate:
    """The control file of one generator."""

    def __init__(self, path: str) -> None:
        deadline = time.monotonic() + FOUND_S
        while not os.path.exists(path):
            if time.monotonic() > deadline:
                raise Refused(f"{path}: the generator did not make its control file")
            time.sleep(0.005)
        with open(path, "r+b") as file:
            self.map = mmap.mmap(file.fileno(), 0)
        if self.map[: len(MAGIC)] != MAGIC:
            raise Refused(f"{path} is not a control file of wirespeed-load")
        self.wanted = ctypes.c_uint32.from_buffer(self.map, WANTED_AT)
        self.until_ns = ctypes.c_uint64.from_buffer(self.map, UNTIL_AT)
        threads = ctypes.c_uint32.from_buffer(self.map, THREADS_AT).value
        slots = [SLOTS_AT + SLOT_BYTES * number for number in range(threads)]
        self.states = [ctypes.c_uint32.from_buffer(self.map, at) for at in slots]
        self.words = [[ctypes.c_uint64.from_buffer(self.map, at + 8 * word) for at in slots]
                      for word in range(1, 5)]  # fmt: skip

    def hold(self) -> None:
        self.until_ns.value = int((time.monotonic() + LEASE_S) * CLOCK_NS)
        self.wanted.value = 1

    def go(self) -> None:
        self.wanted.value = 0
        if FUTEX:  # else it looks once a millisecond
            LIBC.syscall(FUTEX, ctypes.byref(self.wanted), FUTEX_WAKE, 1 << 30, 0, 0, 0)

    def is_held(self) -> bool:
        return all(state.value >= HELD for state in self.states)

    def sum(self, word: int) -> int:
        return sum(one.value for one in self.words[word])


SENT, COMPLETED, ERRORS, NON_2XX = range(4)


class Frozen:
    """Freezes and thaws one child with all it forked, and reads its CPU time."""

    def __init__(self, child: Child) -> None:
        self.child = child
        self.freezer: int | None = None
        self.events: int | None = None
        self.stat: int | None = None
        if child.cgroup and os.path.exists(child.cgroup + "/cgroup.freeze"):
            self.freezer = os.open(child.cgroup + "/cgroup.freeze", os.O_WRONLY | os.O_CLOEXEC)
            self.events = os.open(child.cgroup + "/cgroup.events", os.O_RDONLY | os.O_CLOEXEC)
        if child.cgroup and os.path.exists(child.cgroup + "/cpu.stat"):
            self.stat = os.open(child.cgroup + "/cpu.stat", os.O_RDONLY | os.O_CLOEXEC)
        self.members = child.members()

    def freeze(self) -> None:
        if self.freezer is not None:
            os.pwrite(self.freezer, b"1", 0)
        else:
            self.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        if self.freezer is not None:
            os.pwrite(self.freezer, b"0", 0)
        else:
            self.signal(signal.SIGCONT)

    def signal(self, number: int) -> None:
        try:
            os.killpg(self.child.pid, number)
        except ProcessLookupError:  # it has ended, which shows as slices without a response
            pass

    def close(self) -> None:
        for number in (self.freezer, self.events, self.stat):
            if number is not None:
                os.close(number)

    def is_frozen(self) -> bool:
        if self.events is not None:
            return b"frozen 1" in os.pread(self.events, 256, 0)
        return all(is_stopped(pid) for pid in self.members)

    def cpu_s(self) -> float:
        if self.stat is not None:
            text = os.pread(self.stat, 1024, 0)
            return int(text.split(b"usage_usec", 1)[1].split(None, 1)[0]) / 1e6
        return sum(process_time_of(pid) for pid in self.members)


def rest(children: Sequence[Child]) -> None:
    """Freezes these children until they are thawed (`Child.thaw`) or ended; all or none."""
    frozen = [Frozen(child) for child in children]
    try:
        freeze(frozen)
    except Refused:
        for one in frozen:
            one.thaw()
        raise
    finally:
        for one in frozen:
            one.close()


def freeze(frozen: Sequence[Frozen]) -> None:
    for one in frozen:
        one.freeze()
    if not wait(lambda: all(one.is_frozen() for one in frozen), FROZEN_S):
        raise Refused("{} cannot be frozen".format(", ".join(one.child.name for one in frozen)))


def is_stopped(pid: int) -> bool:
    """Each thread of it: every one stops for itself, and the main thread may have ended."""
    states = [stat_fields(thread)[:1] for thread in threads_of(pid)]
    return all(not state or state[0] in "TtZX" for state in states)


class Side:
    """One contender: servers whose CPU time counts, and generators that hold the load."""

    def __init__(
        self, servers: Sequence[Child], loads: Sequence[Child], paths: Sequence[str]
    ) -> None:
        self.servers = [Frozen(child) for child in servers]
        self.everyone = self.servers + [Frozen(child) for child in loads]
        self.gates = [Gate(path) for path in paths]

    def go(self) -> None:
        for gate in self.gates:
            gate.go()
        for one in self.everyone:
            one.thaw()

    def hold(self, longest_s: float) -> bool:
        """Whether nothing was in flight any more within the time."""
        for gate in self.gates:
            gate.hold()
        return wait(lambda: all(gate.is_held() for gate in self.gates), longest_s)

    def freeze(self) -> None:
        freeze(self.everyone)

    def count(self, word: int = COMPLETED) -> int:
        return sum(gate.sum(word) for gate in self.gates)

    def has_answered(self) -> bool:
        return self.count() > 0

    def cpu_s(self) -> float:
        return sum(server.cpu_s() for server in self.servers)

    def has_died(self) -> bool:
        return not all(is_alive(one.child.pid) for one in self.everyone)


def wait(condition: Callable[[], bool], longest_s: float) -> bool:
    deadline = time.monotonic() + longest_s
    while not condition():
        if time.monotonic() >= deadline:
            return condition()
        time.sleep(LOOK_S)
    return True


def sleep_until(moment: float) -> None:
    while True:
        left = moment - time.monotonic()
        if left <= 0:
            return
        time.sleep(left)


def play(message: dict[str, Any], children: Sequence[Sequence[Sequence[Child]]]) -> dict[str, Any]:
    """The duet. Rows of slices: [group, side, seconds, responses, CPU seconds, seconds and
    responses of the part that counts for the rate, whether it was drained, seconds to be frozen].

    `children` is a pair of (servers, loads); message has the control files, times and the core.
    """
    sides: list[Side] = []
    try:
        for number, (servers, loads) in enumerate(children):
            sides.append(Side(servers, loads, message["controls"][number]))
        is_realtime = rise(message.get("core"))
        taken = take_turns(sides, message)
    finally:
        for side in sides:
            try:
                side.go()
            except OSError:  # it has ended; its exit says why
                pass
    how = "cgroup.freeze" if sides[0].servers[0].freezer is not None else "SIGSTOP"
    totals = [[side.count(word) for word in (SENT, COMPLETED, ERRORS, NON_2XX)] for side in sides]
    return {"how": how, "realtime": is_realtime, "totals": totals, **taken}


def rise(core: int | None) -> bool:
    """Moves to the generators' core, before its other tasks; whether this user may."""
    gc.disable()  # no pause between two readings; the process is short
    LIBC.prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)
    try:
        if core is not None:
            os.sched_setaffinity(0, {core})
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(FIFO_PRIORITY))
    except OSError:
        return False
    return True


def take_turns(sides: Sequence[Side], message: dict[str, Any]) -> dict[str, Any]:
    """The rows of slices, the seconds that they took, and how many of these the pair went on."""
    for side in sides:
        wait(side.has_answered, FOUND_S)
    for side in sides:
        side.hold(message["drain_s"])
        side.freeze()
    chance = random.Random(message["seed"])
    marks = [(side.count(), side.cpu_s()) for side in sides]
    rows: list[list[float]] = []
    longer = Longer(message.get("enough"))
    begin = time.monotonic()
    end = begin + message["length_s"]
    answers = True
    while answers and (time.monotonic() < end or longer.goes_on(rows, time.monotonic() - end)):
        answers = one_group(sides, marks, rows, chance.randrange(2), message)
    now = time.monotonic()
    return {"slices": rows, "seconds": now - begin, "longer_s": longer.taken_s(now - end)}


def one_group(
    sides: Sequence[Side], marks: list[tuple[int, float]], rows: list[list[float]], first: int,
    message: dict[str, Any],
) -> bool:  # fmt: skip
    """Adds the slices of a group to the rows; whether more responses may come."""
    group = int(rows[-1][0]) + 1 if rows else 0
    for number in (first, 1 - first, 1 - first, first):
        row, marks[number] = one_slice(sides[number], marks[number], message)
        rows.append([group, number, *row])
        if row[1] == 0 and (is_silent(rows) or sides[number].has_died()):
            return False
    return True


def is_silent(rows: Sequence[Sequence[float]]) -> bool:
    last = rows[-SILENT_SLICES:]
    return len(last) == SILENT_SLICES and all(row[3] == 0 for row in last)


class Longer:
    """Whether a pair goes on beyond its time, as it has no figure yet by the rule of
    analysis/duet.py. It looks at what drained and never at a result. For a few groups more it goes
    on until they are there. Where too many did not drain it takes all the time that it may: with
    an end as soon as few enough are left out, chance alone would find such a moment."""

    def __init__(self, wanted: dict[str, Any] | None) -> None:
        self.wanted = wanted
        self.is_to_the_end = False
        self.since_s: float | None = None  # the first moment beyond its time at which it went on

    def goes_on(self, rows: Sequence[Sequence[float]], beyond_s: float) -> bool:
        """With these slices, so far beyond its time."""
        more = self.needs_more(rows, beyond_s)
        if more and self.since_s is None:
            self.since_s = beyond_s
        return more

    def taken_s(self, beyond_s: float) -> float:
        return 0.0 if self.since_s is None else beyond_s - self.since_s

    def needs_more(self, rows: Sequence[Sequence[float]], beyond_s: float) -> bool:
        """Where no group drains, more of them do not help."""
        if self.wanted is None or beyond_s >= self.wanted["more_s"]:
            return False
        groups = [rows[number : number + 4] for number in range(0, len(rows) - 3, 4)]
        if not any(map(is_drained, groups)):
            return False
        counted = settled(groups, self.wanted)
        drained = sum(map(is_drained, counted))
        if len(counted) - drained > self.wanted["left_out"] * len(counted):
            self.is_to_the_end = True
        return self.is_to_the_end or bool(drained < self.wanted["groups"])


def is_drained(group: Sequence[Sequence[float]]) -> bool:
    return all(row[7] for row in group)


def settled(
    groups: Sequence[Sequence[Sequence[float]]], wanted: dict[str, Any]
) -> Sequence[Sequence[Sequence[float]]]:
    """Without the groups of the first moments."""
    spent_s = [sum(row[2] + row[8] for row in group) for group in groups]
    settle_s = min(wanted["settle_s"], wanted["settle_share"] * sum(spent_s))
    for number, seconds in enumerate(spent_s):
        settle_s -= seconds
        if settle_s < 0:
            return groups[number:]
    return []


def one_slice(
    side: Side, mark: tuple[int, float], message: dict[str, Any]
) -> tuple[list[float], tuple[int, float]]:
    count, cpu_s = mark
    began = time.monotonic()
    side.go()
    sleep_until(began + message["skip_s"])
    counted_from, count_from = time.monotonic(), side.count()
    sleep_until(began + message["slice_s"])
    counted_to, count_to = time.monotonic(), side.count()
    is_drained = side.hold(message["drain_s"])
    held = time.monotonic()
    side.freeze()
    frozen = time.monotonic()
    fresh = (side.count(), side.cpu_s())
    row = [held - began, fresh[0] - count, fresh[1] - cpu_s, counted_to - counted_from,
           count_to - count_from, int(is_drained), frozen - held]  # fmt: skip
    return [round(value, 7) for value in row], fresh


def check_alone(cores: Sequence[int], ours: Collection[int]) -> None:
    """Refuses to take turns while a program with real-time priority uses these cores: it would
    stop one contender and not the other, and delay the controller."""
    began = time.monotonic()
    before = realtime_tasks(set(cores), ours)
    if not before:
        return
    time.sleep(BUSY_LOOK_S)
    limit_ns = BUSY_SHARE * (time.monotonic() - began) * CLOCK_NS  # a busy machine sleeps longer
    busy = [
        f"{read_text(f'/proc/{task}/comm').strip()} (process {task})"
        for task, used_ns in before.items()
        if cpu_ns(task) - used_ns > limit_ns
    ]
    if busy:
        raise Refused(
            "{}: real-time priority on a measured core, so contenders cannot take turns "
            '(end it, or set plan.method = "trials")'.format(", ".join(busy))
        )


def realtime_tasks(cores: set[int], ours: Collection[int]) -> dict[int, int]:
    """Threads of other programs that may stop ours: thread id → CPU time so far in ns."""
    policies: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) in ours:
            continue
        for thread in threads_of(int(entry)):
            fields = stat_fields(thread)
            if len(fields) <= POLICY or int(fields[FLAGS]) & PF_KTHREAD:
                continue
            if int(fields[POLICY]) in REALTIME_POLICIES and cores & allowed(thread):
                policies[thread] = cpu_ns(thread)
    return policies


def allowed(task: int) -> set[int]:
    try:
        return os.sched_getaffinity(task)
    except OSError:
        return set()


def cpu_ns(task: int) -> int:
    fields = read_text(f"/proc/{task}/schedstat").split()
    return int(fields[0]) if fields else 0


class Guard:
    """A process that ends frozen children when the agent is gone without having ended them: the
    kernel ends the direct ones with it, and what they forked would stay frozen for ever."""

    def __init__(self, children: Sequence[Child]) -> None:
        self.children = {child.name: child for child in children}
        known = [(child, start_ticks(child.pid)) for child in children]
        read_end, self.pipe = os.pipe()
        if os.fork() == 0:
            try:
                watch(read_end, known)
            finally:
                os._exit(0)
        os.close(read_end)

    def dismiss(self) -> None:
        os.write(self.pipe, b".")
        os.close(self.pipe)


def watch(pipe: int, known: Sequence[tuple[Child, int | None]]) -> None:
    """Until the other end of the pipe says that all is well, or is gone."""
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    signal.set_wakeup_fd(-1)
    # The agent's locks and pipes are to end with the agent.
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        if descriptor != pipe:
            try:
                os.close(descriptor)
            except OSError:  # the folder that was listed
                pass
    if os.read(pipe, 1):
        return
    for child, began in known:
        if start_ticks(child.pid) in (None, began):  # else another process has the number by now
            child.kill()
            child.thaw()
