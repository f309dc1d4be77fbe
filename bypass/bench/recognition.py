#!/usr/bin/env python3
"""How both ends of a kernel TCP connection between two network namespaces can know that it is the same one.

    bypass/bench/recognition.py                 needs root, ip and nft; makes its own namespaces; a minute
    bypass/bench/recognition.py --connections N among pairs of equal addresses and ports in four networks; 10,000

Compares four marks that a program without privileges can set or see: a nonce in an IP option, the keys of MPTCP, a
program in BPF, and the initial sequence numbers, which each end reads in the headers of the first segment it sends.
Decision 34 rests on what this prints. Ends with 1 when the sequence numbers are missing, differ between
the two ends of a connection, or are the same for two connections.
"""

import argparse
import contextlib
import ctypes
import errno
import os
import select
import socket
import struct
import subprocess
import sys
import threading
import time
from itertools import combinations

LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNET = 0x40000000
NOBODY = 65534
MPTCP, SOL_MPTCP, MPTCP_INFO = 262, 284, 1
SO_TIMESTAMPING, TX_SCHED = 37, 1 << 8
TCP_SAVE_SYN, TCP_SAVED_SYN = 27, 28
RECORD_ROUTE = 7
SYS_BPF, PROG_LOAD, SOCK_OPS = 321, 5, 13
ETHERNET = 14
HOME = os.open("/proc/self/ns/net", os.O_RDONLY)
V4, V6 = socket.AF_INET, socket.AF_INET6
PORT = 80
# setsockopt() of these fails on a socket of MPTCP, as programs do not expect it to.
OPTIONS = {"TCP_USER_TIMEOUT": (6, 18, 5), "TCP_QUICKACK": (6, 12, 1), "TCP_LINGER2": (6, 8, 3), "TCP_SYNCNT": (6, 7, 3),
           "TCP_WINDOW_CLAMP": (6, 10, 30000), "SO_OOBINLINE": (1, 10, 1), "SO_ZEROCOPY": (1, 60, 1),
           "SO_MAX_PACING_RATE": (1, 47, 1000), "IP_MTU_DISCOVER": (0, 10, 1)}


