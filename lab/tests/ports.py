"""Ports for servers of tests: test processes that run in parallel never use the same one."""

import itertools
import socket

# Below the ephemeral ports (from 32768 on), so that no outgoing connection takes one.
FIRST, LAST, BLOCK = 20_000, 32_000, 400


def claim_block():
    """A row of ports for this process alone, as long as it lives: its first port, and the claim.

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
_offsets = itertools.cycle(range(BLOCK))


def free_ports(count=1):
    """A row of ports that no program listens on; the next call returns others."""
    for _ in range(BLOCK):
        first = BLOCK_START + next(_offsets)
        row = range(first, first + count)
        if row[-1] < BLOCK_START + BLOCK and all(map(is_free, row)):
            for _ in range(count - 1):
                next(_offsets)
            return list(row)
    raise AssertionError(f"no {count} free ports in a row from {BLOCK_START} on")


def free_port():
    return free_ports()[0]


def is_free(port):
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
