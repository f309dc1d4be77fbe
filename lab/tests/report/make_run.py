"""Makes run directories for the tests of results and report, without measuring anything.

Every figure is drawn from a seeded generator and a small model of a server, so a run
is the same on every machine. The maker writes the files itself, as the format says,
and shares no code with what reads them. By hand: `python make_run.py KIND DIRECTORY`.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

START = 1_795_262_400.0  # 2026-11-21 12:00 UTC
FACTS = {
    "cpu_model": "Made-up Processor 2.0 GHz",
    "cores": 2,
    "kernel": "6.18.0",
    "memory_mib": 7954,
    "virtualization": "kvm",
    "congestion_control": "bbr",
    "governor": "performance",
    "clocksource": "tsc",
    "python": "3.11.7",
    "java": "17.0.13",
    "nginx": "1.22.1",
    "rustc": "1.95.0",
}
RPS = {"name": "rps", "from": "load", "combine": "sum", "better": "higher"}
LATENCY = {
    "name": "latency",
    "from": "load",
    "combine": "histogram",
    "quantiles": ["mean", 0.5, 0.75, 0.9, 0.99, 0.999, "max"],
    "better": "lower",
}


@dataclass
class Kind:
    """What to make: the recipe, and how the made-up machine answers a cell."""

    name: str
    title: str
    axes: dict
    tables: list
    rate: Callable[[dict], float]
    state: Callable[[dict], tuple[str, str]] = lambda axes: ("planned", "")
    bottleneck: Callable[[dict], str] = lambda axes: "server"
    metrics: list = field(default_factory=lambda: [RPS, LATENCY])
    repeat: int = 5
    order: str = "interleaved"
    fit: str = "strict"
    thinned: list = field(default_factory=list)
    noise: float = 0.02
    invalid_every: int = 0  # every n-th trial is invalid
    idle_held: bool = True
    baseline: dict = field(default_factory=lambda: {"stack": "kernel"})
    recipe: str = "wirespeed = 1\n"
    published: str = ""
    method: str = ""


def quickstart() -> Kind:
    """Two servers, one core each; the last round has an invalid trial, one cell is client-bound."""
    speed = {"netty": 60_000, "nginx": 95_000}

    def rate(a: dict) -> float:
        full = a["connections"] / (a["connections"] + 6)
        stack = 1.25 if a["stack"] == "balanced" else 1.0
        return speed[a["server"]] * full * stack * (1 - a["payload"] / 65536)

    def state(a: dict) -> tuple[str, str]:
        if a["stack"] == "performance":
            return "not-runnable", "no bypass here: the stack 'performance' needs Onload or ours"
        return "planned", ""

    def bottleneck(a: dict) -> str:
        if a["connections"] == 1:
            return "concurrency"
        fast = a["server"] == "nginx" and a["stack"] == "balanced" and a["connections"] >= 100
        return "client" if fast else "server"

    axes = {
        "payload": [128, 10240],
        "connections": [1, 10, 100, 1000],
        "server": ["netty", "nginx"],
        "stack": ["kernel", "balanced", "performance"],
    }
    table = {
        "title": "{server}, {payload} byte payload",
        "each": ["server", "payload"],
        "rows": "connections",
        "columns": "stack",
        "value": "rps",
        "gain": {"over": "kernel", "round": 0},
    }
    servers = {
        "title": "Servers on the kernel stack, {payload} byte payload",
        "each": "payload",
        "where": {"stack": ["kernel"]},
        "rows": "connections",
        "columns": "server",
        "value": "rps",
        "gain": {"over": "netty", "round": 0},
    }
    latency = {
        "title": "Latency at 100 connections",
        "where": {"connections": [100], "payload": [128]},
        "rows": ["server", "stack"],
        "values": ["rps", "latency.mean", "latency.p50", "latency.p99", "server.cpu"],
    }
    return Kind(
        "quickstart",
        "First light: an HTTP server on this machine",
        axes,
        [table, servers, latency],
        rate,
        state,
        bottleneck,
        invalid_every=29,
        noise=0.04,
    )


def netty() -> Kind:
    """The cookbook's sweep on two cores: most instances do not fit, some payloads are thinned."""

    def rate(a: dict) -> float:
        base = 74_000 / (1 + (a["payload"] / 512) ** 1.2 * 0.75)
        return base * min(a["instances"], 2) ** 0.9 * (1.5 if a["stack"] == "balanced" else 1)

    def state(a: dict) -> tuple[str, str]:
        if a["stack"] == "performance":
            return "not-runnable", "no bypass here: the stack 'performance' needs Onload or ours"
        if a["instances"] > 4:
            return "does-not-fit", f"{a['instances']} instances need {a['instances']} cores, 2 here"
        if a["payload"] in (32, 64):
            return "thinned", "left out to stay within the budget of 6m"
        return "planned", ""

    axes = {
        "payload": [16, 32, 64, 128, 256, 512],
        "instances": [1, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40],
        "stack": ["kernel", "balanced", "performance"],
    }
    table = {
        "title": "{link} with {payload} byte payload",
        "each": "payload",
        "rows": "instances",
        "columns": "stack",
        "value": "rps",
        "gain": {"over": "kernel", "round": 0},
        "published": {
            "file": "netty_onload_cookbook.csv",
            "stacks": {"balanced": "onload-balanced"},
        },
    }
    return Kind(
        "netty",
        "Netty HTTP server instances: kernel against user-level stack",
        axes,
        [table],
        rate,
        state,
        fit="share",
        thinned=["Trials last 5 s instead of 30 s.", "Payloads 32 and 64 were left out."],
        method="documents 000, 002 (Onload Netty.io Cookbook, SF-121964-CD)",
    )


