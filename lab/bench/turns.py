"""How small a difference do short turns decide on this machine? NGINX against itself and against
itself with less of its core, both alive at once, on one core, in turns of a quarter of a second.

    python lab/bench/turns.py BLOCKS [SHARE ...]         shares that are taken: 0 0.05 0.10

A block measures each contender against the baseline in the order A B B A; all but the side that is
measured are stopped (SIGSTOP). What a block gives is one log ratio, judged as a round of a run is.
What the lab itself measures, a fresh server and one window each, is in aa.py and planted.toml.
"""

import json
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from wirespeed.results.comparison import compare
from wirespeed.results.verdict import Terms, decide

ROOT = Path(__file__).parents[2]
LOAD = ROOT / "target" / "release" / "wirespeed-load"
TURN = ("-d", "250ms", "--warmup", "50ms")
PORT = 18_191
BODY_BYTES = 16_000
LOOKS = (5, 10, 20, 40, 80, 160)
THIEF = """
import sys, time
share, period = float(sys.argv[1]), 0.01
while True:
    began = time.process_time()
    while time.process_time() - began < share * period:
        pass
    time.sleep((1 - share) * period)
"""
CONF = """
daemon off; user root; pid {folder}/{port}.pid; error_log stderr warn; worker_processes 1;
events {{ worker_connections 1024; }}
http {{
    access_log off; default_type text/plain; keepalive_requests 100000000;
    client_body_temp_path {folder}/{port}-body; proxy_temp_path {folder}/{port}-proxy;
    gzip on; gzip_comp_level 1; gzip_types text/plain;
    server {{ listen 127.0.0.1:{port}; root {folder}; }}
}}
"""


class Side:
    """One NGINX with a thief beside it, in a process group that can be stopped."""

    def __init__(self, folder, number, share):
        self.share, self.port = share, PORT + number
        conf = folder / f"{self.port}.conf"
        conf.write_text(CONF.format(folder=folder, port=self.port))
        command = ["taskset", "-c", "0", "nginx", "-p", str(folder), "-c", str(conf)]
        self.server = subprocess.Popen(command, process_group=0, stderr=subprocess.DEVNULL)
        self.group = self.server.pid
        self.thief = None
        if share:
            words = ["taskset", "-c", "0", sys.executable, "-c", THIEF, str(share)]
            self.thief = subprocess.Popen(words, process_group=self.group)

    def go_on(self, is_on):
        os.killpg(self.group, signal.SIGCONT if is_on else signal.SIGSTOP)

    def rate(self, folder):
        """Requests a second in one turn."""
        out = folder / "turn.json"
        url = f"http://127.0.0.1:{self.port}/16kb.txt"
        self.go_on(True)
        subprocess.run(
            [LOAD, "--pin", "1", "-t", "1", "-c", "50", *TURN, "-H", "Accept-Encoding: gzip",
             "--json", out, url],
            check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self.go_on(False)
        return json.loads(out.read_text())["rps"]

    def end(self):
        self.go_on(True)
        os.killpg(self.group, signal.SIGKILL)
        for process in filter(None, (self.server, self.thief)):
            process.wait()


def measured(blocks, shares):
    """{share: [log ratio of each block]}"""
    found = {share: [] for share in shares}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "16kb.txt").write_bytes(bytes(BODY_BYTES))
        sides = [Side(folder, number, share) for number, share in enumerate((0.0, *shares))]
        try:
            time.sleep(0.5)
            for side in sides:
                side.go_on(False)
            base, *contenders = sides
            for _ in range(blocks):
                random.shuffle(contenders)
                for one in contenders:
                    logs = [math.log(side.rate(folder)) for side in (base, one, one, base)]
                    found[one.share].append((logs[1] + logs[2] - logs[0] - logs[3]) / 2)
        finally:
            for side in sides:
                side.end()
    return found


def told(found):
    """What so many blocks would have said."""
    for blocks in [n for n in LOOKS if n <= max(map(len, found.values()))]:
        shares = list(found)
        for share, one in zip(shares, compare([found[s][:blocks] for s in shares]), strict=True):
            word = decide(one, Terms(q=one.p)).word
            print(
                f"{blocks:4} blocks, {share:4.0%} taken: {one.gain:+6.1%} "
                f"({one.low:+.1%} … {one.high:+.1%}), p {one.p:.4f}: {word}"
            )


def main(words):
    shares = [float(word) for word in words[1:]] or [0.0, 0.05, 0.10]
    told(measured(int(words[0]), shares))


if __name__ == "__main__":
    main(sys.argv[1:])