def checked(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


@contextlib.contextmanager
def inside(namespace):
    checked(LIBC.setns(namespace, CLONE_NEWNET))
    try:
        yield
    finally:
        checked(LIBC.setns(HOME, CLONE_NEWNET))


@contextlib.contextmanager
def unprivileged():
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


class Network:
    """A client's and a server's namespace, and between them a third with a bridge, or with routes of /32."""

    def __init__(self, routed=False):
        self.client, self.server, self.host = self.namespace(), self.namespace(), self.namespace()
        self.run(self.host, "sysctl -qw net.ipv4.ip_forward=1; ip link add br0 type bridge; ip link set br0 up;"
                            "ip address add 10.9.0.254/24 dev br0; ip -6 address add fd09::fe/64 dev br0 nodad")
        for number, pod in ((1, self.client), (2, self.server)):
            host = f"/proc/{os.getpid()}/fd/{self.host}"
            self.run(pod, f"ip link add eth0 type veth peer name veth{number} netns {host}; ip link set eth0 up;"
                          f"ip -6 address add fd09::{number}/64 dev eth0 nodad")
            if routed:
                self.run(pod, f"ip address add 10.9.0.{number}/32 dev eth0; ip route add 169.254.1.1 dev eth0 scope link;"
                              "ip route add default via 169.254.1.1 dev eth0")
                self.run(self.host, f"ip link set veth{number} up; ip route add 10.9.0.{number} dev veth{number};"
                                    f"ip address add 169.254.1.1/32 dev veth{number}")
            else:
                self.run(pod, f"ip address add 10.9.0.{number}/24 dev eth0; ip route add default via 10.9.0.254")
                self.run(self.host, f"ip link set veth{number} up; ip link set veth{number} master br0")

    @staticmethod
    def namespace():
        checked(LIBC.unshare(CLONE_NEWNET))
        made = os.open("/proc/self/ns/net", os.O_RDONLY)
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        checked(LIBC.setns(HOME, CLONE_NEWNET))
        return made

    @staticmethod
    def run(namespace, line):
        with inside(namespace):
            subprocess.run(["sh", "-ec", line], check=True, capture_output=True, text=True)

    def filter(self, pod, rule):
        """A rule of nftables in a pod, until pass_all()."""
        self.run(pod, f"nft 'add table ip f; add chain ip f c {{ type filter hook input priority 0; }}; add rule ip f c {rule}'")

    def pass_all(self):
        for namespace in (self.client, self.server, self.host):
            self.run(namespace, "nft flush ruleset")

    def translate(self):
        """10.9.0.254:99 is the server, and the server sees the host as its client."""
        self.run(self.host, f"""nft 'add table ip n
            add chain ip n p {{ type nat hook prerouting priority -100; }}
            add rule ip n p ip daddr 10.9.0.254 tcp dport 99 dnat to 10.9.0.2:{PORT}
            add chain ip n q {{ type nat hook postrouting priority 100; }}
            add rule ip n q ip daddr 10.9.0.2 masquerade'""")

    @staticmethod
    def made(pod, family, protocol):
        """A socket; the kernel asks later for the privileges of the process that has opened it."""
        with inside(pod), unprivileged():
            made = socket.socket(family, socket.SOCK_STREAM, protocol)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return made

    def listen(self, family=V4, protocol=0, saved=False):
        listener = self.made(self.server, family, protocol)
        if saved:
            listener.setsockopt(socket.IPPROTO_TCP, TCP_SAVE_SYN, 1)
        listener.bind(("", PORT))
        listener.listen(64)
        listener.settimeout(20)
        return listener

    def socket(self, family=V4, protocol=0, options=b"", port=0):
        made = self.made(self.client, family, protocol)
        made.settimeout(20)
        with unprivileged():
            if options:
                made.setsockopt(socket.IPPROTO_IP, socket.IP_OPTIONS, options)
        if port:
            made.bind(("", port))
        return made


def there(family=V4, translated=False):
    return ("10.9.0.254", 99) if translated else ("10.9.0.2" if family == V4 else "fd09::2", PORT)


def accepted(listener):
    with unprivileged():
        return listener.accept()[0]


def joined(listener, made, address):
    made.connect(address)
    return made, accepted(listener)


def said(work):
    """What it returns without privileges, or the error's name."""
    try:
        with unprivileged():
            return work()
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error))


def seconds_until_connected(made, address, give_up, after=None):
    """Until the connection stands; `after` is called when it does not within 50 ms."""
    began = time.monotonic()
    made.settimeout(0.05)
    try:
        made.connect(address)
    except OSError:
        if after:
            after(made)
        made.setblocking(True)
        made.settimeout(give_up)
        with contextlib.suppress(OSError):
            # A send waits for the handshake, too.
            made.send(b"x")
            return f"{time.monotonic() - began:.1f} s"
        return f"not within {give_up} s"
    return f"{time.monotonic() - began:.3f} s"


# The marks.

def headers_sent(connection, sent):
    """Sends bytes; how many went, and the last segment of them as an IP packet, or None."""
    with unprivileged():
        request = [(socket.SOL_SOCKET, SO_TIMESTAMPING, struct.pack("I", TX_SCHED))]
        count = connection.sendmsg([sent], request)
        patience = connection.gettimeout()
        # Otherwise Python waits for what is to be there at once.
        connection.setblocking(True)
        try:
            frame = connection.recvmsg(256, 256, socket.MSG_ERRQUEUE | socket.MSG_DONTWAIT)[0]
        except BlockingIOError:
            return count, None
        finally:
            connection.settimeout(patience)
    return count, frame[ETHERNET:]


def transport(packet):
    """Where the TCP header begins, and where the packet ends."""
    if packet[0] >> 4 == 4:
        return (packet[0] & 15) * 4, struct.unpack_from(">H", packet, 2)[0]
    return 40, 40 + struct.unpack_from(">H", packet, 4)[0]


