#!/usr/bin/env python3
"""Tries each kind of link between two namespaces, and prints a table of them.

    kinds.py build/kernel                under another kernel, with every kind that it has: see guest.py
    kinds.py --here                      under this host's kernel, as root

What `--check` accepts must carry all of peer.py with the server accelerated, with the client, and with both; what it
refuses must work on the kernel, with the reason in `bypass stat`. Each run has a limit of time. Exits with 1 where bytes
are lost, changed or late, where the check's answer is not the expected one, where an XDP program is left on an interface,
or where the kernel warns. A cell has the connections over packets, of all that were begun.

WireGuard needs `wg` (apt-get install wireguard-tools). Emulation only: no figure of speed means anything.
"""

import argparse
import contextlib
import ctypes
import fcntl
import json
import os
import re
import select
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[2]
SERVER = "10.76.0.2"
#: Of a whole run, and until something is over packets. Emulation is slow.
RUN_S = 150
SETTLE_S = 60
HEADS = ("kind", "`--check`", "server", "client", "both ends")
#: The two hosts: client and server.
SIDES = ("a", "b")
MARK = "KINDS "


def say(line):
    print(f"{MARK}{line}", flush=True)


def run(*words, inside=None, **more):
    prefix = ("ip", "netns", "exec", inside) if inside else ()
    return subprocess.run([*prefix, *words], check=True, capture_output=True, text=True, timeout=RUN_S, **more).stdout


def ip(words, side=None):
    return run("ip", *(("-n", side) if side else ()), *words.split())


def namespace(name, ending):
    ip(f"netns add {name}")
    ending.callback(subprocess.run, ["ip", "netns", "del", name])


class Kind:
    """Links of one kind, at both hosts alike."""

    def __init__(self, name, *commands, after=(), addressed="u", named=None, device="", build=None, pairs="v", carries=True,
                 reasons=("interface", "interface")):
        self.name = name
        #: Of ip, for each host; {own} and {peer} are 1 and 2, or 2 and 1.
        self.commands = commands
        #: The same, once both hosts have their addresses.
        self.after = after
        #: The interface that has the address, and the one that is named to bypass.
        self.addressed, self.named = addressed, named or addressed
        #: The interface to which the client binds its sockets, whose routes are in a table of their own.
        self.device = device
        #: Makes the links that commands for each host cannot make.
        self.build = build
        #: Names of the pairs of veth below.
        self.pairs = pairs
        #: Whether the check is to accept it.
        self.carries = carries
        #: Where it does not, the reasons that server and client have.
        self.reasons = dict(zip(("server", "client"), reasons, strict=True))

    def make(self, ending):
        for side in SIDES:
            namespace(side, ending)
            ip("link set lo up", side)
            # Else a host answers ARP for an address at each of its interfaces.
            run("sysctl", "-qw", "net.ipv4.conf.all.arp_ignore=1", inside=side)
            if self.device:
                # A listener serves every routing table.
                run("sysctl", "-qw", "net.ipv4.tcp_l3mdev_accept=1", inside=side)
        for pair in self.pairs:
            ip(f"link add {pair} netns a type veth peer name {pair} netns b")
        if self.build:
            self.build(ending)
        for own, side in enumerate(SIDES, 1):
            for command in self.commands:
                ip(command.format(own=own, peer=3 - own), side)
            for interface in re.findall(r"^\d+: (\w+)", ip("-o link show", side), re.M):
                ip(f"link set dev {interface} up", side)
            ip(f"addr add 10.76.0.{own}/24 dev {self.addressed}", side)
        for own, side in enumerate(SIDES, 1):
            for command in self.after:
                ip(command.format(own=own, peer=3 - own), side)


def bridged(ending):
    """Another namespace, whose bridge joins the two: as between containers of one host."""
    namespace("h", ending)
    ip("link add joined up type bridge", "h")
    for side in SIDES:
        ip(f"link add u netns {side} type veth peer name {side} netns h")
        ip(f"link set dev {side} master joined up", "h")


