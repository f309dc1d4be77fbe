"""Part of the agent: changes settings of the machine for a run, and restores them.

What is to change is on the disk before the first change, with what it was, so that it can be put
back whatever happens: by the agent at its end, else by the next run or `wirespeed recover`.
Standard library of Python 3.9 only: see main.py.
"""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from wirespeed.agent import switches
from wirespeed.agent.children import (
    Refused,
    is_alive,
    read_text,
    start_ticks,
    stat_fields,
    threads_of,
    write_text,
)

PF_NO_SETAFFINITY = 0x04000000  # kernel threads that belong to their core
WORKQUEUE = "/sys/devices/virtual/workqueue/cpumask"
NEW_THREADS_PASSES = 5  # threads are born while others are moved; no program forks faster than this
# Bounds, of which more does no harm: a machine that gives more than asked for keeps its own.
BOUNDS = ("max", "nr_open", "backlog", "somaxconn")
SYSCTL_NAME = re.compile(r"^[a-z][a-z0-9_-]*([./][A-Za-z0-9_-]+)+$")


class Tuning:
    """The changes of one agent; `state` is the file with the earlier values."""

    def __init__(self, state: str) -> None:
        self.state = state
        self.record: dict[str, Any] | None = None

    def apply(self, order: dict[str, Any]) -> dict[str, Any]:
        """Sets sysctls and switches, and moves others from the cores `clear` to the cores `to`.

        `under` limits the threads to one process and its descendants; 0 means all but process 1,
        which looks after the machine. What is `standing` outlives the agent.
        """
        clear, to, under = order["clear"], order["to"], order["under"]
        left = restore(self.state)
        if left and left["by"]:
            raise Refused("process {by} has tuned this machine and still runs".format(**left))
        if left and left.get("standing"):
            raise Refused("this machine is tuned already; `wirespeed tune restore` puts it back")
        report: dict[str, Any] = {
            "sysctl": [],
            "irqs": 0,
            "threads": 0,
            "refused": [],
            "pinned": [],
            "switches": [],
        }
        files = self._sysctls(order["sysctl"], report)
        turned = self._switches(order.get("switches", ()), report)
        threads = movable(clear, to, under, report) if clear else []
        if clear and not under:
            files += _interrupts(clear, to)
        self.record = {
            "boot": boot_id(),
            "by": [os.getpid(), start_ticks(os.getpid())],
            "since": uptime_ticks(),
            "to": to,
            "under": under,
            "files": [one for one in files if one[1] != one[2]],
            "threads": threads,
            "switches": turned,
            "standing": bool(order.get("standing")),
        }
        save(self.state, self.record)
        self._write(report)
        return report

    def _sysctls(self, sysctls: dict[str, Any], report: dict[str, Any]) -> list[list[str]]:
        """[[path, was, new]] of what this machine has and may take."""
        files: list[list[str]] = []
        for name, value in sorted(sysctls.items()):
            path = sysctl_path(name)
            was, new = words_of(read_text(path)), words_of(str(value))
            problem = "there is none here" if not was else unfit(name, value)
            if problem:
                report["refused"].append([name, problem])
            elif not is_enough(name, was, new):
                files.append([path, was, new])
        return files

    def _switches(
        self, settings: Sequence[Sequence[Any]], report: dict[str, Any]
    ) -> list[list[Any]]:
        """[[switch, was, new]] of what this host has and what is not so already."""
        changes: list[list[Any]] = []
        for *switch, new in settings:
            was = switches.now(switch)
            if was is None:
                report["refused"].append([switches.name_of(switch), "there is none here"])
            elif was != str(new):
                changes.append([switch, was, str(new)])
        return changes

    def _write(self, report: dict[str, Any]) -> None:
        assert self.record
        for switch, was, new in self.record["switches"]:
            problem = switches.turn(switch, new)
            name = switches.name_of(switch)
            if problem:
                report["refused"].append([name, problem])
            else:
                report["switches"].append([name, was, self._kept("switches", switch, new)])
        for path, was, new in self.record["files"]:
            is_sysctl = path.startswith("/proc/sys/")
            try:
                write_text(path, new)
            except OSError as error:  # interrupts that the kernel manages stay where they are
                if is_sysctl:
                    report["refused"].append([sysctl_name(path), error.strerror])
                continue
            if is_sysctl:
                report["sysctl"].append([sysctl_name(path), was, self._kept("files", path, new)])
            elif path != WORKQUEUE:
                report["irqs"] += 1
        for tid, ticks, cores in self.record["threads"]:
            if place(tid, ticks, sorted(set(cores) & set(self.record["to"]))):
                report["threads"] += 1

    def _kept(self, kind: str, what: Any, new: str) -> str:
        """The value after setting `new`: kernel and cards round some. It is on the disk,
        as what differs from the record at the end was set by somebody else."""
        assert self.record
        now = words_of(read_text(what)) if kind == "files" else switches.now(what)
        if now and now != new:
            for entry in self.record[kind]:
                if entry[0] == what:
                    entry[2] = now
            save(self.state, self.record)
        return now or new

    def restore(self) -> dict[str, Any] | None:
        self.record = None
        return restore(self.state)


