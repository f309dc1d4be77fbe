#!/usr/bin/env python3
"""CPU per request of gateways, A B A B in one run: ours, nginx, HAProxy, Tomcat.

Every gateway runs from the start on core 0 and is idle while another is measured; generator and
stub origin share core 1. Ratios are taken inside a round and then the median over rounds.
Standard library only; needs wrk, and nginx and haproxy for their rows.
"""

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SERVERS = Path(__file__).resolve().parent.parent
TICK = os.sysconf("SC_CLK_TCK")
# Below the range of ephemeral ports, where any client may sit.
ORIGIN_PORT = 22900
NGINX = """
worker_processes 1; daemon off; pid {dir}/nginx.pid; error_log {dir}/nginx.err;
worker_rlimit_nofile 65536;
events {{ worker_connections 20000; }}
http {{
  access_log off; keepalive_timeout 300s; keepalive_requests 10000000;
  client_body_temp_path {dir}/b; proxy_temp_path {dir}/p; fastcgi_temp_path {dir}/f;
  uwsgi_temp_path {dir}/u; scgi_temp_path {dir}/s;
  upstream o {{ server 127.0.0.1:{origin}; keepalive 2048; keepalive_requests 10000000; }}
  server {{ listen 127.0.0.1:{port} backlog=4096;
    location / {{ proxy_pass http://o; proxy_http_version 1.1;
      proxy_set_header Connection ""; {headers} }} }}
}}
"""
# What the gateway adds by default, added by nginx, too: the same work.
NGINX_HEADERS = """proxy_set_header Host $host; proxy_set_header X-Forwarded-For $remote_addr;
      proxy_set_header X-Forwarded-Proto $scheme; proxy_set_header X-Forwarded-Host $host;
      proxy_set_header Via "1.1 nginx";"""
HAPROXY = """
global
  nbthread 1
  maxconn 9000
defaults
  mode http
  timeout connect 5s
  timeout client 300s
  timeout server 300s
  option http-keep-alive
  http-reuse always
frontend f
  bind 127.0.0.1:{port} backlog 4096
  default_backend b
backend b
  server o 127.0.0.1:{origin} pool-max-conn 4096 pool-purge-delay 3600s
"""


def jvm_flags(module, java):
    """The flags of the module's jvm.options that this Java knows."""
    text = subprocess.run([java, "-version"], capture_output=True, text=True).stderr
    major = int(text.split('"')[1].split(".")[0])
    flags = []
    for line in (SERVERS / module / "jvm.options").read_text().splitlines():
        line = line.strip()
        if line.startswith("24+:"):
            line = line[4:].strip() if major >= 24 else ""
        if line and not line.startswith("#"):
            flags.append(line)
    return flags


def java_gateway(module, port, arguments):
    def command(options, _folder):
        return [options.java, *jvm_flags(module, options.java), *options.jvm.split(),
                "-jar", str(SERVERS / module / "target" / f"{module}.jar"),
                "--listen", f"127.0.0.1:{port}", "--origin", f"127.0.0.1:{ORIGIN_PORT}",
                "--set", "limits.in-flight=100000", *arguments]
    return command


def nginx(port, headers):
    def command(_options, folder):
        own = folder / f"nginx-{port}"
        own.mkdir()
        (own / "nginx.conf").write_text(NGINX.format(
            dir=own, port=port, origin=ORIGIN_PORT, headers=headers))
        return [shutil.which("nginx") or "/usr/sbin/nginx", "-c", str(own / "nginx.conf")]
    return command


def haproxy(port):
    def command(_options, folder):
        (folder / "haproxy.cfg").write_text(HAPROXY.format(port=port, origin=ORIGIN_PORT))
        return [shutil.which("haproxy") or "/usr/sbin/haproxy", "-f", str(folder / "haproxy.cfg")]
    return command


CANDIDATES = {
    "nginx": (22001, nginx(22001, "")),
    "nginx-headers": (22002, nginx(22002, NGINX_HEADERS)),
    "haproxy": (22003, haproxy(22003)),
    "netty": (22004, java_gateway("gateway-netty", 22004, ["--threads", "1"])),
    "netty-io_uring": (22005, java_gateway(
        "gateway-netty", 22005, ["--threads", "1", "--transport", "io_uring"])),
    "netty-nio": (22006, java_gateway(
        "gateway-netty", 22006, ["--threads", "1", "--transport", "nio"])),
    "tomcat": (22007, java_gateway("gateway-tomcat", 22007, ["--threads", "platform"])),
    "tomcat-virtual": (22008, java_gateway("gateway-tomcat", 22008, ["--threads", "virtual"])),
}


def start(command, core, log):
    return subprocess.Popen(["taskset", "-c", str(core), *command], stdout=log, stderr=log,
                            preexec_fn=os.setsid)


