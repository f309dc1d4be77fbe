"""Part of the agent: leftovers of killed agents: processes, cgroups, folders.

An agent cleans up, also after kill -9 of the lab. This is for what remains when the agent
was killed too, or the host lost power. Who is still at work is judged by the agent's own process
on this host; the lab's process id means nothing here. Standard library of Python 3.9 only.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import stat
import time
from typing import Any

from wirespeed.agent.children import (
    Refused,
    environment_of,
    identity,
    is_alive,
    pid_namespace,
    read_text,
    remove_folder,
    send_signal,
    start_ticks,
    write_text,
)
from wirespeed.agent.files import scratch_roots

CGROUP_TREES = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")
MARK = b"WIRESPEED_AGENT="
OWNER = ".wirespeed-agent"  # the file in a scratch folder that names its agent
OWNERS_NAMESPACE = ".wirespeed-namespace"  # and the one that says where its process id counts
GONE_S = 15.0  # a killed process needs a core to end
REMOVED_S = 5.0
ENDING = "that is just ending"  # in the lock of an agent that tidies up


def tidy() -> dict[str, Any]:
    """{"processes": ids that were ended, "folders": what was removed}."""
    processes = kill_processes()
    return {"processes": processes, "folders": remove_cgroups() + remove_scratch()}


def is_at_work(name: str, namespace: str = "") -> bool:
    """Whether that agent lives. One of another PID namespace (a container, a step of a batch
    system) cannot be seen from here: what it left is not ours to judge."""
    if namespace and namespace != pid_namespace():
        return True
    pid, _, ticks = name.partition(".")
    if not (pid.isdigit() and ticks.isdigit()):
        return False
    return start_ticks(int(pid)) == int(ticks) and is_alive(int(pid))


def lock_files() -> list[str]:
    """The machine's locks: each user takes all that it can, so that any two meet in one of them.

    Only root makes a file in /run; there and in /tmp a file of another can be locked all the same.
    """
    if "WIRESPEED_LOCK" in os.environ:
        return [os.environ["WIRESPEED_LOCK"]]
    return ["/run/wirespeed.lock", "/tmp/wirespeed.lock"]


def open_lock(path: str) -> int | None:
    """A descriptor that can be locked; None where none can be opened.

    A lock that can be read can be held, so a new one is for everybody, whatever the umask is. The
    mode of one that exists stays: an administrator may keep it for a group (chgrp, chmod 0640).
    """
    safe = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    for flags in (os.O_RDWR | os.O_CREAT | os.O_EXCL, os.O_RDWR, os.O_RDONLY):
        try:
            handle = os.open(path, flags | safe, 0o644)
        except OSError:
            continue
        if stat.S_ISREG(os.fstat(handle).st_mode):
            if flags & os.O_EXCL:
                os.fchmod(handle, 0o644)
            return handle
        os.close(handle)
    return None


def is_own(handle: int) -> bool:
    """Whether this user made the file: into another's, which may be a link to anything, nothing is
    ever written."""
    return os.fstat(handle).st_uid == os.geteuid()


def sign(handle: int, text: str) -> None:
    """Says in a lock who holds it, and which agent says so, where there is room for it."""
    if not is_own(handle):
        return
    try:
        os.ftruncate(handle, 0)
        words = (text, identity(os.getpid()), pid_namespace())
        os.pwrite(handle, ("{}\n{}\n{}\n".format(*words)).encode(), 0)
    except OSError:  # a full /tmp must not stop a measurement
        pass


def holder(handle: int) -> str:
    """The owner of a lock as the file names it; it may be the one before."""
    lines = os.pread(handle, 512, 0).decode("utf-8", "replace").split("\n")
    text, agent, namespace = [*lines, "", ""][:3]
    if agent and not is_at_work(agent, namespace):
        text = ""
    return text.strip() or "of another user" + process_with(handle)


def process_with(handle: int) -> str:
    """Which process has locked the file, as the kernel lists it: any user of the host may."""
    state = os.fstat(handle)
    place = f"{os.major(state.st_dev):02x}:{os.minor(state.st_dev):02x}:{state.st_ino}"
    for line in read_text("/proc/locks").splitlines():
        fields = line.split()
        if len(fields) > 5 and fields[1] == "FLOCK" and fields[5] == place and fields[4] != "0":
            name = read_text(f"/proc/{fields[4]}/comm").strip()
            return " (process {}{})".format(fields[4], ", " + name if name else "")
    return ""


def is_ending() -> bool:
    """Whether the agent that has this machine's lock only tidies up: it says so there."""
    for path in lock_files():
        try:
            # Never waits: anybody can put a pipe in the lock's place.
            handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            continue
        try:
            if stat.S_ISREG(os.fstat(handle).st_mode) and holder(handle) == ENDING:
                fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(handle)
    return False


