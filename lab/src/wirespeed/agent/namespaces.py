"""Part of the agent: network namespaces for single programs, each with a macvlan interface.

As in the published method: one namespace a generator, on the card that all of them share. A
namespace has no name; it lives as long as the agent holds its descriptor or a program is in it.
Standard library of Python 3.9 only: see main.py.
"""

from __future__ import annotations

import os
import signal
import subprocess

from wirespeed.agent.children import CLONE_NEWNET, LIBC, Refused, die_with, send_signal


class Namespaces:
    """(interface below, address) → descriptor of the namespace."""

    def __init__(self) -> None:
        self.made: dict[tuple[str, str], int] = {}

    def descriptor(self, on: str, address: str) -> int:
        """Makes it when it is asked for the first time."""
        if (on, address) not in self.made:
            self.made[on, address] = make(on, address, f"mv{len(self.made)}")
        return self.made[on, address]


def make(on: str, address: str, interface: str) -> int:
    told_read, told_write = os.pipe()
    agent = os.getpid()
    pid = os.fork()
    if pid == 0:
        die_with(agent)
        is_apart = LIBC.unshare(CLONE_NEWNET) == 0
        os.write(told_write, b"1" if is_apart else b"0")
        signal.pause()
        os._exit(0)
    try:
        os.close(told_write)
        if os.read(told_read, 1) != b"1":
            raise Refused("a network namespace for a program needs root")
        where = f"/proc/{pid}/ns/net"
        run(f"ip link add {interface} link {on} netns {pid} type macvlan mode bridge")
        inside = f"nsenter --net={where} "
        # Named as the one below: whoever names the link's interface (bypass) finds it here too.
        run(inside + f"ip link set {interface} name {on}")
        run(inside + f"ip address add {address} dev {on}")
        run(inside + f"ip link set {on} up")
        run(inside + "ip link set lo up")
        return os.open(where, os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(told_read)
        send_signal(pid, signal.SIGKILL)


def run(command: str) -> None:
    environment = dict(os.environ, PATH=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    process = subprocess.Popen(
        command.split(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
    )
    text, _ = process.communicate()
    if process.returncode:
        raise Refused("{}: {}".format(command, text.decode(errors="replace").strip()))
