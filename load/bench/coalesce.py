#!/usr/bin/env python3
"""Do pauses before waits falsify latencies? With and without them, A B B A, on one nginx.

Each way is measured in four variants: bound to a core or not, by the generator's own clock and by the
kernel's receive timestamps (--rx-timestamps). A probe runs with each load: ten requests per second at a
fixed rate, on a separate thread that never pauses. If pauses made latencies appear longer than they are,
the difference between the generator's clock and the kernel's would be larger with pauses than without,
and the probe would not follow.

    load/bench/coalesce.py --load target/release/wirespeed-load [--nice] [--cell 50x1024]
"""

import argparse
import json
import statistics
import subprocess
import tempfile
from pathlib import Path

import compare
import peers

WAYS = ["auto", "never"]


def measured(options, url, cell, way, pinned, stamped):
    """The result file of one run."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        command = [options.load, "-t1", f"-c{cell.connections}", f"-d{options.seconds}s", "-L",
                   "--coalesce", way, "--probe", "100", "--json", file.name, url]
        if pinned:
            command += ["--pin", "1,1"]
        if stamped:
            command += ["--rx-timestamps"]
        subprocess.run(command, check=True, capture_output=True)
        return json.loads(Path(file.name).read_text())


def figures(result):
    """The compared values, in microseconds except for the rate."""
    service, probe = result["latency"]["service"], result["latency"]["probe"]["service"]
    waiting = result["waiting"]
    return {
        "rps": result["rps"],
        "paused": waiting["paused"] / max(waiting["waits"], 1),
        "mean": service["mean"] / 1e3,
        "p50": service["quantiles"]["0.5"] / 1e3,
        "p99": service["quantiles"]["0.99"] / 1e3,
        "probe_p50": (probe["quantiles"]["0.5"] or 0) / 1e3,
        "little": (result["little"] or {}).get("residual", float("nan")),
    }


def main():
    """Measures the cells and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--load", default="target/release/wirespeed-load")
    parser.add_argument("--cell", action="append", help="like 50x1024")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=1)
    parser.add_argument("--nice", action="store_true", help="go before what else runs (root)")
    options = parser.parse_args()
    compare.hold_idle_states()
    if options.nice:
        compare.go_first()
    print("| cell | core | clock | pauses | requests/s | waits with a pause | mean µs | p50 | p99 "
          "| probe p50 | N against X·R |\n|" + "---|" * 11)
    for cell in map(peers.Cell.parse, options.cell or ["50x1024", "1000x1024"]):
        with compare.Server() as server:
            url = f"http://127.0.0.1:{server.port}/{cell.path}"
            for pinned in (True, False):
                for stamped in (False, True):
                    runs = {way: [] for way in WAYS}
                    for number in range(options.rounds):
                        for way in WAYS if number % 2 == 0 else reversed(WAYS):
                            result = measured(options, url, cell, way, pinned, stamped)
                            runs[way].append(figures(result))
                    for way in WAYS:
                        row = {key: statistics.median(run[key] for run in runs[way])
                               for key in runs[way][0]}
                        print(f"| {cell.name} | {'own' if pinned else 'any'} "
                              f"| {'kernel' if stamped else 'own'} | {way} | {row['rps']:,.0f} "
                              f"| {row['paused']:.2f} | {row['mean']:.1f} | {row['p50']:.1f} "
                              f"| {row['p99']:.1f} | {row['probe_p50']:.1f} "
                              f"| {row['little']:+.3f} |", flush=True)


if __name__ == "__main__":
    main()
