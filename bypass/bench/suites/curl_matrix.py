"""curl against nginx, also through HAProxy: many options and large files, all on the kernel, then all
accelerated. The output of curl and its exit code must be the same."""

import contextlib
import hashlib
import os
import re
import shutil
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
    listen [::1]:{port};
    listen 127.0.0.1:{plain2} http2;
    listen 127.0.0.1:{tls} ssl http2;
    listen unix:{folder}/nginx.socket;
    ssl_certificate {folder}/own.pem;
    ssl_certificate_key {folder}/own.key;
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

HAPROXY = """
global
  maxconn 500
defaults
  timeout connect 20s
  timeout client 60s
  timeout server 60s
listen requests
  mode http
  bind 127.0.0.1:{requests}
  server one 127.0.0.1:{port}
listen bytes
  mode tcp
  bind 127.0.0.1:{bytes}
  server one 127.0.0.1:{port}
listen secrets
  mode tcp
  bind 127.0.0.1:{secrets}
  server one 127.0.0.1:{tls}
"""
PORTS = ("port", "plain2", "tls", "requests", "bytes", "secrets")


def cases(ports, folder):
    """Name → curl's arguments; every output is compared byte by byte."""
    return (plain_cases(ports["port"], folder) | other_ways(ports, folder)
            | proxied(ports, folder))


def plain_cases(port, folder):
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


def other_ways(ports, folder):
    """TLS, HTTP/2, IPv6, Unix sockets, uploads of every kind, resumed and parallel downloads."""
    base, large = f"http://127.0.0.1:{ports['port']}", folder / "html" / "20000000"
    secure, plain2 = f"https://127.0.0.1:{ports['tls']}", f"http://127.0.0.1:{ports['plain2']}"
    half = folder / "half"
    half.write_bytes(large.read_bytes()[:7_654_321])
    everything = [f"{size}" for size in SIZES]
    named = {}
    for way, words in {"http 2 over tls": ["-k", "--http2"], "http 1.1 over tls": ["-k", "--http1.1"],
                       "tls 1.2": ["-k", "--tls-max", "1.2"]}.items():
        named |= {f"{way} {size}": [*words, f"{secure}/{size}"] for size in SIZES}
        named[f"{way}, an upload"] = [*words, "-T", str(large), "-H", "Expect:", f"{secure}/upload"]
        named[f"{way}, parallel"] = [*words, "-Z", *_bodies(secure, everything * 3, folder)]
    named |= {f"http 2 without tls {size}": ["--http2-prior-knowledge", f"{plain2}/{size}"]
              for size in SIZES}
    return named | {
        "http 2 without tls, parallel": ["--http2-prior-knowledge", "-Z",
                                         *_bodies(plain2, everything * 3, folder)],
        "ip version 6": ["-g", f"http://[::1]:{ports['port']}/20000000"],
        "a unix socket": ["--unix-socket", str(folder / "nginx.socket"), "http://x/20000000"],
        "resumed": ["-C", "7654321", f"{base}/20000000"],
        "resumed from a file's length": ["-C", str(half.stat().st_size), f"{base}/plain/20000000"],
        "a form": ["-F", f"file=@{large}", "-F", "word=1", f"{base}/upload", "-o", "/dev/null"],
        "a large post": ["--data-binary", f"@{large}", f"{base}/upload"],
        "a large post that may be refused": ["--data-binary", f"@{large}", "-H", "Expect: 100-continue",
                                              f"{base}/upload"],
        "a chunked large put": ["-T", str(large), "-H", "Transfer-Encoding: chunked", f"{base}/upload",
                                "-o", "/dev/null"],
        "a slow put": ["--limit-rate", "2M", "-T", str(folder / "html" / "1000000"), f"{base}/upload"],
        "parallel and compared": ["-Z", "--parallel-max", "30", *_bodies(base, everything * 6, folder)],
        "parallel, each its connection": ["-Z", "--parallel-immediate", "-H", "Connection: close",
                                          *_bodies(base, everything * 4, folder)],
        "ranges of one connection": [word for first in range(0, 900_000, 90_000) for word in (
            "-r", f"{first}-{first + 65_000}", f"{base}/1000000", "--next")][:-1],
        "too large": ["--max-filesize", "5000", f"{base}/100000"],
        "one local port": ["--local-port", "41000-41999", f"{base}/100000"],
        "fast open": ["--tcp-fastopen", f"{base}/100000"],
        "http 1.0 and kept": ["-0", "-H", "Connection: keep-alive", f"{base}/1000", f"{base}/100000"],
        "head, then get": ["-I", "-o", "/dev/null", f"{base}/1000", "--next", "-sS", f"{base}/1000"],
    }