def state_file() -> str:
    """In memory that a restart empties; next to the lock of runs."""
    if "WIRESPEED_TUNED" in os.environ:
        return os.environ["WIRESPEED_TUNED"]
    user = os.geteuid()
    folder = "/run" if user == 0 else f"/run/user/{user}"
    return (
        folder + "/wirespeed-tuned.json"
        if os.path.isdir(folder)
        else f"/tmp/wirespeed-tuned-{user}.json"
    )


def set_own(sysctls: dict[str, Any]) -> dict[str, Any]:
    """Sets a namespace's own settings, which end with it: nothing has to be put back."""
    report: dict[str, Any] = {"sysctl": [], "refused": []}
    for name, value in sorted(sysctls.items()):
        path = sysctl_path(name)
        was, new = words_of(read_text(path)), words_of(str(value))
        if not was:
            report["refused"].append([name, "not a namespace's own"])
        elif not is_enough(name, was, new):
            try:
                write_text(path, new)
                report["sysctl"].append([name, was, words_of(read_text(path))])
            except OSError as error:
                report["refused"].append([name, error.strerror])
    return report


def status(state: str) -> dict[str, Any] | None:
    """[[name, was, set to, is now], …] of what is changed at present; None when nothing is."""
    record = load(state)
    if record is None or record["boot"] != boot_id():
        return None
    rows = [
        [sysctl_name(path), was, new, words_of(read_text(path))]
        for path, was, new in record["files"]
        if path.startswith("/proc/sys/")
    ]
    for switch, was, new in record["switches"]:
        rows.append([switches.name_of(switch), was, new, switches.now(switch) or "gone"])
    by, ticks = record["by"]
    is_at_work = start_ticks(by) == ticks and is_alive(by)
    return {
        "rows": rows,
        "threads": len(record["threads"]),
        "standing": record["standing"],
        "by": by if is_at_work else 0,
    }


def movable(
    clear: Sequence[int], to: Sequence[int], under: int, report: dict[str, Any]
) -> list[list[Any]]:
    """[[thread, its start, its cores]] of what runs on `clear` and may run on `to`."""
    moves: list[list[Any]] = []
    for tgid, tid in threads_of_machine(under):
        fields = stat_fields(tid)
        cores = cores_of(tid)
        if not fields or int(fields[6]) & PF_NO_SETAFFINITY or not set(cores) & set(clear):
            continue
        if set(cores) & set(to):
            moves.append([tid, int(fields[19]), cores])
        elif tgid == tid:
            report["pinned"].append(name_of(tid))
    return moves


def threads_of_machine(under: int) -> Iterator[tuple[int, int]]:
    """(process, thread) of all, or of `under` and what descends from it; never of process 1."""
    parents = parents_of_all()
    for tgid in parents:
        if tgid == 1 or (under and under not in ancestry(tgid, parents)):
            continue
        for tid in threads_of(tgid):
            yield tgid, tid


def parents_of_all() -> dict[int, int]:
    """process → its parent"""
    parents: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        fields = stat_fields(int(entry)) if entry.isdigit() else None
        if fields:
            parents[int(entry)] = int(fields[1])
    return parents


