"""The agent: starts, pins, samples and ends processes on one host for the lab.

It is sent over standard input to a Python that has nothing but the standard library (3.9 or newer)
and speaks newline JSON over the same pipe: {"id", "op", …} in, {"id", "result"|"error"} out, and
{"event": "exit", …} when a process ends. Requests may be sent without waiting for answers. Rules:

* Nothing survives: when standard input ends, or nothing was heard for the time of the lease, every
  process it started is killed, whatever it forked.
* Every request is answered, a mistaken one with an error.
* One thread: children are forked directly, so affinity, cgroup and limits are set before exec; what
  takes time is done by a forked helper, so that a lease and a stop are never late.
* No work that was not asked for: between commands and samples it sleeps in select.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Collection, Sequence
from typing import Any

from wirespeed.agent import clock, counters, duet, facts, files, links, ready
from wirespeed.agent.census import Census
from wirespeed.agent.children import (
    LIBC,
    PR_SET_CHILD_SUBREAPER,
    Cgroups,
    Child,
    Refused,
    descendants,
    may_prefer,
    prefer,
    read_text,
    remove_folder,
    send_signal,
    spawn,
    write_text,
)
from wirespeed.agent.helpers import Helpers, run_program
from wirespeed.agent.leftovers import (
    ENDING,
    disown,
    holder,
    lock_files,
    open_lock,
    own,
    sign,
    tidy,
)
from wirespeed.agent.namespaces import Namespaces
from wirespeed.agent.sampling import Sampler, calibration_ms, process_time_of
from wirespeed.agent.tuning import Tuning, restore, set_own, state_file, status

PROTOCOL = 2
MARKER = "wirespeed-agent"  # begins the first line; a login shell may print before it
KILL_WAIT_S = 15.0  # a killed process is gone when it gets a core; this bounds one in D state
ALIVE_S = 1.0  # how often a kept lease is acknowledged


class Agent:
    """The command loop. Each `do_NAME` is one command."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.mark = order["mark"]
        clock.STEADY.since_s = order.get("clock_since_s", clock.STEADY.since_s)
        self.lease_s = order.get("lease_s")
        self.nice = 0
        self.cgroups = Cgroups(self.mark) if order.get("cgroups", True) else None
        self.children: dict[str, Child] = {}
        self.sampler = Sampler(order.get("lab_pid"))
        self.census = Census()
        self.helpers = Helpers()
        self.namespaces = Namespaces()
        self.lab_pid = order.get("lab_pid")
        self.heard = self.said_alive = time.monotonic()
        self.locks: list[int] = []
        self.idle: int | None = None
        self.tuning: Tuning | None = None
        self.limits: dict[str, int] = {}
        self.stops: list[dict[str, Any]] = []
        self.folders: list[str] = []
        self.guard: duet.Guard | None = None
        LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self.wake_read, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        os.set_blocking(self.wake_read, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        # The lab decides about Ctrl-C; a signal meant for it must not end the agent first.
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    # -- commands ---------------------------------------------------------------------------

    def do_hello(self, _: object) -> dict[str, Any]:
        return {
            "protocol": PROTOCOL,
            "pid": os.getpid(),
            "python": sys.version.split()[0],
            "root": os.geteuid() == 0,
            "cores": sorted(os.sched_getaffinity(0)),
            "cgroup": self.cgroups.root if self.cgroups else None,
            "onload": facts.has_onload(),
            "threads": facts.core_ids("topology/thread_siblings_list"),
            "nodes": facts.core_ids("node"),
            "boot_id": read_text("/proc/sys/kernel/random/boot_id").strip(),
            "memory_folder": files.memory_folder(),
        }

    def do_clock(self, _: object) -> dict[str, Any]:
        return {"now": clock.now(), "set_by_s": clock.set_by_s()}

    def do_keep(self, _: object) -> None:
        """A sign of life of the lab; the answer, once a second, is one of the agent."""
        if self.heard - self.said_alive >= ALIVE_S:
            self.said_alive = self.heard
            send({"event": "alive"})

    def do_lock(self, message: dict[str, Any]) -> dict[str, Any]:
        """One run a machine. The kernel drops the locks with the agent, however it ends."""
        paths = message.get("paths") or lock_files()
        handles = [handle for handle in map(open_lock, paths) if handle is not None]
        if not handles:
            raise Refused("no lock file can be opened among " + ", ".join(paths))
        held_by = first_holder(handles)
        if held_by is not None:
            for handle in handles:
                os.close(handle)
            return {"held_by": held_by}
        self.locks = handles
        for handle in handles:
            sign(handle, message["owner"])
        return {"held_by": None}

    def do_leftovers(self, message: dict[str, Any]) -> None:
        """Ends and removes what agents that are gone have left on this host."""
        self.helpers.start(message["id"], tidy)

    def do_run(self, message: dict[str, Any]) -> None:
        """A short program, its output kept: {"code", "out", "err"}."""
        self.helpers.start(message["id"], lambda: run_program(message))

    def do_cpu(self, message: dict[str, Any]) -> dict[str, Any]:
        """CPU time of processes with all their threads, in seconds; ended ones are left out."""
        return {"cpu_s": sum(process_time_of(pid) for pid in message["pids"])}

    def do_facts(self, message: dict[str, Any]) -> None:
        self.helpers.start(message["id"], lambda: facts.of_host(message, self.cgroups))

    def do_programs(self, message: dict[str, Any]) -> None:
        """Versions of the measured programs: {name: text}."""
        self.helpers.start(message["id"], lambda: facts.of_programs(message))

    def do_ready(self, message: dict[str, Any]) -> None:
        """Asks a server until it answers as it should; {"problem": ""} when it does."""
        ready.prepare()
        self.helpers.start(message["id"], lambda: ready.wait(message), message["name"])

    def do_link_receive(self, message: dict[str, Any]) -> None:
        self.helpers.start(message["id"], lambda: links.receive(message))

    def do_link_transmit(self, message: dict[str, Any]) -> None:
        self.helpers.start(message["id"], lambda: links.transmit(message))

    def do_interface_of(self, message: dict[str, Any]) -> str:
        return links.interface_of(message["address"])

    def do_source_of(self, message: dict[str, Any]) -> str:
        """The address of ours from which another is reached; nothing is sent to find out."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((message["address"], 9))
            return str(probe.getsockname()[0])

    def do_make_files(self, message: dict[str, Any]) -> None:
        files.mount_all(message["sets"])
        self.helpers.start(message["id"], lambda: files.make_all(message["sets"]))

    def do_put(self, message: dict[str, Any]) -> dict[str, Any]:
        return files.put(message)

    def do_get(self, message: dict[str, Any]) -> dict[str, Any]:
        return files.get(message)

    def do_list(self, message: dict[str, Any]) -> list[list[Any]]:
        return files.listing(message["folder"])

    def do_remove(self, message: dict[str, Any]) -> dict[str, Any]:
        return files.remove(message["folder"])

    def do_prefer(self, message: dict[str, Any]) -> dict[str, Any]:
        """Measured programs, and the agent that samples them in time, run before all others."""
        if not may_prefer(message["nice"]):
            return {"nice": 0}
        prefer(message["nice"])
        self.nice = message["nice"]
        return {"nice": self.nice}

    def do_tune(self, message: dict[str, Any]) -> dict[str, Any]:
        """Settings of the machine for the time of the run; what they were is on the disk first."""
        self.limits = message["limits"]
        tuned = Tuning(message.get("state") or state_file())
        answer = tuned.apply(message)
        self.tuning = None if message.get("standing") else tuned
        return answer

    def do_set_own(self, message: dict[str, Any]) -> dict[str, Any]:
        self.limits = message["limits"]
        return set_own(message["sysctl"])

    def do_tuned(self, message: dict[str, Any]) -> dict[str, Any]:
        return {"status": status(message.get("state") or state_file())}

    def do_restore_standing(self, message: dict[str, Any]) -> dict[str, Any]:
        return {"restored": restore(message.get("state") or state_file(), even_standing=True)}

    def do_put_back(self, message: dict[str, Any]) -> dict[str, Any]:
        """Settings that a killed agent left changed; not of running agents."""
        return {"restored": restore(message.get("state") or state_file())}

    def do_restore(self, _: object) -> dict[str, Any]:
        """Puts the machine back as it was; None when nothing was changed."""
        tuning, self.tuning, self.limits = self.tuning, None, {}
        return {"restored": tuning.restore() if tuning else None}

    def do_clean_up_at_end(self, message: dict[str, Any]) -> dict[str, Any]:
        """Folders that go away with the agent, also when the lab was killed."""
        for folder in message["folders"]:
            own(folder)
            self.folders.append(folder)
        return {}

    def do_spawn(self, message: dict[str, Any]) -> dict[str, Any]:
        name = message["name"]
        if name in self.children and not self.children[name].is_gone():
            raise Refused(f"{name} is already running")
        if message.get("namespace"):
            namespace = message["namespace"]
            message["netns"] = self.namespaces.descriptor(namespace["on"], namespace["addr"])
        elif message.get("listen"):
            check_port(*message["listen"])
        os.makedirs(message["folder"], exist_ok=True)
        cgroup = self.cgroups.make(name) if self.cgroups else None
        limits = dict(self.limits, **message.get("limits", {}))
        pid = spawn(dict(message, nice=self.nice, limits=limits), cgroup, self.mark)
        self.children[name] = Child(name, pid, cgroup)
        return {"pid": pid}

    def do_freeze(self, message: dict[str, Any]) -> dict[str, Any]:
        """These children rest until `thaw`; should the agent be killed meanwhile, they end too."""
        children = [self._child({"name": name}) for name in message["names"]]
        self._watch_over(children)
        duet.rest(children)
        return {}

    def do_thaw(self, message: dict[str, Any]) -> dict[str, Any]:
        for name in message["names"]:
            self._child({"name": name}).thaw()
        return {}

    def do_duet(self, message: dict[str, Any]) -> None:
        """Lets two sides of servers and generators take turns: duet.py says what comes back."""
        sides = [
            [[self._child({"name": name}) for name in side[role]] for role in ("servers", "loads")]
            for side in message["sides"]
        ]
        children = [child for side in sides for group in side for child in group]
        ours = {os.getpid(), *(pid for child in children for pid in child.members())}
        self._watch_over(children)

        def run() -> dict[str, Any]:
            duet.check_alone(message["cores"], ours)
            return duet.play(message, sides)

        self.helpers.start(message["id"], run, *(child.name for child in children))

    def _watch_over(self, more: Sequence[Child], fewer: Collection[str] = ()) -> None:
        """One guard at a time, of all children that may be frozen: two may be, one by one."""
        if self.guard:
            before = [one for name, one in self.guard.children.items() if name not in fewer]
            self.guard.dismiss()
            self.guard = None
            more = [*(one for one in before if one not in more and not one.is_gone()), *more]
        if more:
            self.guard = duet.Guard(more)

    def do_state(self, message: dict[str, Any]) -> dict[str, Any]:
        child = self._child(message)
        return {
            "code": child.code,
            "pid": child.pid,
            "members": child.members(),
            "cpu_us": child.cpu_us(),
            "max_rss_kib": child.usage,
        }

    def do_stop(self, message: dict[str, Any]) -> None:
        """TERM, a grace, then the cgroup's kill; replies when the last member is gone."""
        children = [self.children[name] for name in message["names"] if name in self.children]
        self.helpers.end(message["names"])
        if self.guard and not self.guard.children.keys().isdisjoint(message["names"]):
            self._watch_over([], fewer=message["names"])
        now = time.monotonic()
        stop = {
            "id": message["id"],
            "children": children,
            "killed": [],
            "kill_at": now + message["grace_s"],
            "give_up_at": now + message["grace_s"] + KILL_WAIT_S,
        }
        for child in children:
            child.terminate() if message["grace_s"] else child.kill()
        self.stops.append(stop)
        return None

    def do_signal(self, message: dict[str, Any]) -> dict[str, Any]:
        child = self._child(message)
        if child.code is None:
            send_signal(child.pid, message["signal"])
        return {}

    def do_hold_idle(self, _: object) -> dict[str, Any]:
        """Holds the cores out of idle states; the kernel lets go when the descriptor closes."""
        if self.idle is None:
            try:
                self.idle = os.open("/dev/cpu_dma_latency", os.O_WRONLY | os.O_CLOEXEC)
                os.write(self.idle, struct.pack("=i", 0))
            except OSError as error:
                return {"held": False, "why": error.strerror}
        return {"held": True}

    def do_release_idle(self, _: object) -> dict[str, Any]:
        if self.idle is not None:
            os.close(self.idle)
            self.idle = None
        return {}

    def do_sample_start(self, message: dict[str, Any]) -> dict[str, Any]:
        children = [self.children[name] for name in message["names"] if name in self.children]
        instants, core = message.get("instants", []), message.get("lab_core")
        self.sampler.start(
            message["every_s"], children, instants, core, message.get("paths"),
            message.get("counted"),
        )  # fmt: skip
        return {}

    def do_uncountable(self, message: dict[str, Any]) -> dict[str, Any]:
        """Why these events of the processor cannot be counted here; empty when they can."""
        return {"why": counters.missing(message["events"])}

    def do_sample_stop(self, _: object) -> list[dict[str, Any]]:
        if self.sampler.every_s is not None:
            self.sampler.take()
        return self.sampler.stop()

    def do_census(self, message: dict[str, Any]) -> dict[str, Any]:
        """Other processes that used these cores since the last census (census.py)."""
        ours = {os.getpid(), self.lab_pid, *message.get("ours", ())}
        for child in self.children.values():
            ours.update(child.members())
        return self.census.take(ours, message.get("cores"))

    def do_calibration(self, message: dict[str, Any]) -> None:
        self.helpers.start(message["id"], lambda: {"ms": calibration_ms(message["core"])})

    def do_members(self, _: object) -> list[int]:
        """Every process of ours: for the census of another agent on the same machine."""
        ours = {os.getpid()}
        for child in self.children.values():
            ours.update(child.members())
        return sorted(ours)

    def do_forget(self, message: dict[str, Any]) -> dict[str, Any]:
        """Drops ended processes, so that a run of thousands of trials stays small."""
        for name in message["names"]:
            child = self.children.get(name)
            if child and child.is_gone():
                del self.children[name]
                if child.cgroup:
                    remove_folder(child.cgroup)
        return {}

    def _child(self, message: dict[str, Any]) -> Child:
        if message["name"] not in self.children:
            raise Refused("process {} not found".format(message["name"]))
        return self.children[message["name"]]

    # -- the loop ---------------------------------------------------------------------------

    def run(self, source: int) -> None:
        """Until the input ends or the lease runs out."""
        buffer = b""
        while True:
            waiting = [source, self.wake_read, *self.helpers.pipes()]
            readable, _, _ = select.select(waiting, [], [], self._timeout())
            if self.wake_read in readable:
                drain(self.wake_read)
            self._reap()
            self._stops()
            self.helpers.take(readable, send)
            if self.sampler.due is not None and clock.now() >= self.sampler.due:
                self.sampler.take()
            if source in readable:
                data = os.read(source, 1 << 20)
                if not data:
                    return
                self.heard = time.monotonic()
                *lines, buffer = (buffer + data).split(b"\n")
                for line in lines:
                    self._handle(line)
            elif self._lease_left() <= 0:
                return

    def _lease_left(self) -> float:
        if not self.lease_s:
            return float("inf")
        return float(self.heard + self.lease_s - time.monotonic())

    def _timeout(self) -> float | None:
        times = [self._lease_left()] if self.lease_s else []
        if self.sampler.due is not None:
            times.append(self.sampler.due - clock.now())
        # Members that are not children of ours send no SIGCHLD, so a stop looks again soon.
        times += [0.01] if self.stops else []
        return max(0.0, min(times)) if times else None

    def _handle(self, line: bytes) -> None:
        number = None
        try:
            message = json.loads(line.decode())
            number = message.get("id")
            handler = getattr(self, "do_" + message["op"], None)
            if handler is None:
                raise Refused("this agent knows no request {!r}".format(message["op"]))
            result = handler(message)
        except Refused as error:
            send({"id": number, "error": str(error)})
        except OSError as error:
            send({"id": number, "error": "{}: {}".format(message.get("op"), error)})
        except Exception as error:  # a mistaken request must not end what others started
            send({"id": number, "error": f"bad request: {type(error).__name__}: {error}"})
        else:
            if result is not None:
                send({"id": number, "result": result})

    def _reap(self) -> None:
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for child in self.children.values():
                if child.pid == pid and child.code is None:
                    signaled = os.WIFSIGNALED(status)
                    child.code = -os.WTERMSIG(status) if signaled else os.WEXITSTATUS(status)
                    child.usage = usage.ru_maxrss
                    send({"event": "exit", "name": child.name, "code": child.code})

    def _stops(self) -> None:
        now = time.monotonic()
        for stop in list(self.stops):
            left = [child for child in stop["children"] if not child.is_gone()]
            if left and now >= stop["kill_at"]:
                stop["killed"] = sorted({*stop["killed"], *(child.name for child in left)})
                for child in left:
                    child.kill()
            if not left or now >= stop["give_up_at"]:
                self.stops.remove(stop)
                send(
                    {
                        "id": stop["id"],
                        "result": {
                            "killed": stop["killed"],
                            "left": [child.name for child in left],
                        },
                    }
                )

    def end(self) -> None:
        """Kills what is left and takes its folders away: the last thing the agent does."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        for handle in self.locks:
            sign(handle, ENDING)
        if self.cgroups and self.cgroups.root:
            try:
                write_text(self.cgroups.root + "/cgroup.kill", "1")
            except OSError:
                pass
        deadline = time.monotonic() + KILL_WAIT_S
        while time.monotonic() < deadline:
            for child in self.children.values():
                child.kill()
            orphans = descendants(os.getpid()) - {os.getpid()}
            for pid in orphans:  # as subreaper, daemonised programs are children too
                send_signal(pid, signal.SIGKILL)
            reap_quietly()
            if not orphans:
                break
            time.sleep(0.01)
        self.do_restore(None)
        self.sampler.stop()  # the lab goes on where it was before a window that was cut off
        if self.cgroups:
            self.cgroups.remove()
        for folder in self.folders:
            disown(folder)


def first_holder(handles: Sequence[int]) -> str | None:
    """The owner of the first of these locks that another agent has; None when this one has them
    all now.

    Those behind it are not tried: of two agents that begin at once each would have one of the
    locks, be refused the other, and neither would run."""
    for handle in handles:
        if not is_taken(handle):
            return holder(handle)
    return None


def is_taken(handle: int) -> bool:
    """Whether this agent has the lock now."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except OSError:
        return False


def drain(fd: int) -> None:
    try:
        while os.read(fd, 4096):
            pass
    except BlockingIOError:
        pass


def reap_quietly() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def send(message: dict[str, Any]) -> None:
    data = (json.dumps(message) + "\n").encode()
    try:
        while data:
            data = data[os.write(1, data) :]
    except BrokenPipeError:  # the lab is gone; stdin ends next, and with it the agent
        pass


def check_port(address: str, port: int) -> None:
    """A port in use would make the trial measure someone else's server."""
    with socket.socket() as probe:
        # TIME_WAIT of the last trial does not mean a server.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            raise Refused(
                f"port {port} on {address}: {error.strerror}; stop what uses it (ss -ltnp) or "
                "change the recipe's port.base"
            ) from None


def main(order: dict[str, Any]) -> None:
    os.umask(0o022)  # of what servers read after they have given up root, and the same in each run
    os.write(1, f"{MARKER} {PROTOCOL}\n".encode())
    agent = Agent(order)
    try:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        signal.signal(signal.SIGHUP, lambda *_: sys.exit(0))
        agent.run(0)
    finally:
        try:
            agent.end()
        except SystemExit:  # a signal that came before the end ignored it: a batch system sends one
            agent.end()