NGINX_RECIPE = """wirespeed = 1
name = "nginx"
[axis.test]
tps     = { file = "0kb.bin",   bytes = 0, close = true }
rps0k   = { file = "0kb.bin",   bytes = 0 }
rps1k   = { file = "1kb.bin",   bytes = 1000 }
rps10k  = { file = "10kb.bin",  bytes = 10000 }
rps100k = { file = "100kb.bin", bytes = 100000 }
thr1M   = { file = "1Mb.bin",   bytes = 1000000 }
thr10M  = { file = "10Mb.bin",  bytes = 10000000 }
thr100M = { file = "100Mb.bin", bytes = 100000000 }
"""
NGINX_RATES = {
    "tps": 18_000, "rps0k": 61_000, "rps1k": 52_000, "rps10k": 43_000, "rps100k": 24_000,
    "thr1M": 3_100, "thr10M": 320, "thr100M": 31,
}  # fmt: skip


def nginx() -> Kind:
    """Transactions, requests and throughput; measured in blocks, so no verdict may be given."""

    def rate(a: dict) -> float:
        gain = {"kernel": 1.0, "balanced": 1.8, "performance": 1.75}[a["stack"]]
        return NGINX_RATES[a["test"]] * a["workers"] ** 0.95 * gain

    def state(a: dict) -> tuple[str, str]:
        if a["link"] != "loopback":
            return "not-runnable", f"the site has no link {a['link']}"
        if a["workers"] > 2:
            return "does-not-fit", f"{a['workers']} workers need {a['workers']} cores, 2 here"
        return "planned", ""

    common = {
        "each": ["link", "test"],
        "rows": ["workers"],
        "columns": "stack",
        "gain": {"over": "kernel", "round": 2},
    }
    published = {
        "file": "nginx_onload_cookbook.csv",
        "stacks": {"balanced": "onload-balanced", "performance": "onload-performance"},
    }
    tables = [
        {**common, "title": "{test} over {link}", "value": "rps", "published": published,
         "where": {"test": ["tps", "rps0k", "rps1k", "rps10k", "rps100k"]}},
        {**common, "title": "{test} over {link}, Gb/s", "value": "throughput",
         "where": {"test": ["rps100k", "thr1M", "thr10M", "thr100M"]},
         "published": {**published, "scale": 1.048576}},
    ]  # fmt: skip
    throughput = {"name": "throughput", "from": "wrk", "field": "bytes_per_second",
                  "combine": "sum", "unit": "Gb/s", "better": "higher"}  # fmt: skip
    axes = {
        "test": list(NGINX_RATES),
        "workers": [1, 2, 4, 8, 16, 28],
        "stack": ["kernel", "balanced", "performance"],
        "link": ["loopback", "25G", "100G"],
    }
    return Kind(
        "nginx",
        "NGINX web server: connections, requests and throughput",
        axes,
        tables,
        rate,
        state,
        metrics=[RPS, throughput],
        order="blocked",
        recipe=NGINX_RECIPE,
        idle_held=False,
        bottleneck=lambda a: "link" if a["test"][:3] == "thr" else "server",
    )