def siblings(ending):
    """Macvlans of one parent, which joins them."""
    namespace("h", ending)
    ip("link add parent up type dummy", "h")
    for side in SIDES:
        ip(f"link add u link parent netns {side} type macvlan mode bridge", "h")


def routed_ipvlan(ending):
    """Its parent's namespace routes for it."""
    for side in SIDES:
        namespace(f"p{side}", ending)
    ip("link add v netns pa type veth peer name v netns pb")
    for own, side in enumerate(SIDES, 1):
        ip(f"addr add 10.71.0.{own}/24 dev v", f"p{side}")
        ip("link set dev v up", f"p{side}")
        ip(f"link add u link v netns {side} type ipvlan mode l3", f"p{side}")
    for own, side in enumerate(SIDES, 1):
        ip(f"route add 10.76.0.{3 - own} via 10.71.0.{3 - own} dev v", f"p{side}")


def cards(ending):
    """A card of the guest's for each host, joined outside."""
    for side, card in zip(SIDES, os.environ["BYPASS_TEST_CARDS"].split(), strict=True):
        ip(f"link set dev {card} netns {side}")
        ip(f"link set dev {card} name v", side)
        ip("link set dev v up", side)
        # It leaves the namespace when that ends, and its name would be taken here.
        ending.callback(subprocess.run, ["ip", "-n", side, "link", "set", "dev", "v", "name", card])
        ending.callback(subprocess.run, ["ip", "-n", side, "link", "set", "dev", "v", "down"])


def wireguard(_):
    keys = {side: run("wg", "genkey").strip() for side in SIDES}
    for own, side in enumerate(SIDES, 1):
        other = run("wg", "pubkey", input=keys[SIDES[2 - own]]).strip()
        ip("link add u type wireguard", side)
        ip(f"addr add 10.71.0.{own}/24 dev v", side)
        run("wg", "set", "u", "listen-port", "51820", "private-key", "/proc/self/fd/0", "peer", other, "allowed-ips", "10.76.0.0/24",
            "endpoint", f"10.71.0.{3 - own}:51820", inside=side, input=keys[side])


def tunnel(mode):
    """Interfaces whose other ends are this process, which forwards between the two."""
    # linux/if_tun.h: TUNSETIFF; IFF_TUN or IFF_TAP, IFF_NO_PI.
    flags = 0x1000 | {"tun": 1, "tap": 2}[mode]

    def opened(side):
        # A namespace is a thread's.
        space = os.open(f"/run/netns/{side}", os.O_RDONLY)
        if ctypes.CDLL(None, use_errno=True).setns(space, 0):
            raise OSError(ctypes.get_errno(), "setns")
        os.close(space)
        tun = os.open("/dev/net/tun", os.O_RDWR)
        fcntl.ioctl(tun, 0x400454CA, struct.pack("16sH22x", b"u", flags))
        return tun

    def build(ending):
        ends = []
        for side in SIDES:
            thread = threading.Thread(target=lambda side=side: ends.append(opened(side)))
            thread.start()
            thread.join()
        stop = os.pipe()

        def forward():
            while stop[0] not in (ready := select.select([*ends, stop[0]], [], [])[0]):
                for end in ready:
                    # An interface that is down takes nothing.
                    with contextlib.suppress(OSError):
                        os.write(ends[1 - ends.index(end)], os.read(end, 65549))
            for fd in (*ends, *stop):
                os.close(fd)

        thread = threading.Thread(target=forward)
        thread.start()
        ending.callback(thread.join)
        ending.callback(os.write, stop[1], b"x")

    return build


