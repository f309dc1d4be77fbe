#!/usr/bin/env python3
"""Tries the drivers of emulated network cards, one guest after the other, and prints a table: see guest.py.

    matrix.py --library target/debug/libbypass_preload.so --test target/debug/deps/links-… KERNEL…

Each row is the test `a_pair_of_cards_carries_every_byte`: connections of 0 B to 3 MB, echoed and compared byte for byte,
all of them over packets. Exits with 1 where one fails. As root, for the cards with several queues.
"""

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

GUEST = Path(__file__).with_name("guest.py")
#: Model, queues, MTU.
ROWS = (("virtio-net-pci", 1, 1500), ("virtio-net-pci", 1, 9000), ("virtio-net-pci", 4, 1500), ("virtio-net-pci", 4, 9000),
        ("e1000e", 1, 1500), ("e1000e", 1, 9000), ("vmxnet3", 1, 1500), ("vmxnet3", 1, 9000), ("e1000", 1, 1500),
        ("rtl8139", 1, 1500))
FIRST_LINE = re.compile(rb"^\S+: \S+, ([^,\n]+(?:, copying)?), queues (\d+)", re.M)
MISSING = re.compile(rb"missing: ([^;\n]*)")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--library", type=Path, required=True)
    parser.add_argument("--test", type=Path, required=True, help="the built test program `links`")
    parser.add_argument("--only", default="", help="rows whose card begins so")
    parser.add_argument("--logs", type=Path, help="folder for the output of each guest")
    parser.add_argument("kernels", nargs="+", type=Path, metavar="KERNEL", help="folder of an unpacked linux-image package")
    return parser.parse_args()


def outcome(output, status):
    """The words of the check, and the fate of the connections."""
    said = FIRST_LINE.search(output)
    mode = said.group(1).decode() if said else "?"
    refused = MISSING.search(output)
    if refused:
        return mode, f"refused: {refused.group(1).decode()}", True
    return mode, "carried" if status == 0 else "FAILED", status == 0


def main():
    wanted = arguments()
    environment = {**os.environ, "BYPASS_TEST_LIBRARY": str(wanted.library.resolve())}
    print("| kernel | card | queues | MTU | mode | result |\n|---|---|---|---|---|---|", flush=True)
    failed = False
    for kernel in wanted.kernels:
        release = next((kernel / "boot").glob("vmlinuz-*")).name.removeprefix("vmlinuz-")
        for card, queues, mtu in ROWS:
            if not card.startswith(wanted.only):
                continue
            command = [sys.executable, GUEST, "--kernel", kernel.resolve(), "--card", card, "--queues", str(queues), "--mtu",
                       str(mtu), "--", wanted.test.resolve()]
            run = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            if wanted.logs:
                wanted.logs.mkdir(parents=True, exist_ok=True)
                (wanted.logs / f"{release}-{card}-{queues}-{mtu}").write_bytes(run.stdout)
            mode, result, is_good = outcome(run.stdout, run.returncode)
            failed |= not is_good
            print(f"| {release} | {card} | {queues} | {mtu} | {mode} | {result} |", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