def sequence_numbers(connection, sent, received):
    """Sends `sent`, when `received` bytes have come: the initial sequence numbers of this end and of the other, or None."""
    count, packet = headers_sent(connection, sent)
    if packet is None:
        return None
    start, length = transport(packet)
    sequence, acknowledged = struct.unpack_from(">II", packet, start + 4)
    payload = length - start - (packet[start + 12] >> 4) * 4
    # A write of several segments shows the last of them that was sent.
    return (sequence + payload - count - 1) % 2**32, (acknowledged - received - 1) % 2**32


def first_exchange(client, server, size=1):
    """Both initial sequence numbers, as each end knows them after a request and its answer."""
    ours = sequence_numbers(client, b"x" * size, 0)
    came = 0
    while came < size:
        came += len(server.recv(1 << 20))
    theirs = sequence_numbers(server, b"y", size)
    client.recv(1)
    return ours, theirs and theirs[::-1]


def is_recognised(pair):
    return pair[0] is not None and pair[0] == pair[1]


def keys_match(client, server):
    """MPTCP: whether each end's first data sequence number, a hash of its key, is what the other end waits for."""
    def numbers(end):
        # write_seq, snd_una, rcv_nxt of struct mptcp_info.
        return struct.unpack_from("<QQQ", end.getsockopt(SOL_MPTCP, MPTCP_INFO, 128), 16)
    ours, theirs = numbers(client), numbers(server)
    return ours[0] == theirs[2] and theirs[0] == ours[2]


def nonce_option():
    """A record route that is full: routers leave it alone."""
    nonce = os.urandom(16)
    return nonce, bytes([RECORD_ROUTE, 3 + len(nonce), 4 + len(nonce)]) + nonce + b"\0"


def show(what, result):
    print(f"  {what:<58} {result}", flush=True)


def measure_option(plain, routed):
    print("A nonce in an IP option (a full record route)")
    for name, network, translated in (("bridge", plain, False), ("/32 routes", routed, False), ("DNAT and masquerade", plain, True)):
        nonce, option = nonce_option()
        if translated:
            network.translate()
        with network.listen() as listener:
            _client, server = joined(listener, network.socket(options=option), there(translated=translated))
            with unprivileged():
                show(name, "arrives" if nonce in server.getsockopt(socket.IPPROTO_IP, socket.IP_OPTIONS, 64) else "missing")
        network.pass_all()
    show("largest segment without it, with it", f"{segment(plain)}, {segment(plain, option)}")
    own = plain.socket(V6)
    show("IPv6: a destination option", said(lambda: own.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_DSTOPTS, bytes(8))))

    def clear(made):
        made.setsockopt(socket.IPPROTO_IP, socket.IP_OPTIONS, b"")

    with plain.listen():
        for name, pod in (("packets with options dropped: connected in", plain.server), ("only answers with options dropped", plain.client)):
            plain.filter(pod, "ip hdrlength > 5 drop")
            show(name + ", withdrawn after 50 ms", seconds_until_connected(plain.socket(options=option), there(), 8, clear))
            plain.pass_all()


def segment(network, option=b""):
    with network.listen() as listener:
        client, _server = joined(listener, network.socket(options=option), there())
        return client.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)


def measure_mptcp(plain):
    print("The keys of MPTCP")
    for name, family, translated in (("bridge", V4, False), ("bridge, IPv6", V6, False), ("DNAT and masquerade", V4, True)):
        if translated:
            plain.translate()
        with plain.listen(family, MPTCP) as listener:
            client, server = joined(listener, plain.socket(family, MPTCP), there(family, translated))
            show(name, "match" if keys_match(client, server) else "differ")
        plain.pass_all()
    own = plain.socket(protocol=MPTCP)
    refused = [name for name, option in OPTIONS.items() if said(lambda: own.setsockopt(*option))]
    show("options that fail on such a socket", ", ".join(refused))
    with plain.listen(protocol=MPTCP):
        for name, pod in (("segments with its option dropped: connected in", plain.server), ("only answers with its option dropped", plain.client)):
            plain.run(plain.client, "sysctl -qw net.mptcp.blackhole_timeout=0")
            plain.filter(pod, "tcp option mptcp exists drop")
            show(name, seconds_until_connected(plain.socket(protocol=MPTCP), there(), 8))
            plain.pass_all()


