"""A small real HTTP server that can misbehave on request: the system under test of the stories.

Without http.server, whose imports take longer than a trial of a story: it starts for each of them.
"""

import argparse
import os
import socketserver
import sys
import threading
import time

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
parser.add_argument("--daemon", action="store_true", help="go on in a grandchild, and end")
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


class Handler(socketserver.StreamRequestHandler):
    disable_nagle_algorithm = True

    def handle(self):
        try:
            while self.answer():
                pass
        except ConnectionError:  # a client may leave at any time
            pass

    def answer(self):
        """Answers the next request; whether another one may follow."""
        global served
        words = self.rfile.readline().decode().split()
        if len(words) != 3:
            return False
        path, version = words[1:]
        is_last = version != "HTTP/1.1"
        while field := self.rfile.readline().strip().lower():
            is_last = is_last or field == b"connection: close"
        with lock:
            served += 1
            if options.die_after and served > options.die_after:
                print("the fake server dies as requested", file=sys.stderr, flush=True)
                os._exit(3)
        if options.silent:
            time.sleep(60)
        status = options.status if options.only in ("", path) else 404
        head = f"HTTP/1.1 {status} As asked\r\nContent-Length: {options.payload}\r\n\r\n"
        self.wfile.write(head.encode() + b"x" * options.payload)
        return not is_last


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True


if options.ignore_term:
    import signal

    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if options.daemon:
    for leave in (os.setsid, lambda: None):
        if os.fork():
            os._exit(0)
        leave()
if options.fork and os.fork() == 0:
    os.setsid()
    time.sleep(600)
try:
    Server(("0.0.0.0", options.port), Handler).serve_forever()
except OSError as error:
    print(f"cannot listen on port {options.port}: {error.strerror}", file=sys.stderr)
    sys.exit(1)
