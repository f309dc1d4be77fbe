"""Part of the agent: files of a host: payloads, their mounts, and files copied to or from it.

Standard library of Python 3.9 only: see main.py.
"""

from __future__ import annotations

import base64
import ctypes
import errno
import os
import shutil
from collections.abc import Sequence
from typing import Any

from wirespeed.agent.children import LIBC, Refused

BLOCK_BYTES = 1 << 20
SEED = 1  # the same bytes in every run, so that payloads compare
CLONE_NEWNS = 0x00020000
MS_REC, MS_PRIVATE = 16384, 1 << 18
# What mount(2) takes as flags; everything else goes to the file system as text.
FLAGS = {
    "noatime": 1024,
    "nodiratime": 2048,
    "relatime": 1 << 21,
    "nosuid": 2,
    "nodev": 4,
    "noexec": 8,
}

mounted: set[str] = set()


def scratch_roots() -> list[str]:
    """Where the files of a run may lie while it lasts, the best first: memory, where there is some.

    Leftovers of killed agents are searched in all of them.
    """
    return ["/dev/shm", os.environ.get("TMPDIR", "/tmp"), "/var/tmp"]


def memory_folder() -> str:
    """The first that takes files, and programs too: they are sent there, and hardened hosts mount
    /dev/shm so that nothing in it can be started."""
    writable = [path for path in scratch_roots() if os.access(path, os.W_OK)]
    good = [path for path in writable if not os.statvfs(path).f_flag & os.ST_NOEXEC]
    return (good or writable or scratch_roots()[1:])[0]


def make_all(sets: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Writes each payload once; one that has its size already is left alone."""
    for one in sets:
        path = os.path.join(one["folder"], one["name"])
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            if not os.path.exists(path) or os.stat(path).st_size != one["size_bytes"]:
                check_room(path, one["size_bytes"])
                write_payload(path, one["size_bytes"], one["fill"])
        except OSError as error:
            raise Refused(f"cannot write the payload {path}: {error.strerror}") from None
    return {"mounted": sorted(mounted)}


def check_room(path: str, size_bytes: int) -> None:
    """Before a payload takes the machine's last memory: most of them lie there."""
    there = os.stat(path).st_size if os.path.exists(path) else 0
    state = os.statvfs(os.path.dirname(path))
    free = state.f_bavail * state.f_frsize + there
    if size_bytes > free:
        raise Refused(f"the payload {path} takes {size_bytes} bytes, free are {free}")


def write_payload(path: str, left: int, fill: str) -> None:
    import random  # takes a tenth of the agent's start, and few agents write payloads

    chance = random.Random(SEED)
    with open(path, "wb") as file:
        while left:
            size = min(left, BLOCK_BYTES)
            is_random = fill == "random"
            file.write(
                chance.getrandbits(8 * size).to_bytes(size, "little") if is_random else bytes(size)
            )
            left -= size


def is_of_run(folder: str) -> bool:
    """Whether a folder lies below one that an agent made for its run."""
    return any(folder.startswith(root + "/wirespeed-") for root in scratch_roots())


def mount_all(sets: Sequence[dict[str, Any]]) -> None:
    """Mounts what the files ask for, seen by this agent's programs only and gone with them.

    In a mount namespace of the agent's own the kernel unmounts, however everything ends. Without
    root nothing is mounted, nor as the root of a container that may not mount, if all are folders
    of the run: the files lie in memory all the same. In any other folder they would replace files.
    """
    for one in sets:
        mount, folder = one.get("mount"), one["folder"]
        if not mount or folder in mounted or os.geteuid() != 0:
            continue
        if not mounted:
            if LIBC.unshare(CLONE_NEWNS) != 0:
                wanted = [one["folder"] for one in sets if one.get("mount")]
                if ctypes.get_errno() == errno.EPERM and all(map(is_of_run, wanted)):
                    return
                check(-1, "a mount namespace")
            check(
                LIBC.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None), "a private mount tree"
            )
        os.makedirs(folder, exist_ok=True)
        words = [word for word in mount["options"].split(",") if word]
        flags = sum(FLAGS[word] for word in words if word in FLAGS)
        rest = ["size=" + mount["size"]] + [word for word in words if word not in FLAGS]
        text = ",".join(rest).encode()
        result = LIBC.mount(b"tmpfs", folder.encode(), b"tmpfs", ctypes.c_ulong(flags), text)
        check(
            result, "tmpfs ({}) on {}".format(",".join([*words, "size=" + mount["size"]]), folder)
        )
        mounted.add(folder)


def check(result: int, what: str) -> None:
    if result != 0:
        raise Refused(f"cannot mount {what}: {os.strerror(ctypes.get_errno())}")


def put(message: dict[str, Any]) -> dict[str, Any]:
    """One piece of a file; the last one is checked against the hash and takes the file's name.

    A file that is there already with this hash is not sent at all: ask with no data first.
    """
    path = message["path"]
    if "data" not in message:
        return {"has": os.path.exists(path) and hash_of(path) == message["sha256"]}
    os.makedirs(os.path.dirname(path), exist_ok=True)
    partial = path + ".part"
    with open(partial, "r+b" if message["offset"] else "wb") as file:
        file.seek(message["offset"])
        file.write(base64.b64decode(message["data"]))
    if not message["is_last"]:
        return {}
    if hash_of(partial) != message["sha256"]:
        os.unlink(partial)
        raise Refused(f"{path} did not arrive whole")
    os.chmod(partial, message["mode"])
    os.replace(partial, path)
    return {}


def get(message: dict[str, Any]) -> dict[str, Any]:
    """A piece of a file from `offset` on; {"data", "size"}."""
    with open(message["path"], "rb") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(message["offset"])
        data = file.read(message["length"])
    return {"data": base64.b64encode(data).decode(), "size": size}


def listing(folder: str) -> list[list[Any]]:
    """[[path below the folder, bytes, last written in ns], …] of all files."""
    entries: list[list[Any]] = []
    for base, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(base, name)
            if os.path.isfile(path) and not os.path.islink(path):
                state = os.stat(path)
                entries.append([os.path.relpath(path, folder), state.st_size, state.st_mtime_ns])
    return sorted(entries)


def remove(folder: str) -> dict[str, Any]:
    shutil.rmtree(folder, ignore_errors=True)
    return {}


def hash_of(path: str | os.PathLike[str]) -> str:
    import hashlib  # likewise

    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(BLOCK_BYTES), b""):
            digest.update(block)
    return digest.hexdigest()
