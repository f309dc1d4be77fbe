"""Load for gateway.py: one run of wirespeed-load, and what core and process did in its window."""

import json
import os
import subprocess
import tempfile
import time
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")


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


def idle_seconds():
    """Per core: what /proc/stat counts as idle."""
    idle = []
    for line in Path("/proc/stat").read_text().splitlines():
        if line.startswith("cpu") and line[3].isdigit():
            words = line.split()
            idle.append((int(words[4]) + int(words[5])) / TICK)
    return idle


def send(program, port, connections, seconds, close=False, rate=None, warmup=0):
    """Sends load from core 1; the answer is the generator's own report."""
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        command = ["taskset", "-c", "1", program, "-t1", f"-c{connections}", f"-d{seconds}",
                   "-T5", "--live", "never", "--json", report.name]
        command += ["--warmup", str(warmup)] if warmup else []
        command += ["-R", str(int(rate)), "--wait", "sleep"] if rate else []
        command += ["-H", "Connection: close"] if close else []
        ran = subprocess.run([*command, f"http://127.0.0.1:{port}/"], capture_output=True,
                             text=True)
        if ran.returncode:
            raise SystemExit(f"the generator failed: {ran.stderr.strip()}")
        return json.loads(Path(report.name).read_text())


def quantile_ms(found, quantile):
    """In open loop from the due time on, else from the sending on."""
    latency = found["latency"]["response"] or found["latency"]["service"]
    value = latency["quantiles"].get(quantile) if latency else None
    return value / 1e6 if value is not None else float("nan")


def little_residual(found, connections, close):
    """How far rate x mean time is off the connections; opening one is part of a churned request."""
    little = found.get("little")
    if not little or not close:
        return little and little["residual"]
    took = found["latency"]["service"]["mean"] + found["latency"]["connect"]["mean"]
    return found["rps"] * took / 1e9 / connections - 1


def measure(contender, program, connections, seconds, close=False, rate=None):
    """One row: load in a window, and CPU in the same window."""
    pid = contender.process.pid
    send(program, contender.port, connections, 1, close, rate)
    cpu, idle, began = cpu_seconds(pid), idle_seconds(), time.monotonic()
    found = send(program, contender.port, connections, seconds, close, rate)
    length = time.monotonic() - began
    cpu = cpu_seconds(pid) - cpu
    busy = [1 - (after - before) / length for before, after in zip(idle, idle_seconds())]
    # All that was answered costs CPU, also before and after the window.
    answered = found["totals"]["completed"] or 1
    return {"name": contender.name, "connections": connections, "rps": found["rps"],
            "cpu_us": cpu / answered * 1e6, "p50_ms": quantile_ms(found, "0.5"),
            "p99_ms": quantile_ms(found, "0.99"), "p999_ms": quantile_ms(found, "0.999"),
            "little": little_residual(found, connections, close), "busy": busy,
            "rss_mib": resident_mib(pid),
            "errors": found["errors"]["total"] + found["totals"]["non_2xx"],
            "due": found["totals"]["due"], "seconds": seconds}
