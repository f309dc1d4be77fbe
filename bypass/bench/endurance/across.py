"""Kills either side of connections between two network namespaces, and looks for what is left.

    python3 across.py --bypass target/release/bypass [--kills 1000]

Needs root and ip. Half of the kills end clients of one server, the other half servers of one client. The side that is left
must read the end of the connection, or a reset, within seconds; afterwards it may not have more descriptors or memory, nor
the shared directory more files. Prints a line for each half and ends with status 1 on an error. 1,000 kills take minutes.
Standard library only.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ADDRESS, PORT = "10.96.0.2", 80
SECONDS_MAX = 60
#: A container's namespaces, except its network. Its processes end with it.
CONTAINER = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--uts", "--ipc"]
#: Kills after which a side has what it needs for the rest.
WARM = 20
#: Sockets of the side that stays, and of victims that no process has met since.
FILES_MAX = 40

#: Echoes, and prints the end of each connection that has asked for that.
SERVER = """
import os, selectors, socket, sys
listener = socket.create_server((sys.argv[1], int(sys.argv[2])))
listener.setblocking(False)
events, marked = selectors.DefaultSelector(), set()
events.register(listener, selectors.EVENT_READ)
print("ready", flush=True)
while True:
    for key, _ in events.select():
        one = key.fileobj
        if one is listener:
            try:
                one = listener.accept()[0]
            except BlockingIOError:
                continue
            one.setblocking(True)
            events.register(one, selectors.EVENT_READ)
            continue
        how = "end"
        try:
            if got := one.recv(65536):
                if got == b"mark":
                    marked.add(one)
                one.sendall(got)
                continue
        except ConnectionError:
            how = "reset"
        events.unregister(one)
        one.close()
        if one in marked:
            marked.remove(one)
            print(how, flush=True)
"""
#: Connects until the kernel does not carry the bytes, and says so; then prints how the connection ends, and begins again.
CLIENT = """
import socket, sys, time
def sent():
    names, values = (line.split() for line in open("/proc/net/snmp") if line.startswith("Tcp:"))
    return int(values[names.index("OutSegs")])
def asks(one, text):
    one.sendall(text)
    got = b""
    while len(got) < len(text):
        if not (more := one.recv(65536)):
            raise ConnectionResetError
        got += more
    assert got == text, got
def connected():
    while True:
        before = sent()
        try:
            one = socket.create_connection((sys.argv[1], int(sys.argv[2])), 5)
            for _ in range(20):
                asks(one, b"x")
            if sent() - before < 12:
                asks(one, b"mark")
                one.settimeout(None)
                return one
            one.close()
        except OSError:
            pass
        time.sleep(0.01)
while True:
    one = connected()
    print("shared", flush=True)
    try:
        print("wrong" if one.recv(1) else "end", flush=True)
    except ConnectionError:
        print("reset", flush=True)
    one.close()
"""


class Pods:
    """Two network namespaces that a link joins."""

    def __init__(self):
        self.client, self.server = self.names = [f"across{number}-{os.getpid()}" for number in range(2)]
        for name in self.names:
            subprocess.run(["ip", "netns", "add", name], check=True)
        run(self.client, f"ip link add eth0 type veth peer name eth0 netns {self.server}")
        for number, name in enumerate(self.names, 1):
            run(name, f"ip link set lo up; ip address add 10.96.0.{number}/24 dev eth0; ip link set eth0 up")

    def close(self):
        for name in self.names:
            subprocess.run(["ip", "netns", "delete", name], check=False)


def run(pod, line):
    subprocess.run(["ip", "netns", "exec", pod, "sh", "-ec", line], check=True)


class Side:
    """A program in a container, of which each line is waited for."""

    def __init__(self, options, pod, script, share):
        words = [*CONTAINER, options.bypass.resolve(), "run", "--share", share, "--", sys.executable, "-c", script]
        command = ["ip", "netns", "exec", pod, *words, ADDRESS, PORT]
        self.process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, text=True)

    def line(self):
        # A program that says nothing more is killed, and its line is empty.
        timer = threading.Timer(SECONDS_MAX, self.process.kill)
        timer.start()
        said = self.process.stdout.readline().strip()
        timer.cancel()
        return said

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def program(self):
        """The program's number: it is unshare's child."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return int(children.read_text().split()[0])

    def holds(self):
        """Its descriptors, and its memory in KiB."""
        folder = Path(f"/proc/{self.program()}")
        status = (folder / "status").read_text().splitlines()
        memory = next(line for line in status if line.startswith("VmRSS"))
        return len(list((folder / "fd").iterdir())), int(memory.split()[1])


def await_shared(client):
    while (said := client.line()) != "shared":
        if not said:
            sys.exit("across.py: no connection is shared")


def is_more(late, early):
    return late[0] > early[0] + 20 or late[1] > early[1] * 1.5 + 4096


def storm(stays, start_victim, kills):
    """Kills victims of the side that stays, which says how each connection has ended; counts of that, and what the side
    had after a few and at the end. `start_victim` returns when a connection is in memory."""
    ends = {}
    for number in range(kills):
        victim = start_victim()
        if number == WARM:
            early = stays.holds()
        victim.kill()
        how = stays.line()
        ends[how] = ends.get(how, 0) + 1
        if how not in ("end", "reset"):
            break
    # A process keeps the segments of an ended peer for some seconds.
    patience = time.monotonic() + SECONDS_MAX
    while is_more(late := stays.holds(), early) and time.monotonic() < patience:
        time.sleep(1)
    return ends, early, late


def report(name, found, files):
    ends, early, late = found
    is_wrong = set(ends) - {"end", "reset"} or is_more(late, early) or files > FILES_MAX
    print(f"{name}: {ends}; descriptors {early[0]} → {late[0]}, memory {early[1]} → {late[1]} KiB; {files} files left",
          flush=True)
    return bool(is_wrong)


def client_storm(options, pods, share):
    server = Side(options, pods.server, SERVER, share)
    try:
        server.line()

        def start():
            client = Side(options, pods.client, CLIENT, share)
            await_shared(client)
            return client

        found = storm(server, start, options.kills // 2)
        return report("clients killed", found, len(os.listdir(share)))
    finally:
        server.kill()


def server_storm(options, pods, share):
    client = Side(options, pods.client, CLIENT, share)
    try:

        def start():
            server = Side(options, pods.server, SERVER, share)
            server.line()
            await_shared(client)
            return server

        found = storm(client, start, options.kills // 2)
        return report("servers killed", found, len(os.listdir(share)))
    finally:
        client.kill()


def main():
    # Ended from outside, the namespaces are removed too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bypass", type=Path, default=Path("target/release/bypass"))
    parser.add_argument("--kills", type=int, default=1000)
    options = parser.parse_args()
    if options.kills < 2 * (WARM + 1):
        parser.error(f"--kills: {options.kills} are too few ({2 * (WARM + 1)} or more)")
    pods = Pods()
    try:
        with tempfile.TemporaryDirectory(prefix="a-", dir="/tmp") as folder:
            share = Path(folder) / "share"
            share.mkdir(mode=0o770)
            wrong = [half(options, pods, share) for half in (client_storm, server_storm)]
    finally:
        pods.close()
    return int(any(wrong))


if __name__ == "__main__":
    raise SystemExit(main())
