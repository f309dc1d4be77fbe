"""Part of the agent: processes with all that they fork, and the cgroups around them.

Standard library of Python 3.9 only: see main.py.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import pwd
import resource
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from wirespeed.agent import clock

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
CLONE_NEWNET = 0x40000000
REAPED_S = 5.0  # until what was killed has left its cgroup
THREADS = 17  # the place of their number in /proc/PID/stat after the name
ELEVATORS = ("sudo", "doas", "su", "pkexec", "run0")
LIBC = ctypes.CDLL(None, use_errno=True)


#: What a measured program has of the agent's environment: who runs it, and nothing that changes it.
IDENTITY_VARIABLES = ("HOME", "LOGNAME", "USER", "SHELL")
NAME_VARIABLE = "WIRESPEED_PROCESS"  # by which its daemons are known
LOCALE = "C.UTF-8"


def clean_environment(env: Mapping[str, str]) -> dict[str, str]:
    """The same in every shell: an exported LD_PRELOAD or JAVA_TOOL_OPTIONS would change one
    contender, or one of two runs, and stand nowhere."""
    kept = {name: os.environ[name] for name in IDENTITY_VARIABLES if name in os.environ}
    kept["LANG"] = LOCALE
    kept.update(env)
    return kept


class Refused(Exception):
    """The command cannot be done; the text goes back to the lab as one line."""


def read_text(path: str) -> str:
    """Empty where it cannot be read. Bytes that are not UTF-8, as a process may be named, are
    replaced;
    of the locale nothing is asked: it may be C."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def write_text(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


class Cgroups:
    """A cgroup v2 folder a run, one below it a process; also in the unified tree of v1 hosts."""

    def __init__(self, mark: str) -> None:
        self.root: str | None = None
        for tree in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"):
            if not os.path.exists(tree + "/cgroup.procs"):
                continue
            own = next(
                (
                    line.split(":", 2)[2]
                    for line in read_text("/proc/self/cgroup").splitlines()
                    if line.startswith("0::")
                ),
                "/",
            )
            if self._usable(tree + own.rstrip("/") + "/" + self.name_of(mark)):
                return

    @staticmethod
    def name_of(mark: str) -> str:
        """wirespeed-MARK-nsNAMESPACE-AGENT: its finder can check whether its agent works."""
        return f"wirespeed-{mark}-ns{pid_namespace()}-{identity(os.getpid())}"

    def _usable(self, folder: str) -> bool:
        try:
            os.mkdir(folder)
        except OSError:
            return False
        if not os.path.exists(folder + "/cgroup.kill") or not self._joinable(folder):
            os.rmdir(folder)
            return False
        self.root = folder
        return True

    @staticmethod
    def _joinable(folder: str) -> bool:
        """A folder may exist and still refuse members; a forked child finds out."""
        child = os.fork()
        if child == 0:
            try:
                write_text(folder + "/cgroup.procs", "0")
                os._exit(0)
            except OSError:
                os._exit(1)
        return os.waitpid(child, 0)[1] == 0

    def make(self, name: str) -> str | None:
        if not self.root:
            return None
        folder = self.root + "/" + name
        os.makedirs(folder, exist_ok=True)
        return folder

    def remove(self) -> None:
        if self.root:
            for name in os.listdir(self.root):
                if os.path.isdir(self.root + "/" + name):
                    remove_folder(self.root + "/" + name)
            remove_folder(self.root)


def remove_folder(folder: str) -> None:
    """A cgroup folder goes away only when its last process has been reaped."""
    deadline = time.monotonic() + REAPED_S
    while os.path.isdir(folder):
        try:
            os.rmdir(folder)
        except OSError:
            if time.monotonic() > deadline:
                return
            time.sleep(0.005)


class Child:
    """One process the lab asked for, with everything it forked."""

    def __init__(self, name: str, pid: int, cgroup: str | None) -> None:
        self.name, self.pid, self.cgroup = name, pid, cgroup
        self.agent = os.getpid()
        self.code: int | None = None
        self.usage: int | None = None

    def members(self) -> list[int]:
        if self.cgroup:
            return [int(pid) for pid in read_text(self.cgroup + "/cgroup.procs").split()]
        # One that forks and ends while they are listed may be in no list, and its child not yet.
        return self._found() or self._found()

    def _found(self) -> list[int]:
        return [pid for pid in descendants(self.pid, self._is_daemon) if is_alive(pid)]

    def _is_daemon(self, pid: int, parent: int) -> bool:
        """Whether it has left this process to the agent, in a session of its own."""
        mark = f"{NAME_VARIABLE}={self.name}".encode()
        return parent == self.agent and mark in environment_of(pid)

    def is_gone(self) -> bool:
        """Whether it was reaped, and no process that it forked has a thread left.

        cgroup.procs does not list a process whose threads are all just ending, though its sockets
        may still be open; cgroup.events counts it.
        """
        if self.code is None:
            return False
        if self.cgroup:
            return "populated 1" not in read_text(self.cgroup + "/cgroup.events")
        return not self.members()

    def thaw(self) -> None:
        """What a duet may have frozen can go on, and end."""
        try:
            if self.cgroup:
                write_text(self.cgroup + "/cgroup.freeze", "0")
            else:
                os.killpg(self.pid, signal.SIGCONT)
        except OSError:  # no such thing on this kernel, or all of it has ended
            pass

    def terminate(self) -> None:
        self.thaw()
        for pid in {self.pid, *self.members()} if self.code is None else self.members():
            send_signal(pid, signal.SIGTERM)

    def kill(self) -> None:
        if self.cgroup:
            try:
                write_text(self.cgroup + "/cgroup.kill", "1")
            except OSError:
                pass
        for pid in self.members():
            send_signal(pid, signal.SIGKILL)
        if self.code is None:
            send_signal(self.pid, signal.SIGKILL)

    def cpu_us(self) -> int:
        for line in read_text(self.cgroup + "/cpu.stat").splitlines() if self.cgroup else ():
            if line.startswith("usage_usec"):
                return int(line.split()[1])
        return sum(stat_cpu_us(pid) for pid in descendants(self.pid, self._is_daemon))