BOND = "link add u type bond miimon 100 mode "
MEMBERS = ("link set dev v master u", "link set dev w master u")
VLAN = "link add u link v type vlan id 7"
VRF = ("link add u type vrf table 10", "link set dev v master u")
#: Reasons of server and client: the client's route leads over another interface, or its socket is bound to one.
ELSEWHERE = ("interface", "not-local")
BOUND = ("interface", "option")
KINDS = (
    Kind("veth", addressed="v"),
    Kind("veth at a bridge between", build=bridged, pairs=""),
    Kind("veth next to a VRF", "link add x type vrf table 10", "link set dev w master x", addressed="v", pairs="vw"),
    Kind("macvlan", "link add u link v type macvlan mode bridge"),
    Kind("macvlans of one parent", build=siblings, pairs=""),
    Kind("bridge", "link add u type bridge", "link set dev v master u"),
    Kind("TAP", build=tunnel("tap"), pairs=""),
    Kind("VLAN", VLAN),
    Kind("VLAN above a bond", BOND + "active-backup", *MEMBERS, VLAN.replace("link v", "link u").replace("add u", "add x"),
         addressed="x", pairs="vw"),
    Kind("VLAN, reorder_hdr off", f"{VLAN} reorder_hdr off", carries=False),
    Kind("VLAN above virtio", VLAN, build=cards, pairs=""),
    *(Kind(f"bond, {mode.split()[0]}", BOND + mode, *MEMBERS, pairs="vw")
      for mode in ("active-backup", "balance-rr", "balance-xor", "802.3ad lacp_rate fast")),
    Kind("bond, balance-alb", BOND + "balance-alb", *MEMBERS, pairs="vw", carries=False),
    Kind("member of a bond", BOND + "active-backup", *MEMBERS, named="v", pairs="vw", carries=False,
         reasons=ELSEWHERE),
    Kind("VRF", *VRF, addressed="v", named="u", device="u", carries=False, reasons=BOUND),
    Kind("member of a VRF", *VRF, addressed="v", device="u", carries=False, reasons=BOUND),
    Kind("ipvlan L2", "link add u link v type ipvlan mode l2"),
    Kind("ipvlan L3", build=routed_ipvlan, pairs="", carries=False),
    Kind("vxlan", "addr add 10.71.0.{own}/24 dev v", "link add u type vxlan id 5 remote 10.71.0.{peer} dstport 4789 dev v",
         carries=False),
    Kind("wireguard", build=wireguard, carries=False),
    Kind("tun", build=tunnel("tun"), pairs="", carries=False),
    # Its address is reached by another interface.
    Kind("dummy", "link add u type dummy", "addr add 10.71.0.{own}/24 dev v", carries=False, reasons=ELSEWHERE,
         after=("route add 10.76.0.{peer} via 10.71.0.{peer} dev v src 10.76.0.{own}",)),
)


