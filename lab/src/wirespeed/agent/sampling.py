"""Part of the agent: samples of /proc while a trial runs, and the calibration loop.

Standard library of Python 3.9 only: see main.py.
"""

from __future__ import annotations

import gzip
import os
import resource
import time
from collections.abc import Collection, Sequence
from functools import cache
from typing import Any

from wirespeed.agent import clock, quota
from wirespeed.agent.children import Child, Refused, read_text, threads_of
from wirespeed.agent.counters import Counters

SAMPLES_MAX = 100000  # bounds memory: 2.7 hours at 10 Hz
READ_BYTES, READ_BYTES_MAX = 1 << 16, 1 << 22
THREADS_MAX = 512  # of a process: 10 µs each
CPUCLOCK_SCHED = 2  # linux/posix-timers.h: nanoseconds as the scheduler counts them
QUOTA = "quota"  # among the texts of a sample: how long a CPU quota held programs back
LAB = "lab"  # the agent and the program that started it, among the processes of a sample


class Sampler:
    """Reads /proc with files kept open: one pread each, 0.1 ms a sample."""

    SYSTEM = (
        "/proc/stat",
        "/proc/loadavg",
        "/proc/net/dev",
        "/proc/meminfo",
        "/proc/pressure/cpu",
        "/proc/pressure/io",
        "/proc/net/snmp",
    )

    def __init__(self, lab_pid: int | None = None) -> None:
        self.files: dict[str, int] = {}
        self.samples: list[dict[str, Any]] = []
        self.every_s: float | None = None
        self.due: float | None = None
        self.instants: list[float] = []
        self.counters: dict[str, Counters] = {}
        self.lab = Lab(lab_pid)

    def start(
        self,
        every_s: float,
        children: Sequence[Child],
        instants: Sequence[float],
        lab_core: int | None = None,
        paths: Sequence[str] | None = None,
        counted: dict[str, Any] | None = None,
    ) -> None:
        """Samples every `every_s` and at the instants; `paths` are the files of SYSTEM to read,
        `counted` has the names of the children whose events are counted, and the events."""
        self.stop()
        self.counters = counters_of(children, **counted) if counted else {}
        self.lab.move_to(lab_core)
        chosen = self.SYSTEM if paths is None else [path for path in self.SYSTEM if path in paths]
        named: dict[str, str | None] = {path: path for path in chosen}
        if paths is None:
            named[QUOTA] = quota.limit_text()
        opened = {name: open_fd(path) for name, path in named.items() if path}
        self.files = {name: fd for name, fd in opened.items() if fd is not None}
        self.children = children
        self.cpu = {c.name: open_fd(c.cgroup + "/cpu.stat") if c.cgroup else None for c in children}
        self.rss = {
            c.name: [
                fd
                for fd in (open_fd(f"/proc/{pid}/statm") for pid in c.members())
                if fd is not None
            ]
            for c in children
        }
        self.samples = []
        self.every_s = every_s
        # The edges of the measured window are sampled exactly, whatever the beat.
        self.instants = sorted(t for t in instants if t > clock.now())
        self.take()

    def stop(self) -> list[dict[str, Any]]:
        self.due = None
        if self.every_s is not None:
            handles = list(self.files.values()) + [fd for fd in self.cpu.values() if fd is not None]
            for fd in handles + [fd for fds in self.rss.values() for fd in fds]:
                os.close(fd)
            for counters in self.counters.values():
                counters.close()
            self.lab.move_back()
        self.every_s = None
        samples, self.samples = self.samples, []
        for sample in samples:  # not in the window: there every microsecond is a disturbance
            sample["text"] = {
                path: text.decode("utf-8", "replace") for path, text in sample["text"].items()
            }
            sample["interrupts_apart"] = accounts_interrupts_apart()
        return samples

    def take(self) -> None:
        assert self.every_s is not None
        now = clock.now()
        is_edge = bool(self.instants) and self.instants[0] <= now
        if len(self.samples) < SAMPLES_MAX:
            self.samples.append(self.read())
            if is_edge:
                self.samples[-1].update(self.threads())
        while self.instants and self.instants[0] <= now:
            self.instants.pop(0)
        self.due = min([now + self.every_s, *self.instants[:1]])

    def read(self) -> dict[str, Any]:
        _, at_s, sample = clock.timed(self._read)
        sample["t_ns"] = int(clock.STEADY.at(at_s) * 1e9)
        return sample

    def threads(self) -> dict[str, Any]:
        """CPU nanoseconds, and how often it got a core: {process: {thread: …}} of both.

        Read at the window's edges only: one full thread of many is a limit that the process's own
        sum does not show.
        """
        used: dict[str, dict[int, int]] = {}
        switches: dict[str, dict[int, int]] = {}
        for child in self.children:
            own_used = used.setdefault(child.name, {})
            own_switches: dict[int, int] = {}
            for pid in child.members():
                for tid in threads_of(pid)[:THREADS_MAX]:
                    words = read_text(f"/proc/{pid}/task/{tid}/schedstat").split()
                    if words:
                        own_used[tid], own_switches[tid] = int(words[0]), int(words[2])
            switches[child.name] = own_switches
        return {"threads": used, "switches": switches}

    def _read(self) -> dict[str, Any]:
        text = {path: pread(fd) for path, fd in self.files.items()}
        sample: dict[str, Any] = {"text": text, "process": {}}
        for child in self.children:
            fd = self.cpu[child.name]
            used = pread(fd).split() if fd is not None else []
            cpu_us = int(used[1]) if len(used) > 1 else child.cpu_us()
            sizes = [pread(fd).split() for fd in self.rss[child.name]]  # empty: it has ended
            pages = sum(int(words[1]) for words in sizes if words)
            sample["process"][child.name] = [cpu_us, pages * resource.getpagesize()]
        sample["process"][LAB] = [self.lab.cpu_us(), 0]
        if self.counters:
            sample["counts"] = {name: counter.read() for name, counter in self.counters.items()}
        return sample


