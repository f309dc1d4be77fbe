"""Part of the agent: the processor's counters of a process and of all that it forks.

perf_event_open(2), on the process's cgroup and the cores that it may use; without a cgroup on each
of its threads and on all threads and processes that they start. A switch between a counted process
and others costs up to a microsecond more, so the lab asks for this in windows of their own.
Standard library of Python 3.9 only: see main.py.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Sequence

from wirespeed.agent.children import LIBC, Child, Refused, threads_of

# The number of the system call (asm/unistd.h).
SYSCALLS = {"x86_64": 298, "aarch64": 241, "riscv64": 241, "ppc64le": 319, "s390x": 331}
# name → (type, config) of linux/perf_event.h. The last two the kernel counts without hardware.
HARDWARE, SOFTWARE = 0, 1
EVENTS = {
    "cycles": (HARDWARE, 0),
    "instructions": (HARDWARE, 1),
    "cache-misses": (HARDWARE, 3),
    "task-clock": (SOFTWARE, 1),
    "context-switches": (SOFTWARE, 3),
}
ATTRIBUTES = struct.Struct("=IIQQQQQIIQ")  # perf_event_attr of its first version: 64 bytes
INHERIT = 1 << 1
WITH_TIMES = 1 | 2  # PERF_FORMAT_TOTAL_TIME_ENABLED, _RUNNING: events may share a counter
OF_CGROUP, CLOSE_ON_EXEC = 1 << 2, 1 << 3
NO_HARDWARE = (errno.ENOENT, errno.EOPNOTSUPP, errno.ENODEV)
NOT_ALLOWED = (errno.EACCES, errno.EPERM)


def missing(names: Sequence[str]) -> str:
    """Why these events cannot be counted here; "" when they can."""
    unknown = [name for name in names if name not in EVENTS]
    if unknown:
        raise Refused("event {}: unknown ({})".format(unknown[0], ", ".join(EVENTS)))
    for name in names:
        try:
            os.close(opened(name, 0, -1, INHERIT))
        except OSError as error:
            if error.errno in NO_HARDWARE:
                return "this machine has no counters of the processor (usual for virtual machines)"
            if error.errno in NOT_ALLOWED:
                return "counting the processor's events needs root"
            return f"counting the processor's events: {error.strerror}"
    return ""


class Counters:
    """What a child has used since this was made; it keeps files open until `close`."""

    def __init__(self, child: Child, names: Sequence[str]) -> None:
        self.files: dict[str, list[int]] = {name: [] for name in names}
        try:
            if not (child.cgroup and self._of_cgroup(child)):
                self._of_threads(child)
        except OSError:
            self.close()
            raise

    def _of_cgroup(self, child: Child) -> bool:
        """False where only root may, or where another tree of cgroups has the controller."""
        assert child.cgroup
        folder = os.open(child.cgroup, os.O_RDONLY | os.O_CLOEXEC)
        try:
            for core in sorted(os.sched_getaffinity(child.pid)):
                for name, files in self.files.items():
                    files.append(opened(name, folder, core, 0, OF_CGROUP))
        except OSError:
            self.close()
            return False
        finally:
            os.close(folder)
        return True

    def _of_threads(self, child: Child) -> None:
        for pid in child.members():
            for thread in threads_of(pid):
                for name, files in self.files.items():
                    try:
                        files.append(opened(name, thread, -1, INHERIT))
                    except ProcessLookupError:  # it has ended meanwhile
                        pass

    def read(self) -> dict[str, int]:
        """{event: how often}; what had a counter for a part of the time only is extrapolated."""
        return {name: sum(map(count, files)) for name, files in self.files.items()}

    def close(self) -> None:
        for files in self.files.values():
            while files:
                os.close(files.pop())


def opened(name: str, target: int, core: int, bits: int, flags: int = 0) -> int:
    """A file that counts one event of a process, or of a cgroup on one core."""
    kind, config = EVENTS[name]
    attributes = ATTRIBUTES.pack(kind, ATTRIBUTES.size, config, 0, 0, WITH_TIMES, bits, 0, 0, 0)
    number = SYSCALLS.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    arguments = [ctypes.c_long(one) for one in (target, core, -1, flags | CLOSE_ON_EXEC)]
    handle = int(LIBC.syscall(ctypes.c_long(number), ctypes.c_char_p(attributes), *arguments))
    if handle < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return handle


def count(handle: int) -> int:
    found, enabled, running = map(int, struct.unpack("=QQQ", os.read(handle, 24)))
    return found * enabled // running if running else 0