class Program:
    """An end of peer.py in a namespace, with bypass or without."""

    def __init__(self, ending, kind, side, is_accelerated, *arguments):
        bypass = (BYPASS, "run", "--interface", kind.named, "--") if is_accelerated else ()
        self.is_accelerated = is_accelerated
        self.reason = kind.reasons[arguments[0]]
        self.process = subprocess.Popen(
            ["ip", "netns", "exec", side, *bypass, sys.executable, "-I", "-S", FOLDER / "peer.py", *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        ending.callback(self.end)
        self.expect("ready", SETTLE_S)

    def end(self):
        self.process.kill()
        self.process.wait()

    def line(self, limit_s):
        """The next line; TimeoutError where none comes."""
        text, until = b"", time.monotonic() + limit_s
        while not text.endswith(b"\n"):
            if not select.select([self.process.stdout], [], [], max(0, until - time.monotonic()))[0]:
                raise TimeoutError(f"nothing for {limit_s} s")
            byte = os.read(self.process.stdout.fileno(), 1)
            if not byte:
                raise OSError("it has ended")
            text += byte
        return text.decode().strip()

    def expect(self, word, limit_s):
        found = self.line(limit_s)
        if found != word:
            raise OSError(f"{found!r} instead of {word!r}")

    def tell(self):
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()

    def stat(self):
        """Connections over packets, and how often there was the reason for the kernel that is expected."""
        done = subprocess.run([BYPASS, "stat", "--json", str(self.process.pid)], capture_output=True, text=True,
                              timeout=RUN_S)
        shown = json.loads(done.stdout)["processes"] if done.returncode == 0 else []
        counters = [one["counters"] for one in shown]
        over_packets = sum(one.get(name, 0) for one in counters for name in ("accepts_packets", "connects_packets"))
        return over_packets, sum(one["fallbacks"].get(self.reason, 0) for one in shown)


def exchange(kind, accelerated, carries):
    """The outcome of one run, over packets or on the kernel: a cell, and whether it is right."""
    with contextlib.ExitStack() as ending:
        try:
            server = Program(ending, kind, "b", "server" in accelerated, "server")
            device = [kind.device] if kind.device else []
            client = Program(ending, kind, "a", "client" in accelerated, "client", SERVER, *device)
            watched = [one for one in (server, client) if one.is_accelerated]
            until = time.monotonic() + SETTLE_S
            while not all(one.stat()[0 if carries else 1] for one in watched):
                if time.monotonic() > until:
                    raise TimeoutError("nothing over packets" if carries else "no reason in bypass stat")
                time.sleep(0.2)
            client.tell()
            client.expect("paused", RUN_S)
            before = [one.stat()[0] for one in watched]
            client.tell()
            result = json.loads(client.line(RUN_S))
            gained = [one.stat()[0] - at_first for one, at_first in zip(watched, before, strict=True)]
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"FAILED: {error}", False
    if result["failed"]:
        return f"FAILED: {'; '.join(result['failed'])}", False
    if not carries:
        return "kernel", not any(gained)
    # Each end knows of its own: an attempt that the server refuses is none of its connections.
    return ", ".join(f"{count} of {result[role]}" for role, count in zip(accelerated, gained, strict=True)), all(gained)


def answers(kind):
    """Whether the server's host answers: of a bond the members may have to agree first."""
    device = ("-I", kind.device) if kind.device else ()
    ping = ["ip", "netns", "exec", "a", "busybox", "ping", "-c", "1", "-W", "1", *device, SERVER]
    until = time.monotonic() + SETTLE_S
    while not (is_there := subprocess.run(ping, stdout=subprocess.DEVNULL).returncode == 0) and time.monotonic() < until:
        time.sleep(0.2)
    return is_there


def checked(kind):
    """The check's words about the server's interface, and whether it accepts it."""
    done = subprocess.run(["ip", "netns", "exec", "b", BYPASS, "run", "--interface", kind.named, "--check", "--", sys.executable],
                          capture_output=True, text=True, timeout=RUN_S)
    first = re.search(rf"^  {kind.named}: [^,\n]*, ([^,\n]+(?:, copying)?), queues", done.stdout, re.M)
    missing = re.findall(r"^    missing: ([^;\n]*)", done.stdout, re.M)
    if missing:
        return f"refused: {missing[0]}", False
    return (first[1], True) if first else (f"FAILED: status {done.returncode}", False)


def left_behind():
    """The names of interfaces that still have a program some seconds after the last process has ended."""
    for _ in range(50):
        shown = "".join(ip("-o link show", side) for side in SIDES)
        found = re.findall(r"^\d+: (\w+).*\bxdp", shown, re.M)
        if not found:
            break
        time.sleep(0.2)
    return found


def warnings():
    return len(re.findall(r"WARNING: |BUG: |Oops|Call Trace", run("dmesg")))


def row(kind):
    """The cells of a kind, and whether all of them are right. What this kernel lacks is not tried."""
    warned = warnings()
    with contextlib.ExitStack() as ending:
        try:
            kind.make(ending)
        except (subprocess.CalledProcessError, KeyError) as error:
            reason = (getattr(error, "stderr", "") or str(error)).strip().splitlines()[-1]
            return [kind.name, f"not tried: {reason}", "", "", ""], True
        if not answers(kind):
            return [kind.name, "FAILED: no answer to a ping", "", "", ""], False
        said, carries = checked(kind)
        runs = (("server",), ("client",), ("server", "client")) if carries else (("server", "client"),)
        cells, is_right = [], "FAILED" not in said and (carries == kind.carries or "need Linux 6.6" in said)
        for accelerated in runs:
            cell, was_right = exchange(kind, accelerated, carries)
            if left := left_behind():
                cell, was_right = f"{cell}; FAILED: a program is left on {', '.join(left)}", False
            cells.append(cell)
            is_right &= was_right
        cells = cells if carries else ["", "", *cells]
        if warnings() > warned:
            cells[-1] += "; FAILED: the kernel warns"
            is_right = False
    return [kind.name, said, *cells], is_right


def here(only):
    """Prints the rows under this kernel; in namespaces of its own."""
    failed = 0
    for kind in KINDS:
        if re.search(only, kind.name):
            started = time.monotonic()
            cells, is_right = row(kind)
            failed += not is_right
            say(f"| {' | '.join(cells)} |")
            print(f"{kind.name}: {'right' if is_right else 'WRONG'}, {time.monotonic() - started:.0f} s", flush=True)
    return int(failed > 0)


def under(kernel, wanted):
    """The rows under another kernel: those of virtio with two cards of its own."""
    release = next((kernel / "boot").glob("vmlinuz-*")).name.removeprefix("vmlinuz-")
    print(f"Linux {release}, QEMU\n\n| {' | '.join(HEADS)} |\n|{'---|' * len(HEADS)}", flush=True)
    command = [sys.executable, FOLDER / "guest.py", "--kernel", kernel, "--card", "virtio-net-pci", "--seconds",
               str(wanted.seconds), "--", sys.executable, Path(__file__).resolve(), "--here", "--bypass", BYPASS, "--only",
               wanted.only]
    status = 1
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace") as guest:
        for line in guest.stdout:
            if line.startswith(MARK):
                print(line.removeprefix(MARK).rstrip(), flush=True)
            elif wanted.log:
                print(line.rstrip(), file=wanted.log, flush=True)
        status = guest.wait()
    return status


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bypass", type=Path, default=ROOT / "target/release/bypass", help="with its library in the same folder")
    parser.add_argument("--here", action="store_true", help="under this host's kernel")
    parser.add_argument("--only", default="", metavar="REGEX", help="kinds whose name it fits")
    parser.add_argument("--seconds", type=int, default=1800, help="limit for a guest")
    parser.add_argument("--log", type=argparse.FileType("w"), help="for everything else that the guest prints")
    parser.add_argument("kernels", nargs="*", type=Path, metavar="KERNEL", help="folder of an unpacked linux-image package")
    wanted = parser.parse_args()
    if not wanted.here and not wanted.kernels:
        parser.error("no kernel: nothing to boot (name the folder of an unpacked linux-image package, or --here)")
    for kernel in wanted.kernels:
        if not (kernel / "boot").is_dir():
            parser.error(f"{kernel}: no boot folder (apt-get download linux-image-…, dpkg -x FILE {kernel})")
    if not wanted.bypass.exists():
        parser.error(f"{wanted.bypass}: no such program (./wirespeed build bypass, or --bypass FILE)")
    return wanted


def main():
    global BYPASS
    wanted = arguments()
    BYPASS = wanted.bypass.resolve()
    if not wanted.here:
        return max(under(kernel.resolve(), wanted) for kernel in wanted.kernels)
    if "KINDS_NAMESPACE" not in os.environ:
        # `ip netns` names its namespaces for the whole host.
        os.environ["KINDS_NAMESPACE"] = "1"
        os.execvp("unshare", ["unshare", "-m", sys.executable, *sys.argv])
    Path("/run/netns").mkdir(exist_ok=True)
    run("mount", "-t", "tmpfs", "tmpfs", "/run/netns")
    return here(wanted.only)


if __name__ == "__main__":
    sys.exit(main())