def claim(folder: str | os.PathLike[str]) -> None:
    """Makes a folder for this user's files, or takes one that only this user can have made.

    The places for scratch files are open to every user of the host, and the name can be guessed:
    into a folder or through a link of another user, root would write wherever that user likes.
    """
    try:
        os.mkdir(folder, 0o700)
        # Under each umask: servers that give up root still reach the files in it.
        os.chmod(folder, 0o711)
    except FileExistsError:
        if not is_private(folder):
            raise Refused(
                f"{folder} belongs to another user or is open to others; remove it, or set TMPDIR"
            ) from None


def is_private(folder: str | os.PathLike[str]) -> bool:
    """Whether it is a folder, not a link to one, of this user, that no other user writes into."""
    try:
        state = os.lstat(folder)
    except OSError:
        return False
    is_shut = not state.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return stat.S_ISDIR(state.st_mode) and state.st_uid == os.geteuid() and is_shut


def own(folder: str) -> None:
    """Claims a folder and notes in it that it belongs to this agent."""
    claim(folder)
    write_text(os.path.join(folder, OWNERS_NAMESPACE), pid_namespace())
    write_text(os.path.join(folder, OWNER), identity(os.getpid()))


def is_anothers(folder: str) -> bool:
    """Whether an agent that is at work has taken it over: hosts of one machine share a folder, and
    so does a run that goes on before the last agent of the killed one has ended."""
    owner = read_text(os.path.join(folder, OWNER))
    is_here = read_text(os.path.join(folder, OWNERS_NAMESPACE)) == pid_namespace()
    return is_here and owner != identity(os.getpid()) and is_at_work(owner)


def disown(folder: str) -> None:
    """Removes a folder of this agent's, again while something that is just ending writes there."""
    if is_anothers(folder):
        return
    deadline = time.monotonic() + REMOVED_S
    shutil.rmtree(folder, ignore_errors=True)
    while os.path.exists(folder) and time.monotonic() < deadline:
        time.sleep(0.05)
        shutil.rmtree(folder, ignore_errors=True)


def kill_processes() -> list[int]:
    """Kills processes that carry the mark of an agent that is gone; returns their ids."""
    pids = [pid for pid, name in marked().items() if not is_at_work(name)]
    for pid in pids:
        try:
            send_signal(pid, signal.SIGKILL)
        except PermissionError:
            continue
    deadline = time.monotonic() + GONE_S
    while any(is_alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.02)
    return pids


def marked() -> dict[int, str]:
    """process → the agent that started it, from its environment"""
    marks: dict[int, str] = {}
    namespace = os.readlink("/proc/self/ns/pid")
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            if os.readlink(f"/proc/{entry}/ns/pid") != namespace:
                continue  # of a container: its agent's process id means nothing here
            variables = environment_of(int(entry))
        except OSError:
            continue
        for variable in variables:
            if variable.startswith(MARK):
                marks[int(entry)] = variable[len(MARK) :].decode(errors="replace")
    return marks


def remove_cgroups() -> list[str]:
    """Folders without members, and not of an agent that is at work."""
    removed: list[str] = []
    for tree in CGROUP_TREES:
        for base, folders, _ in os.walk(tree):
            for name in [name for name in folders if name.startswith("wirespeed-")]:
                folder = os.path.join(base, name)
                folders.remove(name)
                rest, _, owner = name.rpartition("-")
                namespace = rest.rpartition("-ns")[2] if "-ns" in rest else ""
                if "." in owner and not is_at_work(owner, namespace):
                    for inner in folders_in(folder):
                        remove_folder(inner)
                    remove_folder(folder)
                    removed.append(folder)
    return removed


def folders_in(folder: str) -> list[str]:
    """Nothing where it is gone already: its own agent, or another one, tidies at the same time."""
    try:
        paths = [os.path.join(folder, name) for name in os.listdir(folder)]
    except OSError:
        return []
    return [path for path in paths if os.path.isdir(path)]


def remove_scratch() -> list[str]:
    removed: list[str] = []
    for root in scratch_roots():
        for name in os.listdir(root) if os.path.isdir(root) else ():
            folder = os.path.join(root, name)
            if not name.startswith("wirespeed-") or not is_private(folder):
                continue  # another user's: whatever it holds, a pipe for example, is not read
            owner = read_text(os.path.join(folder, OWNER))
            namespace = read_text(os.path.join(folder, OWNERS_NAMESPACE))
            if owner and not is_at_work(owner, namespace):
                shutil.rmtree(folder, ignore_errors=True)
                removed.append(folder)
    return removed
