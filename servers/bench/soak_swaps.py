#!/usr/bin/env python3
"""Filters and configurations of gateway-netty swapped under load, without a failed request.

  servers/bench/soak_swaps.py                              # 1000 by the API, 1000 by the folder
  servers/bench/soak_swaps.py --api 50 --folder 20         # a short look

Steady requests pass while configurations are replaced by the admin port and filter files, Java and
Groovy in turn, by the watched folder; a swap counts when its mark shows in an answer. Prints a
Markdown summary with metaspace and loaded classes after collections; exit code 1 when a request
failed, a swap did not come, or metaspace grew. Standard library only; a JDK with jcmd.
"""

import argparse
import asyncio
import http.client
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import soak
import soak_client

SOURCE = """
import wirespeed.gateway.core.*;
public class {name} implements Filter {{
    private final Runnable made = () -> System.identityHashCode(this);
    public Phase phase() {{ return Phase.POST; }}
    public int order() {{ return 5; }}
    public String name() {{ return "{name}"; }}
    public Step apply(Context context) {{
        context.response().headers().set("X-{name}", "{mark}");
        return Step.NEXT;
    }}
}}
"""
CONFIG = """
[server]
listen = "127.0.0.1:0"
[admin]
listen = "127.0.0.1:0"
[limits]
loop-lag = "60s"
[filters]
folder = "{folder}"
[origins.soak]
addresses = ["127.0.0.1:{port}"]
[[filter]]
type = "headers"
response-set = {{ X-Api = "{mark}" }}
"""
SWAP_S_MAX = 300
# Metaspace grows in chunks; a leaked class loader takes some 20 KiB, a thousand of them 20 MiB.
METASPACE_MIB_MAX = 6


class Target(soak.Gateway):
    """The gateway with a watched folder."""

    def __init__(self, java, origin, folder, flags):
        self.filters = folder / "filters"
        self.filters.mkdir(mode=0o755)
        self.origin = origin
        for name, mark in (("Jay", 0), ("Gee", 0)):
            self.write(name, mark)
        super().__init__(java, [origin], folder, flags)

    def config(self, mark):
        return CONFIG.format(folder=self.filters, port=self.origin.port,
                             mark=mark if isinstance(mark, int) else 0)

    def write(self, name, mark):
        """Renamed into place, as an editor does."""
        source = SOURCE.format(name=name, mark=mark)
        is_groovy = name == "Gee"
        if is_groovy:
            # A closure in place of the lambda: it is a class of its own, too.
            source = source.replace("() -> System", "{ -> System").replace("(this);", "(this) };")
        path = self.filters / (name + (".groovy" if is_groovy else ".java"))
        new = path.with_suffix(".new")
        new.write_text(source)
        os.replace(new, path)

    def classes(self):
        """Loaded less unloaded."""
        text = subprocess.run([self.jcmd, str(self.process.pid), "PerfCounter.print"], check=True,
                              capture_output=True, text=True, timeout=300).stdout
        counts = {k: int(re.search(rf"java\.cls\.{k}=(\d+)", text).group(1))
                  for k in ("loadedClasses", "unloadedClasses")}
        return counts["loadedClasses"] - counts["unloadedClasses"], counts["unloadedClasses"]


def mark(gateway, field):
    """The mark that an answer carries now."""
    client = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=300)
    client.request("GET", "/mark")
    answer = client.getresponse()
    answer.read()
    client.close()
    return answer.getheader(field)


def by_api(gateway, number):
    client = http.client.HTTPConnection("127.0.0.1", gateway.admin, timeout=300)
    client.request("GET", "/config")
    answer = client.getresponse()
    answer.read()
    tag = answer.getheader("ETag")
    client.request("PUT", "/config", gateway.config(number).encode(), {"If-Match": tag})
    answer = client.getresponse()
    body = answer.read()
    client.close()
    if answer.status != 200:
        raise SystemExit(f"PUT /config: {answer.status} {body.decode()}")
    return mark(gateway, "X-Api") == str(number)


def by_folder(gateway, number):
    name = ("Jay", "Gee")[number % 2]
    gateway.write(name, number)
    end = time.monotonic() + SWAP_S_MAX
    while mark(gateway, f"X-{name}") != str(number):
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def sample(gateway, kind, number, begin):
    values = gateway.sample()
    alive, unloaded = gateway.classes()
    return {"kind": kind, "swaps": number, "t": time.monotonic() - begin, "classes": alive,
            "unloaded": unloaded, **values}


