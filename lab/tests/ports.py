"""Ports for servers of tests: test processes that run in parallel never use the same one."""

import itertools
import socket

# Below the ephemeral ports (from 32768 on), so that no outgoing connection takes one.
FIRST, LAST, BLOCK = 20_000, 32_000, 800
ROW = 10  # a server of several instances, or of two contenders, uses the ports that follow


def claim_block():
    """Ports for this process alone, as long as it lives: the first of them, and the claim.

    The claim is an abstract Unix socket, which the kernel removes with the process."""
    for first in range(FIRST, LAST, BLOCK):
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0wirespeed-test-ports-{first}")
        except OSError:
            claim.close()
            continue
        return first, claim
    raise AssertionError("all blocks of ports for tests are taken")


BLOCK_START, _claim = claim_block()
_rows = itertools.cycle(range(BLOCK_START, BLOCK_START + BLOCK, ROW))


def free_ports(count):
    """A row of ports on which no program listens; the next call returns others."""
    assert count <= ROW
    for first in itertools.islice(_rows, BLOCK // ROW):
        row = range(first, first + ROW)
        if all(map(is_free, row)):
            return list(row)[:count]
    raise AssertionError(f"no free row of ports from {BLOCK_START} on")


def free_port():
    return free_ports(1)[0]


def is_free(port):
    """At every address: a server may listen at all of them, or at another than 127.0.0.1."""
    with socket.socket() as probe:
        # As servers do: connections of an earlier test may still be closing.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
