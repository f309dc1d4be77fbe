"""A small real HTTP server that can misbehave on request: the system under test of the stories."""

import argparse
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

parser = argparse.ArgumentParser()
parser.add_argument("--port", type=int, required=True)
parser.add_argument("--payload", type=int, default=16)
parser.add_argument("--status", type=int, default=200)
parser.add_argument("--silent", action="store_true", help="listen, but never answer")
parser.add_argument(
    "--die-after", type=int, default=0, help="exit with code 3 after so many requests"
)
parser.add_argument("--only", default="", help="answer 404 to every other path")
parser.add_argument("--ignore-term", action="store_true")
parser.add_argument("--daemon", action="store_true", help="go on in a child, and end")
parser.add_argument("--fork", action="store_true", help="leave a child in a session of its own")
parser.add_argument("--busy", action="store_true", help="compute and call the kernel at all times")
parser.add_argument("--starts", default="", help="a file that gets a byte for each start")
parser.add_argument("--fail-at", default="", help="numbers of starts that fail: 3,4")
options = parser.parse_args()
if options.starts:
    with open(options.starts, "ab") as file:
        file.write(b"x")
    if str(os.path.getsize(options.starts)) in options.fail_at.split(","):
        print("this start fails as requested", file=sys.stderr)
        sys.exit(1)


def be_busy():
    """Something to sample, however seldom a request gets through on a loaded machine."""
    with open("/dev/zero", "rb", buffering=0) as zeros:
        while True:
            sum(zeros.read(1 << 18)[:10_000])
            time.sleep(0.001)  # lets go of the interpreter, so that requests are answered


if options.busy:
    threading.Thread(target=be_busy, daemon=True).start()
served = 0
lock = threading.Lock()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        global served
        with lock:
            served += 1
            if options.die_after and served > options.die_after:
                print("the fake server dies as requested", file=sys.stderr, flush=True)
                os._exit(3)
        if options.silent:
            time.sleep(60)
        is_there = options.only in ("", self.path)
        self.send_response(options.status if is_there else 404)
        self.send_header("Content-Length", str(options.payload))
        self.end_headers()
        self.wfile.write(b"x" * options.payload)

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True


if options.ignore_term:
    import signal

    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if options.daemon and os.fork():
    os._exit(0)
if options.fork and os.fork() == 0:
    os.setsid()
    time.sleep(600)
try:
    Server(("0.0.0.0", options.port), Handler).serve_forever()
except OSError as error:
    print(f"cannot listen on port {options.port}: {error.strerror}", file=sys.stderr)
    sys.exit(1)
