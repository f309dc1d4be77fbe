"""The host agent: starts, pins, samples and ends processes on one machine for the lab.

It is sent over stdin to a Python that has nothing but the standard library (3.6 or newer) and
speaks newline JSON over the same pipe: {"id", "op", …} in, {"id", "result"|"error"} out, and
{"event": "exit", …} when a process ends. Three rules:

* Nothing survives: when stdin ends, every process it started is killed, whatever it forked.
* One thread: children are forked directly, so affinity, cgroup and limits are set before exec.
* No work that was not asked for: between commands and samples it sleeps in select.
"""

import fcntl
import json
import os
import select
import shutil
import signal
import struct
import sys
import time

from wirespeed.host.census import Census
from wirespeed.host.children import (
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
from wirespeed.host.sampling import Sampler, canary_ms
from wirespeed.host.tuning import Tuning

KILL_WAIT_S = 5.0  # a killed process is gone in milliseconds; this bounds a process in D state


class Agent:
    """The command loop. Each `do_NAME` is one command."""

    def __init__(self, mark, cgroups_wanted=True):
        self.mark = mark
        self.nice = 0
        self.cgroups = Cgroups(mark) if cgroups_wanted else None
        self.children = {}
        self.sampler = Sampler()
        self.census = Census()
        self.lock = None
        self.idle = None
        self.tuning = None
        self.limits = {}
        self.stops = []
        self.folders = []
        LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self.wake_read, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        os.set_blocking(self.wake_read, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        # The lab decides about Ctrl-C; a signal meant for it must not end the agent first.
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    # -- commands ---------------------------------------------------------------------------

    def do_hello(self, _):
        return {
            "pid": os.getpid(),
            "python": sys.version.split()[0],
            "root": os.geteuid() == 0,
            "cores": sorted(os.sched_getaffinity(0)),
            "cgroup": self.cgroups.root if self.cgroups else None,
            "boot_id": read_text("/proc/sys/kernel/random/boot_id").strip(),
        }

    def do_lock(self, message):
        """One run a machine. The kernel drops the lock with the agent, however it ends."""
        for path in message["paths"]:
            try:
                handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            except OSError:
                continue
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return {"held_by": os.pread(handle, 256, 0).decode(errors="replace").strip() or "?"}
            os.ftruncate(handle, 0)
            os.pwrite(handle, message["owner"].encode(), 0)
            self.lock = handle
            return {"held_by": None}
        raise Refused("no lock file can be opened among " + ", ".join(message["paths"]))

    def do_prefer(self, message):
        """Measured programs, and the agent that samples them in time, run before all others."""
        if not may_prefer(message["nice"]):
            return {"nice": 0}
        prefer(message["nice"])
        self.nice = message["nice"]
        return {"nice": self.nice}

    def do_tune(self, message):
        """Settings of the machine for the time of the run; what they were is on the disk first."""
        self.limits = message["limits"]
        self.tuning = Tuning(message["state"])
        return self.tuning.apply(
            message["sysctl"], message["clear"], message["to"], message["under"]
        )

    def do_restore(self, _):
        """Puts the machine back as it was; None when nothing was changed."""
        tuning, self.tuning, self.limits = self.tuning, None, {}
        return {"restored": tuning.restore() if tuning else None}

    def do_clean_up_at_end(self, message):
        """Folders that go away with the agent, also when the lab was killed."""
        self.folders += message["folders"]
        return {}

    def do_spawn(self, message):
        name = message["name"]
        if name in self.children and not self.children[name].is_gone():
            raise Refused("%s is already running" % name)
        cgroup = self.cgroups.make(name) if self.cgroups else None
        limits = dict(self.limits, **message.get("limits", {}))
        pid = spawn(dict(message, nice=self.nice, limits=limits), cgroup, self.mark)
        self.children[name] = Child(name, pid, cgroup)
        return {"pid": pid}

    def do_state(self, message):
        child = self._child(message)
        return {
            "code": child.code,
            "pid": child.pid,
            "members": child.members(),
            "cpu_us": child.cpu_us(),
            "max_rss_kib": child.usage,
        }

    def do_stop(self, message):
        """TERM, a grace, then the cgroup's kill; replies when the last member is gone."""
        children = [self.children[name] for name in message["names"] if name in self.children]
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

    def do_signal(self, message):
        child = self._child(message)
        if child.code is None:
            send_signal(child.pid, message["signal"])
        return {}

    def do_hold_idle(self, _):
        """Holds the cores out of idle states; the kernel lets go when the descriptor closes."""
        if self.idle is None:
            try:
                self.idle = os.open("/dev/cpu_dma_latency", os.O_WRONLY | os.O_CLOEXEC)
                os.write(self.idle, struct.pack("=i", 0))
            except OSError as error:
                return {"held": False, "why": error.strerror}
        return {"held": True}

    def do_release_idle(self, _):
        if self.idle is not None:
            os.close(self.idle)
            self.idle = None
        return {}

    def do_sample_start(self, message):
        children = [self.children[name] for name in message["names"] if name in self.children]
        instants, core = message.get("instants", []), message.get("lab_core")
        self.sampler.start(message["every_s"], children, instants, core)
        return {}

    def do_sample_stop(self, _):
        if self.sampler.every_s is not None:
            self.sampler.take()
        return self.sampler.stop()

    def do_census(self, _):
        """Who else used the machine since the census before: [[name, CPU seconds], …]."""
        ours = {os.getpid(), os.getppid()}
        for child in self.children.values():
            ours.update(child.members())
        return self.census.take(ours)

    def do_canary(self, message):
        return {"ms": canary_ms(message["core"])}

    def do_forget(self, message):
        """Drops ended processes, so that a run of thousands of trials stays small."""
        for name in message["names"]:
            child = self.children.get(name)
            if child and child.is_gone():
                del self.children[name]
                if child.cgroup:
                    remove_folder(child.cgroup)
        return {}

    def _child(self, message):
        if message["name"] not in self.children:
            raise Refused("there is no process %s" % message["name"])
        return self.children[message["name"]]

    # -- the loop ---------------------------------------------------------------------------

    def run(self, source):
        buffer = b""
        while True:
            ready, _, _ = select.select([source, self.wake_read], [], [], self._timeout())
            if self.wake_read in ready:
                drain(self.wake_read)
            self._reap()
            self._stops()
            if self.sampler.due is not None and time.time() >= self.sampler.due:
                self.sampler.take()
            if source in ready:
                data = os.read(source, 65536)
                if not data:
                    return
                *lines, buffer = (buffer + data).split(b"\n")
                for line in lines:
                    self._handle(json.loads(line.decode()))

    def _timeout(self):
        times = []
        if self.sampler.due is not None:
            times.append(self.sampler.due - time.time())
        # Members that are not children of ours send no SIGCHLD, so a stop looks again soon.
        times += [0.01] if self.stops else []
        return max(0.0, min(times)) if times else None

    def _handle(self, message):
        try:
            result = getattr(self, "do_" + message["op"])(message)
        except Refused as error:
            send({"id": message["id"], "error": str(error)})
            return
        except OSError as error:
            send({"id": message["id"], "error": "%s: %s" % (message["op"], error)})
            return
        if result is not None:
            send({"id": message["id"], "result": result})

    def _reap(self):
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

    def _stops(self):
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

    def end(self):
        """Kills what is left and takes its folders away: the last thing the agent does."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
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
            for pid in orphans:  # as subreaper, whatever daemonised itself is ours too
                send_signal(pid, signal.SIGKILL)
            reap_quietly()
            if not orphans:
                break
            time.sleep(0.01)
        self.do_restore(None)
        if self.cgroups:
            self.cgroups.remove()
        for folder in self.folders:
            shutil.rmtree(folder, ignore_errors=True)


def drain(fd):
    try:
        while os.read(fd, 4096):
            pass
    except BlockingIOError:
        pass


def reap_quietly():
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def send(message):
    data = (json.dumps(message) + "\n").encode()
    try:
        while data:
            data = data[os.write(1, data) :]
    except BrokenPipeError:  # the lab is gone; stdin ends next, and with it the agent
        pass


def main(mark, cgroups_wanted):
    agent = Agent(mark, cgroups_wanted)
    try:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        agent.run(0)
    finally:
        agent.end()