def ancestry(pid: int, parents: dict[int, int]) -> list[int]:
    """The process itself, its parent, and so on."""
    pids: list[int] = []
    while pid in parents and pid not in pids:
        pids.append(pid)
        pid = parents[pid]
    return pids


def _interrupts(clear: Sequence[int], to: Sequence[int]) -> list[list[str]]:
    """[[path, was, new]] for interrupts and unbound kernel work that may reach these cores."""
    files: list[list[str]] = []
    for number in os.listdir("/proc/irq"):
        path = f"/proc/irq/{number}/smp_affinity_list"
        cores = cores_in(read_text(path))
        if set(cores) & set(clear):
            new = sorted(set(cores) & set(to)) or to
            files.append([path, list_of(cores), list_of(new)])
    was = words_of(read_text(WORKQUEUE))
    if was:
        files.append([WORKQUEUE, was, mask_of(to)])
    return files


def restore(state: str, even_standing: bool = False) -> dict[str, Any] | None:
    """Restores the values of a state file; None without one, else what was done.

    {"by": N} alone: the agent N that wrote it still runs, and nothing is touched. The same holds
    for settings that are meant to stand, unless they are asked for.
    """
    record = load(state)
    if record is None:
        return None
    by, ticks = record["by"]
    is_other = by != os.getpid() and start_ticks(by) == ticks and is_alive(by)
    if is_other and record["boot"] == boot_id():
        return {"by": by}
    if record.get("standing") and not even_standing and record["boot"] == boot_id():
        return {"by": 0, "standing": True}
    done: dict[str, Any] = {"by": 0, "files": 0, "threads": 0, "kept": []}
    if record["boot"] == boot_id():  # after a restart of the machine all is as it was anyway
        _restore_files(record, done)
        _restore_switches(record, done)
        _restore_threads(record, done)
    try:
        os.unlink(state)
    except OSError as error:  # two may put back the same at once
        if error.errno != errno.ENOENT:
            raise
    return done


def _restore_files(record: dict[str, Any], done: dict[str, Any]) -> None:
    for path, was, new in record["files"]:
        now = words_of(read_text(path))
        if path.endswith("_list"):
            now = list_of(cores_in(now))
        if now == was:
            continue
        if path.startswith("/proc/sys/") and not is_as_set(path, now, new):
            done["kept"].append(f"{sysctl_name(path)} is {now}: somebody else set it")
            continue
        try:
            write_text(path, was)
            done["files"] += 1
        except OSError as error:
            if path.startswith("/proc/sys/"):
                done["kept"].append(f"{sysctl_name(path)}: {error.strerror}")


def _restore_switches(record: dict[str, Any], done: dict[str, Any]) -> None:
    for switch, was, new in record.get("switches", ()):
        now = switches.now(switch)
        if now == was:
            continue
        name = switches.name_of(switch)
        if now != new:
            done["kept"].append("{} is {}: somebody else set it".format(name, now or "gone"))
            continue
        problem = switches.turn(switch, was)
        if problem:
            done["kept"].append(f"{name}: {problem}")
        else:
            done["files"] += 1


def is_as_set(path: str, now: str, new: str) -> bool:
    """Huge pages are given as far as there is memory, so fewer than requested count too."""
    return now == new or (path.endswith("hugepages") and int(now) < int(new))


def _restore_threads(record: dict[str, Any], done: dict[str, Any]) -> None:
    """Threads that were moved, and their children since."""
    before = {tid: cores for tid, ticks, cores in record["threads"] if start_ticks(tid) == ticks}
    to = set(record["to"])
    for tid, ticks, cores in record["threads"]:
        if set(cores_of(tid)) == set(cores) & to and place(tid, ticks, cores):
            done["threads"] += 1
    for _ in range(NEW_THREADS_PASSES):
        moved = 0
        for tid, cores in born_since(record, before):
            moved += place(tid, start_ticks(tid), cores)
        done["threads"] += moved
        if not moved:
            return