def send_signal(pid: int, number: int) -> None:
    """Where this user may: a program that sudo started is another user's, and goes on."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def refuse_elevation(program: str) -> None:
    """Raises Refused for a program that starts others as root: nothing here could end them."""
    name = os.path.basename(program)
    if name in ELEVATORS and os.geteuid() != 0:
        raise Refused(
            f"{name} starts a program that this user could not end (run all of it as root instead)"
        )


def stat_fields(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the command name, which may hold spaces."""
    return read_text(f"/proc/{pid}/stat").rpartition(")")[2].split()


def stat_cpu_us(pid: int) -> int:
    """Of all its threads, and of its children that have ended and were reaped."""
    ticks = sum(map(int, stat_fields(pid)[11:15]))
    return ticks * 1000000 // os.sysconf("SC_CLK_TCK")


def is_alive(pid: int) -> bool:
    """Whether a thread of it runs. A process whose main thread has ended is shown as a zombie, and
    its other threads keep its sockets open; only without them can its parent reap it."""
    fields = stat_fields(pid)
    return bool(fields) and (fields[0] not in "ZX" or int(fields[THREADS]) > 1)


def threads_of(pid: int) -> list[int]:
    """The thread ids of a process that has not been reaped."""
    try:
        return [int(thread) for thread in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return []


def start_ticks(pid: int) -> int | None:
    """When a process or thread began, in clock ticks since boot: with its id it is unique."""
    text = read_text(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return int(text[19]) if len(text) > 19 else None


def identity(pid: int) -> str:
    """PID.TICKS: with the time of its start a process id is unique, in its namespace."""
    return f"{pid}.{start_ticks(pid)}"


def pid_namespace() -> str:
    """The namespace in which process ids are counted here; empty where unknown."""
    try:
        return str(os.stat("/proc/self/ns/pid").st_ino)
    except OSError:
        return ""


def environment_of(pid: int) -> list[bytes]:
    """NAME=VALUE as bytes. A main thread that has ended has none any more: another thread does."""
    for thread in threads_of(pid):
        try:
            with open(f"/proc/{pid}/task/{thread}/environ", "rb") as file:
                text = file.read()
        except OSError:  # of one that has ended, too: newer kernels do not open it
            continue
        if text:
            return text.split(b"\0")
    return []


def descendants(
    root: int, is_more: Callable[[int, int], bool] = lambda pid, parent: False
) -> set[int]:
    """The process and all its children, grandchildren and session members that still run; and those
    of more processes, chosen by their own and their parent's id."""
    parents: dict[int, int] = {}
    sessions: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        fields = stat_fields(int(entry)) if entry.isdigit() else None
        if fields:
            parents[int(entry)], sessions[int(entry)] = int(fields[1]), int(fields[3])
    below = {
        pid
        for pid, parent in parents.items()
        if root in (pid, sessions[pid]) or is_more(pid, parent)
    }
    grown = True
    while grown:
        more = {pid for pid, parent in parents.items() if parent in below} - below
        grown = bool(more)
        below |= more
    return below


def spawn(message: dict[str, Any], cgroup: str | None, mark: str) -> int:
    """Forks and execs; what goes wrong before exec comes back through a pipe as an errno."""
    if message.get("at") and not shutil.which(message["argv"][0], path=message["env"]["PATH"]):
        raise Refused("program {} not found".format(message["argv"][0]))
    refuse_elevation(message["argv"][0])
    account = account_of(message["user"]) if message.get("user") else None
    report_read, report_write = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        step = "start"
        try:
            origin = (parent, report_write)
            for step in become_child(message, cgroup, mark, origin, account):  # noqa: B007
                pass
        except OSError as error:
            os.write(report_write, json.dumps([step, error.errno, error.strerror]).encode())
        finally:
            os._exit(127)
    os.close(report_write)
    with os.fdopen(report_read, "rb") as pipe:
        failure = pipe.read()
    if not failure:
        return pid
    os.waitpid(pid, 0)
    step, number, text = json.loads(failure.decode())
    if step == "exec" and number == errno.ENOENT:
        raise Refused("program {} not found".format(message["argv"][0]))
    if step == "folder":
        raise Refused("{}: cwd {}: {}".format(message["argv"][0], message["cwd"], text))
    raise Refused("{}: {} failed: {}".format(message["argv"][0], step, text))


def account_of(name: str) -> pwd.struct_passwd:
    """A user of this host, whose programs this agent may start."""
    try:
        account = pwd.getpwnam(name)
    except KeyError:
        raise Refused(f"user {name}: not found on this host") from None
    if os.geteuid() not in (0, account.pw_uid):
        raise Refused(f"user {name}: needs root (run the lab as root, or leave `user` out)")
    return account


def of_user(account: pwd.struct_passwd) -> dict[str, str]:
    return {"HOME": account.pw_dir, "USER": account.pw_name, "LOGNAME": account.pw_name,
            "SHELL": account.pw_shell}  # fmt: skip


def become(account: pwd.struct_passwd) -> None:
    """Takes on a user with all of its groups, for good."""
    if os.geteuid() != 0:  # it is this user already
        return
    os.initgroups(account.pw_name, account.pw_gid)
    os.setgid(account.pw_gid)
    os.setuid(account.pw_uid)


def become_child(
    message: dict[str, Any],
    cgroup: str | None,
    mark: str,
    origin: tuple[int, int],
    account: pwd.struct_passwd | None = None,
) -> Iterator[str]:
    """The steps between fork and exec; each yields its name before it is tried.

    `origin` is (the agent's process, the pipe on which a failure is reported).
    """
    parent, report = origin
    yield "session"
    os.setsid()
    die_with(parent)
    yield "cgroup"
    if cgroup:
        write_text(cgroup + "/cgroup.procs", "0")
    yield "namespace"
    if message.get("netns"):
        enter_network(message["netns"])
    yield "pinning"
    if message.get("cores"):
        os.sched_setaffinity(0, message["cores"])
    if message.get("nice"):
        prefer(message["nice"])
    yield "limits"
    for name, value in message.get("limits", {}).items():
        raise_limit(getattr(resource, "RLIMIT_" + name.upper()), value)
    yield "output"
    # Emptied: what a program of the same name wrote there before (a warm-up's figures) is not its.
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
    for number, path in ((1, message["stdout"]), (2, message["stderr"])):
        handle = os.open(path, flags, 0o644)
        os.dup2(handle, number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    yield "folder"
    enter_folder(message["cwd"], message.get("cwd_else"))
    yield "user"
    environment = clean_environment(message.get("env", {}))
    if account:
        become(account)
        die_with(parent)  # the kernel forgets this wish with the change of the user
        environment = dict(environment, **of_user(account))
        environment.update(message.get("env", {}))
    for number in (signal.SIGINT, signal.SIGCHLD, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    environment["WIRESPEED_RUN"] = mark
    environment["WIRESPEED_AGENT"] = identity(parent)
    environment[NAME_VARIABLE] = message["name"]
    yield "exec"
    if message.get("at"):  # the agent does not wait for it: what is wrong goes to the output
        os.close(report)
        time.sleep(max(0.0, message["at"] - clock.now()))
        try:
            os.execvpe(message["argv"][0], message["argv"], environment)
        except OSError as error:
            os.write(2, ("{}: {}\n".format(message["argv"][0], error.strerror)).encode())
            os._exit(127)
    os.execvpe(message["argv"][0], message["argv"], environment)


def enter_folder(folder: str, other: str | None) -> None:
    """The other one where this host lacks the first."""
    if other and not os.path.isdir(folder):
        os.makedirs(other, exist_ok=True)
        folder = other
    os.chdir(folder)


def die_with(parent: int) -> None:
    """In a forked child: the kernel ends it with its parent, also one that has ended already."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(127)


def enter_network(descriptor: int) -> None:
    """Moves the calling process into a network namespace."""
    if LIBC.setns(descriptor, CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def prefer(nice: int) -> bool:
    """Runs the caller before others on its cores, where this user may. False where not.

    A session of its own is a scheduling group of its own (autogroup), whose weight is what counts
    against other sessions and kernel threads; nice alone counts inside the group only.
    """
    try:
        os.setpriority(os.PRIO_PROCESS, 0, nice)
    except OSError:
        return False
    try:
        write_text("/proc/self/autogroup", str(nice))
    except OSError:  # a kernel without groups by session: nice is enough
        pass
    return True


def may_prefer(nice: int) -> bool:
    """A forked child in a session of its own finds out, so that nothing changes for the caller."""
    child = os.fork()
    if child == 0:
        os.setsid()
        os._exit(0 if prefer(nice) else 1)
    return os.waitpid(child, 0)[1] == 0


def raise_limit(limit: int, value: int) -> None:
    """As much as was asked for, or as much as this user may have."""
    hard = resource.getrlimit(limit)[1]
    try:
        resource.setrlimit(limit, (value, max(value, hard)))
    except (ValueError, OSError):
        resource.setrlimit(limit, (min(value, hard), hard))
