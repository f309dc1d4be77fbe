#!/usr/bin/env python3
"""Clears a core during a measurement: moves threads to other cores, and moves them back afterwards.

Every thread that may run on the core and on another one, kernel threads included, is restricted to the
other cores. Supervisors of the machine are not moved: process 1, the ancestors of this command, and
programs that run from memory alone, with their children. Threads that belong to the core (its interrupts,
its kworkers) cannot be moved. Changes are first written to a file, so that they can be undone after a crash.

    load/bench/isolate.py --core 1 -- COMMAND ...
    load/bench/isolate.py --restore
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

STATE = Path("/run/wirespeed-isolate.json")
#: The parent of kernel threads: its new threads may need the core.
KTHREADD = 2


def status_of(process):
    """(name, parent, time of birth) of a /proc folder; nothing if it has ended."""
    try:
        text = (process / "stat").read_text()
    except OSError:
        return None
    name, _, rest = text.partition("(")[2].rpartition(")")
    fields = rest.split()
    return name, int(fields[1]), int(fields[19])


def ancestors(pid):
    """The processes above one."""
    found = set()
    while pid > 1:
        found.add(pid)
        status = status_of(Path("/proc", str(pid)))
        pid = status[1] if status else 0
    return found


def has_no_file(pid):
    """Whether a program runs from memory alone, as supervisors of virtual machines start theirs."""
    try:
        return os.readlink(f"/proc/{pid}/exe").startswith("/memfd:")
    except OSError:
        return False


def supervises(process):
    """Whether a process starts programs here, or is a child that works for one that does."""
    status = status_of(process)
    return not status or has_no_file(process.name) or has_no_file(status[1])


def processes():
    """The /proc folders of all processes."""
    return [place for place in Path("/proc").iterdir() if place.name.isdigit()]


def movable(core):
    """The threads that may run on the core and elsewhere, with the data to restore them."""
    left = ancestors(os.getpid()) | {1, KTHREADD}
    found = []
    for process in processes():
        if int(process.name) in left or supervises(process):
            continue
        with contextlib.suppress(OSError):
            for task in (process / "task").iterdir():
                cores, status = os.sched_getaffinity(int(task.name)), status_of(task)
                if core in cores and len(cores) > 1 and status:
                    found.append({"process": int(process.name), "thread": int(task.name),
                                  "name": status[0], "born": status[2], "cores": sorted(cores)})
    return found


def move(thread, cores):
    """Restricts a thread to some cores; returns whether that was possible."""
    try:
        os.sched_setaffinity(thread, cores)
        return True
    except OSError:
        return False


def clear(core):
    """Moves all movable threads; returns their names."""
    if STATE.exists():
        print(f"{STATE}: an earlier run did not put its threads back; they are put back now",
              file=sys.stderr)
        restore()
    found = movable(core)
    STATE.write_text(json.dumps({"core": core, "threads": found}))
    return [task["name"] for task in found if move(task["thread"], set(task["cores"]) - {core})]


def restore():
    """Undoes the changes in STATE, also for children created since."""
    state = json.loads(STATE.read_text())
    cores_of = {}
    for task in state["threads"]:
        cores_of[task["process"]] = set(task["cores"])
        status = status_of(Path("/proc", str(task["process"]), "task", str(task["thread"])))
        if status and status[2] == task["born"]:
            move(task["thread"], set(task["cores"]))
    for process in processes():
        with contextlib.suppress(OSError):
            for task in (process / "task").iterdir():
                restore_child(int(process.name), int(task.name), cores_of, state["core"])
    STATE.unlink()


def restore_child(process, thread, cores_of, core):
    """Gives all cores back to a thread that inherited the cores of a moved thread."""
    above = next((pid for pid in [process, *ancestors(process)] if pid in cores_of), None)
    if above and os.sched_getaffinity(thread) == cores_of[above] - {core}:
        move(thread, cores_of[above])


@contextlib.contextmanager
def isolated(core):
    """Clears the core during the block; a signal that ends the program restores everything too."""
    if os.geteuid() != 0:
        raise SystemExit("clearing a core needs root: run it with sudo, or without --isolate")

    def leave(number, _):
        raise SystemExit(128 + number)
    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGINT,
                                                                  signal.SIGHUP)}
    try:
        yield clear(core)
    finally:
        restore()
        for number, handler in before.items():
            signal.signal(number, handler)


def main():
    """Runs a command with its core cleared, or undoes the changes of an earlier run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--core", type=int, default=1)
    parser.add_argument("--restore", action="store_true")
    parser.add_argument("command", nargs="*")
    arguments = parser.parse_args()
    if arguments.restore:
        if not STATE.exists():
            raise SystemExit(f"{STATE} is not there: nothing to put back")
        restore()
    elif arguments.command:
        with isolated(arguments.core) as names:
            print(f"{len(names)} threads kept off core {arguments.core}", file=sys.stderr)
            sys.exit(subprocess.run(["taskset", "-c", str(arguments.core), *arguments.command],
                                    check=False).returncode)
    else:
        parser.error("say a command, or --restore")


if __name__ == "__main__":
    main()
