"""A small real load generator that writes the JSON of wirespeed-load: few requests.

It makes a request now and then for the planned time, one at least, or keeps a rate as far as it can
(-R), so that stories are about the lab and not about speed. `WIRESPEED_FAKE_RPS` sets the rate that
it reports, `WIRESPEED_FAKE_EXIT` its exit code, `WIRESPEED_FAKE_PAUSE_S` the pause after an answer,
`WIRESPEED_FAKE_AT_ONCE` how many requests are under way at once. While a file of its name and
`.held` exists, it waits in each trial but the first, so that a story can act in a trial.
"""

import argparse
import json
import os
import socket
import sys
import threading
import time

PAUSE_S = float(os.environ.get("WIRESPEED_FAKE_PAUSE_S", "0.02"))
AT_ONCE = int(os.environ.get("WIRESPEED_FAKE_AT_ONCE", "1"))


def seconds(text):
    return float(text[:-2]) / 1000 if text.endswith("ms") else float(text.rstrip("s"))


if sys.argv[1:2] == ["sink"]:
    import http.server

    class Null(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    with open(__file__ + ".sinks", "a") as file:
        file.write("x")
    host, _, port = sys.argv[2].rpartition(":")
    http.server.ThreadingHTTPServer((host, int(port)), Null).serve_forever()

parser = argparse.ArgumentParser()
parser.add_argument("-c", type=int, default=1)
parser.add_argument("-t", type=int, default=1)
parser.add_argument("-R", type=float, default=0.0)
parser.add_argument("-d", type=seconds, default=1.0)
parser.add_argument("--warmup", type=seconds, default=0.0)
parser.add_argument("--pin", default="")
parser.add_argument("-T", "--timeout", type=seconds, default=2.0)
parser.add_argument("--json")
parser.add_argument("--start-at", type=float, default=0.0)
parser.add_argument("--latency", action="store_true")
parser.add_argument("--control", help="count without a server, and obey the file's gate")
parser.add_argument("url")
options = parser.parse_args()
if options.control:
    gated = globals()["GATED"]  # its path, written above by conftest.py
    os.execv(sys.executable, [sys.executable, gated, options.control])

if "WIRESPEED_FAKE_EXIT" in os.environ:
    print("the fake generator fails as requested", file=sys.stderr)
    sys.exit(int(os.environ["WIRESPEED_FAKE_EXIT"]))
while os.path.exists(__file__ + ".held") and "/000001-" not in options.json:
    time.sleep(0.01)
time.sleep(max(0.0, options.start_at - time.time()))
end = time.time() + options.warmup + options.d
done = []  # of each request: (bytes, whether it was answered, whether strangely)
host, _, path = options.url.removeprefix("http://").partition("/")
address, _, port = host.rpartition(":")
REQUEST = f"GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()


def ask():
    """Without urllib, whose imports take longer than a trial of a story."""
    with socket.create_connection((address.strip("[]"), int(port)), timeout=60) as connection:
        connection.sendall(REQUEST)
        with connection.makefile("rb") as answer:
            head, _, body = answer.read().partition(b"\r\n\r\n")
    was_strange = not head.startswith((b"HTTP/1.1 200 ", b"HTTP/1.0 200 "))
    return (0 if was_strange else len(body)), bool(head), bool(head) and was_strange


def ask_until_end():
    while True:
        try:
            done.append(ask())
        except OSError:
            done.append((0, False, False))
        time.sleep(1 / options.R if options.R else PAUSE_S)
        if time.time() >= end:
            return


others = [threading.Thread(target=ask_until_end) for _ in range(AT_ONCE - 1)]
for other in others:
    other.start()
ask_until_end()
for other in others:
    other.join()
received = sum(size for size, _, _ in done)
completed = sum(was_answered for _, was_answered, _ in done)
strange = sum(was_strange for _, _, was_strange in done)
errors = len(done) - completed
rps = float(os.environ.get("WIRESPEED_FAKE_RPS", completed / options.d))
mean_ns = options.c / rps * 1e9 if rps else 0
latency = {
    "unit": "ns",
    "count": completed,
    "min": mean_ns,
    "max": mean_ns,
    "mean": mean_ns,
    "stdev": 0,
    "quantiles": {"0.5": mean_ns, "0.99": None},
    "hdr_v2": None,
}
result = {
    "schema": "wirespeed-load/1",
    "tool": "fake",
    "argv": sys.argv,
    "plan": {
        "mode": "open" if options.R else "closed",
        "rate_rps": options.R or None,
        "connections": options.c,
        "depth": 1,
        "threads": options.t,
        "duration_s": options.d,
        "warmup_s": options.warmup,
    },
    "window": {"start_unix_ns": int((end - options.d) * 1e9), "length_ns": int(options.d * 1e9)},
    "totals": {
        "due": round(options.R * options.d) or None,
        "sent": completed,
        "completed": completed,
        "dropped": 0,
        "unfinished": 0,
        "status": {"200": completed},
        "non_2xx": strange,
        "bytes_in": received,
        "bytes_out": 0,
        "connects": options.c,
    },
    "rps": rps,
    "bytes_per_second": received / options.d,
    "errors": {"connect": {}, "read": 0, "write": 0, "timeout": 0, "total": errors},
    "latency": {
        "service": latency,
        "response": latency if options.R else None,
        "connect": None,
        "lateness": None,
    },
    "steps": [],
    "seconds": [],
    "threads": [{"core": None, "user_ns": 0, "sys_ns": 0, "busy": 0.1, "completed": completed}],
    "cpu": {"user_ns": 0, "sys_ns": 0},
    "little": {"n": options.c, "x_rps": rps, "mean_ns": mean_ns, "residual": 0.0},
    "warnings": [],
}
with open(options.json + ".new", "w") as file:
    json.dump(result, file)
os.replace(options.json + ".new", options.json)