def born_since(
    record: dict[str, Any], before: dict[int, list[int]]
) -> Iterator[tuple[int, list[int]]]:
    """(thread, the cores that whoever started it had) of threads that inherited the narrow set."""
    sets = {tuple(sorted(set(cores) & set(record["to"]))) for _, _, cores in record["threads"]}
    parents = parents_of_all()
    for tgid, tid in threads_of_machine(record["under"]):
        ticks = start_ticks(tid)
        is_new = ticks is not None and ticks >= record["since"] and tid not in before
        if not is_new or tuple(cores_of(tid)) not in sets:
            continue
        older = next((pid for pid in ancestry(tgid, parents) if pid in before), None)
        if older is not None:
            yield tid, before[older]
        elif parents.get(tgid) == 1:  # it outlived whoever started it
            yield tid, cores_of(1)


def place(tid: int, ticks: int | None, cores: Collection[int]) -> bool:
    """Pins one thread, if it is still the one that was meant and if we may."""
    if not cores or ticks is None or start_ticks(tid) != ticks:
        return False
    try:
        os.sched_setaffinity(tid, cores)
    except OSError:
        return False
    return True


# -- small readings -------------------------------------------------------------------------


def sysctl_path(name: str) -> str:
    if not SYSCTL_NAME.match(name):
        raise Refused(f"{name} is not the name of a sysctl")
    # As in sysctl(8): a name with slashes may hold dots, for example of an interface.
    return "/proc/sys/" + (name if "/" in name else name.replace(".", "/"))


def sysctl_now(name: str) -> str:
    """Its value as one line of words; empty where this machine has no such setting."""
    return words_of(read_text(sysctl_path(name)))


def sysctl_name(path: str) -> str:
    return path[len("/proc/sys/") :].replace("/", ".")


def is_enough(name: str, was: str, new: str) -> bool:
    if was == new:
        return True
    is_bound = name.endswith(BOUNDS) and was.isdigit() and new.isdigit()
    return is_bound and int(was) >= int(new)


def unfit(name: str, value: Any) -> str:
    """Why a value would harm this machine; empty when it would not."""
    if not name.endswith("nr_hugepages"):
        return ""
    memory = read_text("/proc/meminfo")
    page_kib = re.search(r"Hugepagesize:\s*(\d+)", memory)
    free_kib = re.search(r"MemAvailable:\s*(\d+)", memory)
    if page_kib and free_kib and int(value) * int(page_kib.group(1)) > int(free_kib.group(1)) // 2:
        return f"{value} pages would take more than half of the free memory"
    return ""


def words_of(text: str) -> str:
    return " ".join(text.split())


def cores_of(tid: int) -> list[int]:
    try:
        return sorted(os.sched_getaffinity(tid))
    except OSError:
        return []


def cores_in(text: str) -> list[int]:
    """0-2,5 → [0, 1, 2, 5]"""
    cores: list[int] = []
    for piece in filter(None, text.strip().split(",")):
        low, _, high = piece.partition("-")
        cores += range(int(low), int(high or low) + 1)
    return cores


def mask_of(cores: Iterable[int]) -> str:
    """In groups of 32 bits, the highest first, as the kernel prints masks."""
    bits = f"{sum(1 << core for core in cores):x}"
    groups = [bits[max(0, end - 8) : end] for end in range(len(bits), 0, -8)]
    return ",".join(reversed(groups))


def list_of(cores: Iterable[int]) -> str:
    return ",".join(map(str, cores))


def name_of(pid: int) -> str:
    return read_text(f"/proc/{pid}/comm").strip()


def boot_id() -> str:
    return read_text("/proc/sys/kernel/random/boot_id").strip()


def uptime_ticks() -> int:
    return int(float(read_text("/proc/uptime").split()[0]) * os.sysconf("SC_CLK_TCK"))


def save(path: str, record: dict[str, Any]) -> None:
    """Whole or not at all, and on the disk before anything changes."""
    temporary = path + ".new"
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "w") as file:
        json.dump(record, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def load(path: str) -> dict[str, Any] | None:
    """The record, if this user wrote it: another's file could ask for anything."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(handle) as file:
        if os.fstat(file.fileno()).st_uid != os.geteuid():
            return None
        try:
            record: dict[str, Any] = json.load(file)
        except ValueError:
            return None
    return record