def swaps(gateway, kind, swap, count, rows):
    """All swaps of one kind; the answer is how many came through."""
    begin, came = time.monotonic(), 0
    rows.append(sample(gateway, kind, 0, begin))
    for number in range(1, count + 1):
        came += swap(gateway, number)
        if number % max(1, count // 8) == 0:
            rows.append(sample(gateway, kind, number, begin))
    return came


async def under_load(options, gateway, bodies, tally, rows):
    loop = asyncio.get_running_loop()
    stop = loop.time() + 1e9
    workers = [asyncio.create_task(soak_client.worker(
        tally, bodies, gateway.port, f"127.0.0.{2 + i % 4}", options.workers / options.rate, stop))
        for i in range(options.workers)]
    came = {}
    for kind, swap, count in (("API", by_api, options.api), ("folder", by_folder, options.folder)):
        came[kind] = await loop.run_in_executor(None, swaps, gateway, kind, swap, count, rows)
    for worker in workers:
        worker.cancel()
    for failed in await asyncio.gather(*workers, return_exceptions=True):
        if isinstance(failed, Exception):
            raise failed
    return came


def verdicts(options, tally, rows, came, leaks):
    folder = [r for r in rows if r["kind"] == "folder"]
    # The first part warms the compilers up.
    first, last = folder[min(2, len(folder) - 1)], folder[-1]
    grown = last["metaspace"] - first["metaspace"]
    good = tally.counts["200"]
    # Requests that the end of the run interrupts are neither answered nor failed.
    failed = sum(c for n, c in tally.counts.items()
                 if n not in ("sent", "200", "abandoned by the client"))
    return [
        ("every swap came through", came == {"API": options.api, "folder": options.folder},
         f"{came['API']} by API, {came['folder']} by folder"),
        ("no failed request", failed == 0 and good > 0, f"{failed} failed, {good} fine"),
        ("metaspace flat", grown <= METASPACE_MIB_MAX,
         f"{grown:+.1f} MiB over {last['swaps'] - first['swaps']} compilations"),
        ("leak detector (paranoid)", not leaks, f"{len(leaks)} reports"),
    ]


def report(rows, tally, checks):
    print("| swaps | s | metaspace MiB | classes | unloaded | heap MiB |\n|---|---|---|---|---|---|")
    for r in rows:
        print(f"| {r['swaps']} by {r['kind']} | {r['t']:.0f} | {r['metaspace']:.1f} |"
              f" {r['classes']} | {r['unloaded']} | {r['heap']:.0f} |")
    print("\n| must hold | seen | |\n|---|---|---|")
    for name, holds, seen in checks:
        print(f"| {name} | {seen} | {'yes' if holds else '**NO**'} |")
    for violation in tally.violations:
        print(f"- {violation}")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--api", type=int, default=1000, help="swaps by the admin port")
    parser.add_argument("--folder", type=int, default=1000, help="swaps by the watched folder")
    parser.add_argument("--rate", type=float, default=200, help="requests per second during it")
    parser.add_argument("--workers", type=int, default=20, help="connections that carry them")
    parser.add_argument("--java", default="java")
    parser.add_argument("--flag", action="append", default=[], help="of the gateway's JVM")
    return parser.parse_args()


def main():
    options = arguments()
    java = soak.java_path(options.java)
    tally, rows = soak_client.Tally(), []
    # Failures here must be the gateway's, so the origin makes none.
    soak.FAULTS = "500=0"
    with tempfile.TemporaryDirectory() as name:
        origin = soak.Origin(java, [])
        gateway = Target(java, origin, Path(name), options.flag)
        try:
            bodies = asyncio.run(soak_client.learn([origin.port]))
            came = asyncio.run(under_load(options, gateway, bodies, tally, rows))
        finally:
            gateway.stop()
            origin.stop(signal.SIGTERM)
        checks = verdicts(options, tally, rows, came, gateway.log_lines("LEAK"))
        report(rows, tally, checks)
    return 0 if all(holds for _, holds, _ in checks) else 1


if __name__ == "__main__":
    sys.exit(main())
