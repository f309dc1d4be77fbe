"""Load for gateway.py: one run of wirespeed-load, and what core and process did in its window."""

import contextlib
import json
import os
import subprocess
import tempfile
import threading
import time
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")
# Beginnings of the names of a JVM's threads that compile or collect; the kernel keeps 15 letters.
JVM_OWN = ("C1 Compiler", "C2 Compiler", "GC Thread", "VM Thread", "VM Periodic")
SAMPLE_S = 0.05
# Load before each window: connections are open, queues have their length.
LEAD_S = 1


def family(pid):
    """A process and its children: nginx works in a child."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(int(child) for child in children)]


def cpu_ns(pid):
    """User and system time to the nanosecond, ended threads included: the process's CPU clock."""
    return sum(time.clock_gettime_ns((~member << 3) | 2) for member in family(pid))


def jvm_own(pid):
    """The schedstat files of the threads with which a JVM works for itself."""
    files = []
    for member in family(pid):
        for task in Path(f"/proc/{member}/task").iterdir():
            with contextlib.suppress(OSError):
                if (task / "comm").read_text().startswith(JVM_OWN):
                    files.append(task / "schedstat")
    return files


def cpu_of_threads_ns(files):
    total = 0
    for file in files:
        with contextlib.suppress(OSError):
            total += int(file.read_text().split()[0])
    return total


class Watch:
    """Reads clocks of a process and of the cores in a thread, to know them at any moment later."""

    def __init__(self, pid):
        self.pid = pid
        self.own = jvm_own(pid)
        self.samples = []
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _sample(self):
        self.samples.append((time.time_ns(), cpu_ns(self.pid), cpu_of_threads_ns(self.own),
                             *idle_ns()))

    def _run(self):
        self._sample()
        while not self.ended.wait(SAMPLE_S):
            self._sample()
        # The window may have ended a moment ago.
        self._sample()

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()

    def at(self, unix_ns):
        """All readings at this moment, between two samples in a straight line."""
        for before, after in zip(self.samples, self.samples[1:]):
            if before[0] <= unix_ns <= after[0]:
                share = (unix_ns - before[0]) / (after[0] - before[0])
                return [x + (y - x) * share for x, y in zip(before, after)]
        raise SystemExit("the window lies outside of what was watched: the clock was set?")

    def between(self, start_ns, end_ns):
        return [y - x for x, y in zip(self.at(start_ns), self.at(end_ns))]


def resident_mib(pid):
    total = 0
    for member in family(pid):
        for line in Path(f"/proc/{member}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                total += int(line.split()[1])
    return total / 1024


def idle_ns():
    """Per core: what /proc/stat counts as idle."""
    idle = []
    for line in Path("/proc/stat").read_text().splitlines():
        if line.startswith("cpu") and line[3].isdigit():
            words = line.split()
            idle.append((int(words[4]) + int(words[5])) * 1_000_000_000 // TICK)
    return idle


def send(program, contender, connections, seconds, close=False, rate=None, warmup=0):
    """Sends load from core 1; the answer is the generator's own report."""
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        command = ["taskset", "-c", "1", program, "-t1", f"-c{connections}", f"-d{seconds}",
                   "-T5", "--live", "never", "--json", report.name]
        command += ["--warmup", str(warmup)] if warmup else []
        command += ["-R", str(int(rate)), "--wait", "sleep"] if rate else []
        command += ["-H", "Connection: close"] if close else []
        command += contender.load
        ran = subprocess.run([*command, f"{contender.scheme}://127.0.0.1:{contender.port}/"], capture_output=True,
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
    """One row: load in a window, and CPU in exactly this window."""
    pid = contender.process.pid
    with Watch(pid) as watch:
        found = send(program, contender, connections, seconds, close, rate, warmup=LEAD_S)
    window = found["window"]
    length, cpu, own, *idle = watch.between(window["start_unix_ns"],
                                            window["start_unix_ns"] + window["length_ns"])
    totals = found["totals"]
    answered = totals["completed_in_window"] or 1
    return {"name": contender.name, "connections": connections, "rps": found["rps"],
            "cpu_us": cpu / answered / 1e3, "jvm_us": own / answered / 1e3,
            "p50_ms": quantile_ms(found, "0.5"), "p99_ms": quantile_ms(found, "0.99"),
            "p999_ms": quantile_ms(found, "0.999"),
            "little": little_residual(found, connections, close),
            "busy": [1 - core / length for core in idle], "rss_mib": resident_mib(pid),
            "errors": found["errors"]["total"] + totals["non_2xx"] + totals["dropped"],
            "offered": rate, "due": totals["due"], "seconds": seconds}