@cache
def accounts_interrupts_apart() -> bool:
    """Whether the kernel has CONFIG_IRQ_TIME_ACCOUNTING; False where it does not say."""
    try:
        with gzip.open("/proc/config.gz") as file:
            text = file.read()
    except OSError:
        text = read_text(f"/boot/config-{os.uname().release}").encode()
    return b"CONFIG_IRQ_TIME_ACCOUNTING=y" in text


def counters_of(
    children: Sequence[Child], names: Collection[str], events: Sequence[str]
) -> dict[str, Counters]:
    """{process: its counters}, all or none."""
    found: dict[str, Counters] = {}
    try:
        for child in children:
            if child.name in names:
                found[child.name] = Counters(child, events)
    except OSError as error:
        for counters in found.values():
            counters.close()
        raise Refused(f"events cannot be counted: {error.strerror}") from None
    return found


class Lab:
    """The lab's own processes: their use is separated from that of other processes.

    While a window is measured they stay on one core, so that it is known which one they disturb.
    The lab itself is one of them only on the machine where it runs, where `lab_pid` names it.
    """

    def __init__(self, lab_pid: int | None) -> None:
        self.pids = [os.getpid()] + ([lab_pid] if lab_pid else [])
        self.before: list[tuple[int, set[int]]] = []
        self.parent = lab_pid

    def move_to(self, core: int | None) -> None:
        if core is None:
            return
        for tid in [tid for pid in self.pids for tid in threads_of(pid)]:
            try:
                mask = os.sched_getaffinity(tid)
                os.sched_setaffinity(tid, [core])
                self.before.append((tid, mask))
            except OSError:  # the core is not ours, or the thread has ended: nothing moves
                pass

    def move_back(self) -> None:
        before, self.before = self.before, []
        for tid, mask in before:
            try:
                os.sched_setaffinity(tid, mask)
            except OSError:
                pass

    def cpu_us(self) -> int:
        """Of all threads, ended ones included."""
        used_s = time.process_time() + (process_time_of(self.parent) if self.parent else 0.0)
        return int(used_s * 1e6)


def process_time_of(pid: int) -> float:
    """CPU seconds of another process: its clock costs one call, where /proc has a file a thread.

    The number of the clock is what clock_getcpuclockid(3) makes of a process's.
    """
    try:
        return time.clock_gettime((~pid << 3) | CPUCLOCK_SCHED)
    except OSError:  # it has ended
        return 0.0


def open_fd(path: str) -> int | None:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


def pread(fd: int) -> bytes:
    try:
        data = os.pread(fd, READ_BYTES, 0)
        # /proc/stat of hundreds of cores and their interrupts; again from its start, so that it is
        # one reading.
        return data if len(data) < READ_BYTES else os.pread(fd, READ_BYTES_MAX, 0)
    except OSError:  # a process that has ended
        return b""


ARITHMETIC_ROUNDS = 150000  # about 10 ms each: long enough to time, short against a trial
SYSCALL_ROUNDS = 25000


def calibration_ms(core: int) -> float | None:
    """Times fixed work on one core: it moves when the host is slow, which the guest cannot see.

    Its own CPU time counts, not the clock on the wall: a server that still compiles or polls on
    that core shares it with the loop, and that says nothing about the host.
    """
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.sched_setaffinity(0, [core])
            started = time.process_time()
            total = 0
            for number in range(ARITHMETIC_ROUNDS):
                total += number * number % 7
            for _ in range(SYSCALL_ROUNDS):
                os.getppid()
            os.write(write_end, b"%.4f" % ((time.process_time() - started) * 1e3))
        finally:
            os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        text = pipe.read()
    os.waitpid(pid, 0)
    return float(text) if text else None
