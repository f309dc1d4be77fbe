"""Error rates and power of duets on this machine: a server with itself, and with a planted cost.

    python lab/bench/duets.py aa PAIRS [SECONDS]           a server against itself
    python lab/bench/duets.py planted PERCENT PAIRS [SECONDS]
    python lab/bench/duets.py judge FILE ... [OF]          comparisons of OF (5) kept pairs each

Each pair is two fresh servers with a generator each; they live next to each other for SECONDS (8)
and take turns of 25 ms, as in a run of the lab (agent, controller, estimator). The ratios
of a pair are appended to build/duets-aa.jsonl or -planted-PERCENT.jsonl. The server is
lab/tests/fakes/planted.py, whose requests cost 100 blocks to hash, or PERCENT more; what is the
same for both (about a tenth of a request) makes the true difference so much smaller.
"""

import json
import math
import os
import random
import sys
import tempfile
import time
from pathlib import Path

from wirespeed.analysis.duet import CPU, RATE, Slice, of_slices
from wirespeed.fleet.channel import Transport
from wirespeed.fleet.host import Host
from wirespeed.stats import comparison

ROOT = Path(__file__).parents[2]
LOAD = ROOT / "target" / "release" / "wirespeed-load"
SERVER = ROOT / "lab" / "tests" / "fakes" / "planted.py"
BLOCKS, CONNECTIONS, PORT = 100, 10, 18_400
OF, BLOCK_S, WARM_S = 5, 2.0, 0.5


def spawn(host: Host, folder: str, name: str, core: int, argv: list[str]) -> None:
    host.ask(
        "spawn", name=name, argv=argv, cores=[core], folder=folder, cwd=folder,
        stdout=f"{folder}/{name}.out", stderr=f"{folder}/{name}.err",
    )  # fmt: skip


def pair(host: Host, works: tuple[int, int], seconds: float, seed: int) -> dict[str, object]:
    """One pair of fresh servers: the log ratios of the second over the first."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        names, controls = [], []
        for side, work in enumerate(works):
            port = PORT + side
            command = [sys.executable, str(SERVER), "--port", str(port), "--work", str(work)]
            spawn(host, folder, f"server-{side}", 0, command)
        time.sleep(0.3)
        for side in (0, 1):
            controls.append(f"{folder}/control-{side}")
            url = f"http://127.0.0.1:{PORT + side}/"
            command = [
                str(LOAD),
                "-t1",
                f"-c{CONNECTIONS}",
                "-d1h",
                "--pin",
                "1",
                "--timeout",
                "30s",
            ]
            spawn(host, folder, f"load-{side}", 1, [*command, "--control", controls[-1], url])
            names += [f"server-{side}", f"load-{side}"]
        time.sleep(WARM_S)
        told = host.ask(
            "duet", seconds + 60, slice_s=0.025, skip_s=0.005, drain_s=0.2, length_s=seconds,
            seed=seed, cores=[0, 1], core=1, controls=[[path] for path in controls],
            sides=[{"servers": [f"server-{s}"], "loads": [f"load-{s}"]} for s in (0, 1)],
        )  # fmt: skip
        host.ask("stop", names=names, grace_s=0)
        host.ask("forget", names=names)
    found = of_slices([Slice(*row) for row in told["slices"]], BLOCK_S, True)
    ratios = {name: found.ratios[name].log for name in (CPU[0], RATE) if name in found.ratios}
    return {"t": time.time(), "how": told["how"], "realtime": told["realtime"], "seconds": seconds,
            "groups": found.groups, "left_out": found.left_out, "ratios": ratios,
            "load": os.getloadavg()[0]}  # fmt: skip


def measure(percent: float, pairs: int, seconds: float, file: Path) -> None:
    chance = random.Random()
    host = Host(Transport("here", python=sys.executable), {"mark": f"{os.getpid()}-duets"})
    host.greet()
    host.prefer(-20)
    host.ask("hold_idle")
    file.parent.mkdir(exist_ok=True)
    try:
        for _ in range(pairs):
            works = (BLOCKS, round(BLOCKS * (1 + percent / 100)))
            is_swapped = chance.random() < 0.5  # the ports change places, whatever they may matter
            one = pair(host, works[::-1] if is_swapped else works, seconds, chance.getrandbits(31))
            if is_swapped:
                one["ratios"] = {name: -log for name, log in one["ratios"].items()}
            with open(file, "a", encoding="utf-8") as out:
                out.write(json.dumps(one) + "\n")
    finally:
        host.close()


def judge(files: list[Path], of: int) -> None:
    """Comparisons of `of` pairs in the order in which they were measured, as a run judges them."""
    for file in files:
        pairs = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        for metric in (CPU[0], RATE):
            logs = [one["ratios"][metric] for one in pairs if metric in one["ratios"]]
            groups = [logs[n : n + of] for n in range(0, len(logs) - of + 1, of)]
            found = [comparison.compare([group])[0] for group in groups]
            if not found:
                continue
            beyond = sum(one.p <= comparison.P_MAX for one in found)
            excluded = sum(one.low > 0 or one.high < 0 for one in found)
            middle = sorted(one.gain for one in found)[len(found) // 2]
            widths = sorted(math.log1p(one.high) - math.log1p(one.low) for one in found)
            print(
                f"{file.stem}, {metric}: {len(logs)} pairs, {len(found)} comparisons of {of}: "
                f"median {middle:+.2%}, interval {widths[len(widths) // 2] / 2:.2%} to each side, "
                f"p <= 2 % {beyond}, 95 % interval without 0 {excluded}, sd of a pair "
                f"{comparison.level(logs).variance ** 0.5 * len(logs) ** 0.5:.2%}"
            )


if __name__ == "__main__":
    kind, *words = sys.argv[1:]
    if kind == "judge":
        of = [int(word) for word in words if word.isdigit()]
        judge([Path(word) for word in words if not word.isdigit()], of[0] if of else OF)
    else:
        percent = float(words.pop(0)) if kind == "planted" else 0.0
        name = "aa" if kind == "aa" else f"planted-{percent:g}"
        seconds = float(words[1]) if len(words) > 1 else 8.0
        measure(percent, int(words[0]), seconds, ROOT / "build" / f"duets-{name}.jsonl")
