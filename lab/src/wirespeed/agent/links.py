"""Part of the agent: the rate of a link: one TCP stream from one host to another.

Standard library of Python 3.9 only: see main.py.
"""

from __future__ import annotations

import json
import socket
import time
from typing import Any

from wirespeed.agent import clock
from wirespeed.agent.children import Refused, read_text
from wirespeed.agent.facts import output

BLOCK = bytes(1 << 18)
CONNECT_S = 12.0  # both ends are asked at the same time, and one may be on a loaded host
IP_MTU = 14  # of <linux/in.h>: the path's, once the way is known
SETTLE_S = 0.1  # until the congestion window has opened


def receive(message: dict[str, Any]) -> dict[str, Any]:
    """Takes one connection and reads it to its end."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((message["address"], message["port"]))
        listener.listen(1)
        listener.settimeout(CONNECT_S)
        try:
            stream, _ = listener.accept()
        except socket.timeout:  # another class than TimeoutError before Python 3.10
            raise Refused("no connection arrived at {}".format(message["address"])) from None
    with stream:
        stream.settimeout(CONNECT_S)
        total = 0
        while True:
            data = stream.recv(len(BLOCK))
            if not data:
                return {"bytes": total}
            total += len(data)


def transmit(message: dict[str, Any]) -> dict[str, Any]:
    """Sends for `seconds`: what the interface sent meanwhile, in bits a second, and the path's MTU.

    The interface's own counter is asked, so that headers count as they do when a trial is judged.
    """
    stream = connected(message["address"], message["port"])
    with stream:
        interface = interface_of(stream.getsockname()[0])
        stop = time.monotonic() + SETTLE_S
        while time.monotonic() < stop:
            stream.sendall(BLOCK)
        _, since, before = clock.timed(lambda: sent_bytes(interface))
        while time.monotonic() - since < message["seconds"]:
            stream.sendall(BLOCK)
        _, until, after = clock.timed(lambda: sent_bytes(interface))
        seconds, bits = until - since, (after - before) * 8
        mtu = stream.getsockopt(socket.IPPROTO_IP, IP_MTU)
    return {"bps": bits / seconds, "mtu": mtu, "interface": interface}


def connected(address: str, port: int) -> socket.socket:
    deadline = time.monotonic() + CONNECT_S
    while True:
        try:
            return socket.create_connection((address, port), CONNECT_S)
        except OSError as error:
            if time.monotonic() > deadline:
                raise Refused(f"{address}: {error}") from None
            time.sleep(0.02)


def interface_of(address: str) -> str:
    """The interface that has an address, as the kernel names it."""
    code, text = output(["ip", "-j", "address"])
    rows = json.loads(text) if code == 0 and text else []
    for link in rows:
        if any(one.get("local") == address for one in link.get("addr_info", ())):
            return str(link["ifname"])
    raise Refused(f"no interface here has the address {address} (iproute2 is asked)")


def sent_bytes(interface: str) -> int:
    for line in read_text("/proc/net/dev").splitlines():
        name, colon, rest = line.partition(":")
        if colon and name.strip() == interface:
            return int(rest.split()[8])
    return 0