def zuul() -> Kind:
    """A ramp of connections with latency and resources, three repeats only."""

    def rate(a: dict) -> float:
        top = {"tomcat": 8_000, "netty": 14_000, "tomcat-virtual": 11_000}[a["gateway"]]
        return top * (1 - 0.5 ** (a["connections"] / 500))

    table = {
        "title": "Results for Ramped Load Test",
        "rows": ["connections", "gateway"],
        "values": [
            "rps",
            "latency.mean",
            "latency.p50",
            "latency.p75",
            "latency.p90",
            "server.cpu",
            "server.loadavg",
            "server.context_switches",
            "server.network_mbps",
        ],
        "published": {"file": "zuul_ramp.csv"},
    }
    axes = {
        "gateway": ["tomcat", "netty", "tomcat-virtual"],
        "connections": [700, 900, 1100, 1300, 1500, 1700, 1900, 2000],
    }
    return Kind(
        "zuul",
        "Gateway under a connection ramp: event-driven against thread-per-request",
        axes,
        [table],
        rate,
        baseline={"gateway": "tomcat"},
        repeat=3,
    )


KINDS = {"quickstart": quickstart, "netty": netty, "nginx": nginx, "zuul": zuul}


def make_run(kind: Kind, parent: Path, seed: int = 7) -> Path:
    """Writes one complete run directory below parent and returns it."""
    rng = random.Random(f"{kind.name}-{seed}")
    run = parent / f"20261121T120000Z-{kind.name}-{seed:04x}"
    (run / "trials").mkdir(parents=True)
    names = list(kind.axes)
    cells = [
        dict(zip(names, point, strict=True)) for point in itertools.product(*kind.axes.values())
    ]
    plan = _plan(kind, cells, rng)
    lines = "".join(json.dumps(line) + "\n" for line in plan)
    (run / "plan.jsonl").write_text(lines)
    clock = START
    for line in plan:
        if line["state"] == "planned":
            clock = _write_trial(run, kind, line, clock, rng)
    (run / "run.json").write_text(json.dumps(_run(kind, run.name), indent=1))
    (run / "recipe.toml").write_text(kind.recipe)
    (run / "site.toml").write_text('[site.here]\nkind = "local"\n')
    (run / "journal.jsonl").write_text(json.dumps({"t": START, "event": "started"}) + "\n")
    return run


def _key(axes: dict, round_: int) -> str:
    return hashlib.blake2b(f"{sorted(axes.items())}{round_}".encode(), digest_size=5).hexdigest()


def _plan(kind: Kind, cells: list[dict], rng: random.Random) -> list[dict]:
    plan = []
    for axes in cells:
        state, reason = kind.state(axes)
        if state != "planned":
            plan.append(
                {
                    "position": 0,
                    "round": 0,
                    "cell": _key(axes, 0),
                    "key": _key(axes, 0),
                    "axes": axes,
                    "state": state,
                    "reason": reason,
                }
            )
    measured = [axes for axes in cells if kind.state(axes)[0] == "planned"]
    position = 0
    for round_ in range(1, kind.repeat + 1):
        rng.shuffle(measured)
        for axes in measured:
            position += 1
            plan.append(
                {
                    "position": position,
                    "round": round_,
                    "cell": _key(axes, 0),
                    "key": _key(axes, round_),
                    "axes": axes,
                    "state": "planned",
                    "reason": "",
                }
            )
    return plan


def _run(kind: Kind, run_id: str) -> dict:
    return {
        "format": 1, "run_id": run_id, "recipe": kind.name, "title": kind.title,
        "method": kind.method, "recipe_hash": "0123456789abcdef", "site": "here",
        "started": "2026-11-21T12:00:00Z", "ended": "2026-11-21T12:06:10Z", "state": "done",
        "wirespeed_version": "0.1.0", "commit": "abc1234", "seed": 7,
        "argv": ["./wirespeed", "run", kind.name],
        "plan": {"repeat": kind.repeat, "order": kind.order, "baseline": kind.baseline,
                 "warmup_s": 2.0, "duration_s": 5.0, "cooldown_s": 0.5},
        "thinned": kind.thinned, "fit": kind.fit, "idle_held": kind.idle_held, "facts": FACTS,
        "axes": kind.axes, "tables": kind.tables, "metrics": kind.metrics,
        "stacks": {"kernel": {}, "balanced": {"provider": "auto"}},
    }  # fmt: skip