def measure_bpf():
    print("A program in BPF (sock_ops)")
    exit_with_0 = (ctypes.c_char * 16).from_buffer_copy(bytes([0xB7]) + bytes(7) + bytes([0x95]) + bytes(7))
    licence = ctypes.create_string_buffer(b"Apache-2.0")
    attributes = struct.pack("IIQQ", SOCK_OPS, 2, ctypes.addressof(exit_with_0), ctypes.addressof(licence)).ljust(128, b"\0")
    show("loaded without privileges", said(lambda: checked(LIBC.syscall(SYS_BPF, PROG_LOAD, attributes, 128))))


def measure_sequence_numbers(plain, routed):
    print("Initial sequence numbers, from the headers of the first segment that each end sends")
    is_right = True
    cases = (("bridge", plain, V4, False, 1), ("bridge, IPv6", plain, V6, False, 1), ("/32 routes", routed, V4, False, 1),
             ("DNAT and masquerade", plain, V4, True, 1), ("a first write of 16 KiB", plain, V4, False, 1 << 14),
             ("options and MPTCP dropped on the path", plain, V4, False, 1))
    for name, network, family, translated, size in cases:
        if translated:
            network.translate()
        if "dropped" in name:
            network.filter(network.server, "ip hdrlength > 5 drop; add rule ip f c tcp option mptcp exists drop")
        with network.listen(family) as listener:
            client, server = joined(listener, network.socket(family), there(family, translated))
            pair = first_exchange(client, server, size)
        show(name, "the same at both ends" if is_recognised(pair) else f"differ: {pair}")
        is_right &= is_recognised(pair)
        network.pass_all()
    return is_right


def measure_random_bits(plain):
    """Random bits of a connection, which the server sees in the SYN: IPv4's identification, which
    counts packets, and IPv6's flow label."""
    for family, place, mask in ((V4, 4, 0xFFFF), (V6, 0, 0xFFFFF)):
        with plain.listen(family, saved=True) as listener:
            client, server = joined(listener, plain.socket(family), there(family))
            with unprivileged():
                syn = server.getsockopt(socket.IPPROTO_TCP, TCP_SAVED_SYN, 256)
        packet = headers_sent(client, b"x")[1]
        one, two = (struct.unpack_from(">I", header, place)[0] for header in (syn, packet))
        if family == V4:
            apart = ((two >> 16) - (one >> 16)) & mask
            show("IPv4's identification, from the SYN to the first segment", f"{apart} more")
        else:
            show("IPv6's flow label, in the SYN and in the first segment", "the same" if one & mask == two & mask else "differs")


def measure_waiters(plain):
    """While the headers lie in the error queue, epoll reports an error of a connection that has none."""
    turns, seen, after = 200, 0, 0
    with plain.listen() as listener:
        for _ in range(turns):
            client, _server = joined(listener, plain.socket(), there())
            with select.epoll() as waiters:
                waiters.register(client, select.EPOLLIN)
                found = []
                waiter = threading.Thread(target=lambda: found.extend(waiters.poll(0.005)))
                waiter.start()
                time.sleep(0.001)
                sequence_numbers(client, b"x", 0)
                waiter.join()
                seen += any(events & select.EPOLLERR for _, events in found)
                after += len(waiters.poll(0))
    show("EPOLLERR in a thread that waits meanwhile, and afterwards", f"{seen} and {after} of {turns}")


def measure_forbidden(plain):
    """Where the client's namespace shows no headers without privileges."""
    setting = "sysctl -qw net.core.tstamp_allow_data="
    plain.run(plain.client, setting + "0")
    with plain.listen() as listener:
        pair = first_exchange(*joined(listener, plain.socket(), there()))
    plain.run(plain.client, setting + "1")
    show("net.core.tstamp_allow_data=0 at the client", "none there" if pair[0] is None else "shown")