def family(pid):
    """A process and its children: nginx works in a child."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(int(child) for child in children)]


def cpu_seconds(pid):
    total = 0
    for member in family(pid):
        fields = Path(f"/proc/{member}/stat").read_text().rsplit(")", 1)[1].split()
        total += int(fields[11]) + int(fields[12])
    return total / TICK


def resident_mib(pid):
    total = 0
    for member in family(pid):
        for line in Path(f"/proc/{member}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                total += int(line.split()[1])
    return total / 1024


def load(port, connections, seconds, close):
    script = ["-H", "Connection: close"] if close else []
    out = subprocess.run(
        ["taskset", "-c", "1", "wrk", "-t1", f"-c{connections}", f"-d{seconds}", "--latency",
         *script, f"http://127.0.0.1:{port}/"], capture_output=True, text=True).stdout
    found = {"requests": 0, "p99": "", "errors": ""}
    for line in out.splitlines():
        words = line.split()
        if "requests in" in line:
            found["requests"] = int(words[0])
        elif words[:1] == ["99%"]:
            found["p99"] = words[1]
        elif "Socket errors" in line or "Non-2xx" in line:
            found["errors"] += line.strip() + " "
    return found


def measure(name, process, port, connections, options):
    load(port, connections, 1, options.close)
    before, began = cpu_seconds(process.pid), time.monotonic()
    found = load(port, connections, options.seconds, options.close)
    cpu, length = cpu_seconds(process.pid) - before, time.monotonic() - began
    requests = found["requests"] or 1
    found.update(name=name, connections=connections, cpu_us=cpu / requests * 1e6,
                 rps=requests / options.seconds, busy=cpu / length,
                 rss_mib=resident_mib(process.pid))
    print(f"{name:15} c={connections:5} {found['rps']:8.0f}/s {found['cpu_us']:7.2f} us "
          f"busy {found['busy']:.2f} p99 {found['p99']:>9} rss {found['rss_mib']:.0f} MiB "
          f"{found['errors']}", flush=True)
    return found


def summarise(rows, options):
    base = options.only[0]
    summary = []
    for connections in options.connections:
        for name in options.only:
            own = [r for r in rows if r["name"] == name and r["connections"] == connections]
            other = [r for r in rows if r["name"] == base and r["connections"] == connections]
            ratios = [a["cpu_us"] / b["cpu_us"] for a, b in zip(own, other)]
            summary.append({"name": name, "connections": connections,
                            "cpu_us": statistics.median(r["cpu_us"] for r in own),
                            "ratio": statistics.median(ratios), "ratios": ratios,
                            "rps": statistics.median(r["rps"] for r in own),
                            "p99": [r["p99"] for r in own],
                            "rss_mib": max(r["rss_mib"] for r in own)})
    print(f"\n| gateway | connections | CPU us/request | x {base} (each round) | requests/s |"
          " p99 | MiB |\n|---|---|---|---|---|---|---|")
    for row in summary:
        each = " ".join(f"{ratio:.2f}" for ratio in row["ratios"])
        print(f"| {row['name']} | {row['connections']} | {row['cpu_us']:.1f} | {row['ratio']:.2f}"
              f" ({each}) | {row['rps']:.0f} | {' '.join(row['p99'])} | {row['rss_mib']:.0f} |")
    return summary


def options_of(arguments):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", default=["nginx", "netty", "haproxy"],
                        choices=list(CANDIDATES), help="in this order; ratios are to the first")
    parser.add_argument("--connections", nargs="+", type=int, default=[1000, 2000])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--warm", type=int, default=20, help="seconds of load on each JVM before")
    parser.add_argument("--close", action="store_true", help="Connection: close on each request")
    parser.add_argument("--latency", default="50ms")
    parser.add_argument("--java", default=shutil.which("java"))
    parser.add_argument("--jvm", default="", help="more JVM flags")
    parser.add_argument("--json", type=Path)
    return parser.parse_args(arguments)


def main(arguments):
    options = options_of(arguments)
    processes = []
    with tempfile.TemporaryDirectory() as name, open(Path(name) / "log", "w") as log:
        folder = Path(name)
        try:
            origin = SERVERS / "stub-origin" / "target" / "stub-origin.jar"
            processes.append(start([options.java, "-Xms256m", "-Xmx256m", "-XX:+UseSerialGC",
                                    "-jar", str(origin), "--port", str(ORIGIN_PORT), "--payload",
                                    "1KiB", "--latency", options.latency], 1, log))
            running = {}
            for candidate in options.only:
                port, command = CANDIDATES[candidate]
                running[candidate] = (start(command(options, folder), 0, log), port)
                processes.append(running[candidate][0])
            time.sleep(4)
            for candidate, (process, port) in running.items():
                if process.poll() is not None:
                    raise SystemExit(f"{candidate} did not start:\n"
                                     + (folder / "log").read_text())
                is_java = not candidate.startswith(("nginx", "haproxy"))
                # In pieces, with pauses in which the compiler gets the core for itself.
                for _ in range(max(1, options.warm // 5) if is_java else 1):
                    load(port, options.connections[0], 5 if is_java else 1, options.close)
                    time.sleep(0.5)
            rows = [measure(candidate, *running[candidate], connections, options)
                    for connections in options.connections
                    for _ in range(options.rounds) for candidate in options.only]
            summary = summarise(rows, options)
            if options.json:
                options.json.write_text(json.dumps({"rows": rows, "summary": summary}, indent=1))
        finally:
            for process in processes:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGTERM)
            for process in processes:
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
