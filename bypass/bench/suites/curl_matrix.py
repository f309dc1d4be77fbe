"""curl against nginx: many options and large files, both ends on the kernel and both accelerated."""

import hashlib
import os
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

SIZES = (0, 1, 1000, 16384, 16385, 100_000, 1_000_000, 20_000_000)
REQUESTS_OF_BURST = 50

CONFIGURATION = """
worker_processes {workers};
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 512; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  client_max_body_size 100m;
  keepalive_requests 100000;
  sendfile on;
  server {{
    listen 127.0.0.1:{port} reuseport;
    root {folder}/html;
    location /plain/ {{ alias {folder}/html/; sendfile off; }}
    location /slow/ {{ alias {folder}/html/; limit_rate 400k; }}
    location /zip/ {{ alias {folder}/html/; gzip on; gzip_types *; }}
    location /proxy/ {{ proxy_pass http://127.0.0.1:{port}/; proxy_http_version 1.1;
                        proxy_set_header Connection ""; }}
    location /upload {{ client_body_in_file_only clean; proxy_pass http://127.0.0.1:{port}/take; }}
    location /take {{ return 200 "length $content_length"; }}
    location /moved {{ return 302 /1000; }}
  }}
}}
"""


def cases(port, folder):
    """Name → curl's arguments; every output is compared byte by byte."""
    base = f"http://127.0.0.1:{port}"
    upload = folder / "html" / "1000000"
    named = {}
    for path in ("", "plain/", "proxy/", "zip/"):
        for size in SIZES:
            named[f"get {path}{size}"] = [f"{base}/{path}{size}"]
    named |= {
        "slow": [f"{base}/slow/1000000"],
        "range": ["-r", "100-50099", f"{base}/1000000"],
        "ranges": ["-r", "0-9,500-509", "-H", "X: y", f"{base}/1000", "-o", "/dev/null"],
        "last bytes": ["-r", "-777", f"{base}/20000000"],
        "head": ["-I", "-s", "-o", "/dev/null", f"{base}/1000000"],
        "close": ["-H", "Connection: close", f"{base}/100000"],
        "http 1.0": ["-0", f"{base}/100000"],
        "compressed": ["--compressed", f"{base}/zip/1000000"],
        "redirect": ["-L", f"{base}/moved"],
        "missing": [f"{base}/no-such", "-o", "/dev/null"],
        "post": ["--data-binary", f"@{upload}", f"{base}/upload"],
        "put without expect": ["-T", str(upload), "-H", "Expect:", f"{base}/upload"],
        "chunked put": ["-T", str(upload), "-H", "Transfer-Encoding: chunked", f"{base}/upload",
                        "-o", "/dev/null"],
        "same connection": [f"{base}/{size}" for size in SIZES * 3],
        "parallel": ["-Z", "--parallel-max", "20",
                     *(word for _ in range(REQUESTS_OF_BURST) for word in ("-o", "/dev/null",
                                                                           f"{base}/100000"))],
        "small buffer": ["--limit-rate", "3M", f"{base}/1000000"],
        "from another address": ["--interface", "127.0.0.9", f"{base}/100000"],
        "no delay off": ["--no-tcp-nodelay", f"{base}/100000"],
        "keep-alive time": ["--keepalive-time", "5", f"{base}/100000"],
        "given up": ["-m", "0.3", f"{base}/slow/20000000", "-o", "/dev/null"],
        "refused": ["http://127.0.0.1:1/", "-o", "/dev/null"],
    }
    return named


def compare(runner):
    """The one row of this suite."""
    with tempfile.TemporaryDirectory(dir=runner.work) as name:
        folder = Path(name)
        folder.chmod(0o755)
        html = folder / "html"
        html.mkdir()
        for size in SIZES:
            (html / str(size)).write_bytes(_bytes(size))
        kernel = _run_all(runner, folder, False)
        ours = _run_all(runner, folder, True)
    different = [{"test": name, "outcome": "differs", "text": f"kernel {kernel[name]}, here {ours[name]}"}
                 for name in kernel if kernel[name] != ours[name]]
    return [{"suite": "curl and nginx", "tests": len(kernel), "passed_kernel": len(kernel),
             "different": different}]


def _bytes(size):
    block = hashlib.sha256(b"wirespeed").digest() * 1024
    return (block * (size // len(block) + 1))[:size]


def _run_all(runner, folder, accelerated):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    path = folder / "nginx.conf"
    path.write_text(CONFIGURATION.format(folder=folder, port=port, workers=2))
    server = subprocess.Popen(runner.command(["nginx", "-c", path], accelerated),
                              stdin=subprocess.DEVNULL)
    try:
        _wait(port)
        return {name: _curl(runner, words, accelerated)
                for name, words in cases(port, folder).items()}
    finally:
        server.send_signal(signal.SIGTERM)
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _wait(port):
    for _ in range(200):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            time.sleep(0.05)
    raise SystemExit("suites: nginx does not start")


def _curl(runner, words, accelerated):
    command = runner.command(["curl", "-sS", "-m", "60", "-w", "%{http_code} %{size_download}\n",
                              *words], accelerated)
    if "-m" in words:
        command.remove("-m")
        command.remove("60")
        command[command.index("-w") + 1] = ""  # how much came in time is not repeatable
    done = subprocess.run(command, capture_output=True, timeout=120,
                          env={**os.environ, "LC_ALL": "C"})
    return done.returncode, len(done.stdout), hashlib.sha256(done.stdout).hexdigest()[:12]