def _write_trial(run: Path, kind: Kind, line: dict, clock: float, rng: random.Random) -> float:
    axes, position = line["axes"], line["position"]
    wobble = rng.gauss(1, kind.noise)
    rps = kind.rate(axes) * wobble
    valid = not (kind.invalid_every and position % kind.invalid_every == 0)
    folder = run / "trials" / f"{position:06d}-{line['key']}"
    folder.mkdir()
    bottleneck = kind.bottleneck(axes)
    start = clock + 1.5
    trial = {
        "format": 1, "key": line["key"], "cell": line["cell"], "round": line["round"],
        "position": position, "attempt": 1, "axes": axes, "t_start": clock,
        "t_end": start + 7, "window": {"start_unix_ns": int((start + 2) * 1e9),
                                       "length_ns": 5_000_000_000},
        "valid": valid, "reasons": [] if valid else ["canary 9.1 % off the run's median"],
        "bottleneck": bottleneck, "notes": [], "shared_cores": kind.fit == "share",
        "metrics": _metrics(axes, rps, bottleneck, rng),
        "processes": _processes(axes),
        "calibration": {"before_ms": 110 * rng.gauss(1, 0.01),
                        "after_ms": 110 * rng.gauss(1, 0.01)},
    }  # fmt: skip
    (folder / "cmd.json").write_text(json.dumps([p["argv"] for p in trial["processes"]]))
    (folder / "samples.jsonl").write_text(_samples(trial, rng))
    (folder / "trial.json").write_text(json.dumps(trial))
    return start + 7.5


def _metrics(axes: dict, rps: float, bottleneck: str, rng: random.Random) -> dict:
    connections = axes.get("connections", 64)
    mean_us = connections / rps * 1e6
    server = 0.86 if bottleneck in ("client", "concurrency") else 0.98
    load = 0.99 if bottleneck == "client" else 0.62
    size = axes.get("payload", 1000)
    return {
        "rps": rps, "rps[0]": rps, "throughput": rps * size * 8e-9,
        "latency.mean": mean_us, "latency.p50": mean_us * 0.93, "latency.p75": mean_us * 1.1,
        "latency.p90": mean_us * 1.4, "latency.p99": mean_us * 2.2,
        "latency.p99_9": mean_us * 4.1, "latency.max": mean_us * 9,
        "server.cpu": server, "load.cpu": load, "origin.cpu": 0.0,
        "server.cpu_us_per_request": server / rps * 1e6,
        "load.cpu_us_per_request": load / rps * 1e6, "cpu.0": load + 0.01, "cpu.1": server + 0.01,
        "loadavg": 1.4 + rng.random(), "context_switches": rps * 0.8,
        "network_mbps": rps * (size + 150) * 8 / 1e6, "memory_mib": 1400 + rng.random() * 40,
        "server.rss_mib": 180.0, "runqueue": 2.0, "gc.pause_ms": 12.0, "gc.count": 3,
        "gc.throughput": 0.998, "errors": 0, "non_2xx": 0, "timeouts": 0,
        "little_residual": rng.gauss(-0.01, 0.004), "steal": 0.001,
    }  # fmt: skip


def _processes(axes: dict) -> list[dict]:
    server = axes.get("server", axes.get("gateway", "http"))
    return [
        {"name": str(server), "index": 0, "role": "server",
         "argv": ["java", "-jar", "http-server.jar", "--port", "8081"], "cores": [1],
         "pid": 4242, "exit": 0, "cpu_s": 4.9, "max_rss_mib": 181.0},
        {"name": "load", "index": 0, "role": "load",
         "argv": ["wirespeed-load", "-c", str(axes.get("connections", 50)), "-d", "5s",
                  "http://127.0.0.1:8081/"], "cores": [0],
         "pid": 4243, "exit": 0, "cpu_s": 3.1, "max_rss_mib": 9.0},
    ]  # fmt: skip


def _samples(trial: dict, rng: random.Random) -> str:
    start, steady = trial["window"]["start_unix_ns"], trial["metrics"]
    names = ("cpu.0", "cpu.1", "server.cpu", "load.cpu", "loadavg", "context_switches",
             "network_mbps", "memory_mib", "runqueue")  # fmt: skip
    lines = []
    for i in range(25):
        values = {name: steady[name] * rng.gauss(1, 0.03) for name in names}
        lines.append(json.dumps({"t_ns": start + i * 200_000_000, "values": values}))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(make_run(KINDS[sys.argv[1]](), Path(sys.argv[2])))