def _bodies(base, names, folder):
    """Downloads of the files, each compared with the requested file afterwards."""
    return [word for number, name in enumerate(names)
            for word in ("-o", str(folder / "got" / f"{number}-{name}"), f"{base}/{name}")]


def proxied(ports, folder):
    """Through HAProxy, as requests and as plain bytes."""
    large = folder / "html" / "20000000"
    named = {}
    for way in ("requests", "bytes"):
        base = f"http://127.0.0.1:{ports[way]}"
        named |= {f"HAProxy, {way}, {size}": [f"{base}/{size}"] for size in SIZES}
        named |= {
            f"HAProxy, {way}, a post": ["--data-binary", f"@{large}", f"{base}/upload"],
            f"HAProxy, {way}, chunked": ["-T", str(large), "-H", "Transfer-Encoding: chunked",
                                         f"{base}/upload", "-o", "/dev/null"],
            f"HAProxy, {way}, close": ["-H", "Connection: close", f"{base}/1000000"],
            f"HAProxy, {way}, a range": ["-r", "5-1999999", f"{base}/20000000"],
            f"HAProxy, {way}, parallel": ["-Z", *_bodies(base, [f"{size}" for size in SIZES] * 4, folder)],
        }
    secure = f"https://127.0.0.1:{ports['secrets']}"
    return named | {"HAProxy, http 2 over tls": ["-k", "--http2", f"{secure}/20000000"],
                    "HAProxy, tls, an upload": ["-k", "-T", str(large), "-H", "Expect:", f"{secure}/upload"]}


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
    return [{"suite": "curl, nginx and HAProxy", "tests": len(kernel), "passed_kernel": len(kernel),
             "different": different}]


def _bytes(size):
    block = hashlib.sha256(b"wirespeed").digest() * 1024
    return (block * (size // len(block) + 1))[:size]


def _run_all(runner, folder, accelerated):
    ports = _free_ports()
    (folder / "nginx.conf").write_text(CONFIGURATION.format(folder=folder, workers=2, **ports))
    (folder / "haproxy.cfg").write_text(HAPROXY.format(**ports))
    if not (folder / "own.pem").exists():
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
                        "-subj", "/CN=127.0.0.1", "-keyout", folder / "own.key", "-out",
                        folder / "own.pem"], check=True, capture_output=True)
    (folder / "nginx.socket").unlink(missing_ok=True)
    servers = [subprocess.Popen(runner.command(words, accelerated), stdin=subprocess.DEVNULL)
               for words in (["nginx", "-c", folder / "nginx.conf"],
                             ["haproxy", "-db", "-f", folder / "haproxy.cfg"])]
    try:
        for name in PORTS:
            _wait(ports[name])
        return {name: _curl(runner, words, accelerated, folder)
                for name, words in cases(ports, folder).items()
                if not runner.part or re.search(runner.part, name)}
    finally:
        for server in servers:
            server.send_signal(signal.SIGTERM)
        for server in servers:
            try:
                server.wait(20)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def _free_ports():
    with contextlib.ExitStack() as held:
        taken = {name: held.enter_context(socket.socket()) for name in PORTS}
        for one in taken.values():
            one.bind(("127.0.0.1", 0))
        return {name: one.getsockname()[1] for name, one in taken.items()}


def _wait(port):
    for _ in range(200):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            time.sleep(0.05)
    raise SystemExit("suites: nginx or haproxy does not start")


def _curl(runner, words, accelerated, folder):
    command = runner.command(["curl", "-sS", "-m", "60", "-w", "%{http_code} %{size_download}\n",
                              *words], accelerated)
    if "-m" in words:
        command.remove("-m")
        command.remove("60")
        command[command.index("-w") + 1] = ""  # how much came in time is not repeatable
    got = folder / "got"
    shutil.rmtree(got, ignore_errors=True)
    got.mkdir()
    try:
        done = subprocess.run(command, capture_output=True, timeout=120,
                              env={**os.environ, "LC_ALL": "C"})
    except subprocess.TimeoutExpired:
        return ("hangs: not done after 120 s",)
    lines = b"".join(sorted(done.stdout.splitlines(True))) if "-Z" in words else done.stdout
    return (done.returncode, len(done.stdout), hashlib.sha256(lines).hexdigest()[:12],
            *_wrong_bodies(got, folder / "html"))


def _wrong_bodies(got, html):
    """Downloads that differ from the requested files; parallel downloads end in any order."""
    return [path.name for path in sorted(got.iterdir())
            if path.read_bytes() != (html / path.name.split("-")[1]).read_bytes()]