def measure_proxy(plain):
    """A program that answers for the server has two connections: one with the client, one with the server."""
    own = plain.socket()
    own.bind(("127.0.0.1", 0))
    own.listen(1)
    client = plain.socket()
    client.connect(own.getsockname())
    proxy = accepted(own)
    with plain.listen() as listener:
        onward, server = joined(listener, plain.socket(), there())
    ours = sequence_numbers(client, b"x", 0)
    onward.send(proxy.recv(1))
    theirs = sequence_numbers(server, b"y", len(server.recv(1)))
    is_right = ours is not None and theirs is not None and ours != theirs[::-1]
    show("a proxy in between", "differ" if is_right else f"the same: {ours} {theirs}")
    return is_right


def measure_secret():
    """How well a connection of equal addresses and ports, in a network that any process may make, shows the numbers
    of another one: what is left is the time between their SYNs."""
    began, numbers = [], []
    for network in (Network(), Network()):
        with network.listen() as listener:
            client = network.socket(port=12345)
            before = time.time_ns()
            client.connect(there())
            began.append((before, time.time_ns()))
            numbers.append(first_exchange(client, accepted(listener))[0])
    steps = (numbers[1][0] - numbers[0][0]) % 2**32
    (first, first_end), (last, last_end) = began
    is_within = last - first_end <= steps * 64 <= last_end - first
    show("guesses from a connection of equal addresses and ports", f"{(last_end - last) // 64}" if is_within else "none")


def measure_equal_addresses(count):
    """Connections of the same addresses and ports in four networks, made at nearly the same time. The clock is in
    each number, and nothing else differs."""
    networks = [Network() for _ in range(4)]
    listeners = [network.listen() for network in networks]
    seen, wrong, nearest, missing, waited = set(), 0, 2**32, 0, 0.0
    rounds = count // len(networks)
    for turn in range(rounds):
        clients = [network.socket(port=10000 + turn % 50000) for network in networks]
        for client in clients:
            client.setblocking(False)
        for client in clients:
            client.connect_ex(there())
        servers = [accepted(listener) for listener in listeners]
        for client in clients:
            client.settimeout(20)
        began = time.perf_counter()
        pairs = [first_exchange(client, server) for client, server in zip(clients, servers)]
        waited += time.perf_counter() - began
        missing += sum(None in pair for pair in pairs)
        wrong += sum(not is_recognised(pair) for pair in pairs)
        wrong += len({pair[0] for pair in pairs}) < len(pairs)
        seen.update(pair[0] for pair in pairs)
        for one, two in combinations(pairs, 2):
            if one[0] and two[0]:
                apart = (one[0][0] - two[0][0]) % 2**32
                nearest = min(nearest, apart, 2**32 - apart)
        for end in (*clients, *servers):
            # Without it each port would be taken for a minute.
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            end.close()
    made = rounds * len(networks)
    show(f"{made} connections, of equal addresses in four networks", f"{wrong} mixed, {missing} missing, {made - len(seen)} twice")
    show("nearest sequence numbers of two of them", f"{nearest} ({nearest * 64} ns apart)")
    show("first exchange with reading the headers", f"{waited / made * 1e6:.0f} µs in Python")
    return wrong == missing == 0 and len(seen) == made


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, default=10_000)
    arguments = parser.parse_args()
    if os.geteuid():
        sys.exit("recognition.py: not root: namespaces cannot be made (run it as root)")
    plain, routed = Network(), Network(routed=True)
    measure_option(plain, routed)
    measure_mptcp(plain)
    measure_bpf()
    is_right = measure_sequence_numbers(plain, routed)
    measure_random_bits(plain)
    measure_waiters(plain)
    measure_forbidden(plain)
    is_right &= measure_proxy(plain)
    measure_secret()
    is_right &= measure_equal_addresses(arguments.connections)
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
