"""Error rates and power of duets on this machine: a server with itself, and with a planted cost.

    python lab/bench/duets.py aa [--for 20m] [--size compare]
    python lab/bench/duets.py planted 1,2,3,5,10 [--for 20m] [--size compare]
    python lab/bench/duets.py pairs 0,1,2,3,5,10 [--for 60m] [--size 3m]
    python lab/bench/duets.py power [--size 3m] [--threshold 2%] [FILE …]
    python lab/bench/duets.py report [FILE …]

A comparison has the pairs of a shipped size: of `compare --run`, of `init`, or of the quickstart;
of `--size 3m` as many as fit into three minutes.
Each pair is two fresh servers with a generator each, which live next to each other and take turns
of 25 ms, as in a run of the lab (agent, controller, estimator), and the lab's own rules give the
verdict. As many comparisons are made as fit into `--for`, the planted share with the fewest first.
Each is appended to one file when it is finished, so sessions add up, and Ctrl-C costs the one that
is on its way. `pairs` measures single pairs, of the share with the fewest, and `power` estimates
from them how often a whole comparison would find each share (power.py), which is part of its time,
some 25 s a share. `--rival NICE` adds a program that works in bursts on the servers' core.

The server is lab/tests/fakes/planted.py, whose requests cost 100 blocks to hash, or PERCENT more;
what is the same for both (about a tenth of a request) makes the true difference so much smaller.
"""

import argparse
import ctypes
import json
import math
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
import uuid
from collections import Counter, defaultdict
from pathlib import Path
from statistics import median

import bounds
import power

from wirespeed import units
from wirespeed.agent.facts import own_identity
from wirespeed.analysis.duet import CPU, RATE, Slice, of_slices
from wirespeed.errors import InputError, WirespeedError
from wirespeed.fleet.channel import Transport
from wirespeed.fleet.host import Host
from wirespeed.recipe import draft, read
from wirespeed.recipe.model import DuetPlan, threshold_share
from wirespeed.runner.duet import PAIRS
from wirespeed.runner.time_budget import LONGER_SHARE, TimeBudget
from wirespeed.runner.turns import enough
from wirespeed.stats import comparison

ROOT = Path(__file__).parents[2]
LOAD = ROOT / "target" / "release" / "wirespeed-load"
SERVER = ROOT / "lab" / "tests" / "fakes" / "planted.py"
FILE = ROOT / "build" / "duets.jsonl"
BLOCKS, CONNECTIONS, PORT = 100, 10, 18_400
BLOCK_S, WARM_S, PATIENCE_S = 2.0, 0.5, 30.0
ALONE = "pair"  # the size of a row with a pair alone
LONG, LONG_S = "3m", 180.0  # a size of no recipe, and its time
START_S = 1.0  # of a pair besides its turns: two servers and generators, warm-up, end
ESTIMATE_S = 25.0  # of each share, by power.py
FAILURES_MAX = 3  # in a row; one hiccup does not end a session of an hour
METRICS = {CPU[0]: "lower", RATE: "higher"}
FALSE_MAX = 0.02  # the share of false verdicts that the lab promises
BURSTS_S = 0.02, 0.4  # of a rival, and of its rests
PR_SET_PDEATHSIG = 1


def sizes() -> dict[str, tuple[int, float]]:
    """(pairs, seconds of each) of a comparison, as the shipped commands and recipes have them; the
    long one has more pairs of `compare`."""
    made = tomllib.loads(draft.text(draft.Draft("x", ["x"], 1)))["plan"]
    quick = read.read(ROOT / "recipes" / "quickstart.toml").plan
    each_s = DuetPlan.model_validate({}).pair
    return {
        LONG: (int(LONG_S / (each_s + START_S)), each_s),
        "compare": (PAIRS, each_s),
        "init": (made["repeat"], units.duration_s(made["duet"]["pair"])),
        "quickstart": (quick.repeat or PAIRS, quick.duet.pair),
    }


def spawn(host: Host, folder: str, name: str, core: int, argv: list[str]) -> None:
    host.ask(
        "spawn", name=name, argv=argv, cores=[core], folder=folder, cwd=folder,
        stdout=f"{folder}/{name}.out", stderr=f"{folder}/{name}.err",
    )  # fmt: skip


def wait_for(port: int) -> None:
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.02)


def pair(
    host: Host, works: tuple[int, int], seconds: float, seed: int, longer_s: float
) -> dict[str, object]:
    """One pair of fresh servers: the log ratios of the second over the first."""
    names: list[str] = []
    try:
        return turns(host, works, seconds, seed, longer_s, names)
    finally:
        host.ask("stop", names=names, grace_s=0)
        host.ask("forget", names=names)


def turns(
    host: Host, works: tuple[int, int], seconds: float, seed: int, longer_s: float,
    names: list[str],
) -> dict[str, object]:  # fmt: skip
    """The turns of a pair; `names` are those of the programs that it has started."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        controls = []
        for side, work in enumerate(works):
            port = PORT + side
            command = [sys.executable, str(SERVER), "--port", str(port), "--work", str(work)]
            spawn(host, folder, f"server-{side}", 0, command)
            names.append(f"server-{side}")
        for side in (0, 1):
            wait_for(PORT + side)
            controls.append(f"{folder}/control-{side}")
            url = f"http://127.0.0.1:{PORT + side}/"
            options = ["-t1", f"-c{CONNECTIONS}", "-d1h", "--pin", "1", "--timeout", "30s"]
            command = [str(LOAD), *options, "--control", controls[-1], url]
            spawn(host, folder, f"load-{side}", 1, command)
            names.append(f"load-{side}")
        time.sleep(WARM_S)
        told = host.ask(
            "duet", seconds + 60, slice_s=0.025, skip_s=0.005, drain_s=0.2, length_s=seconds,
            enough=enough(seconds, longer_s), seed=seed, cores=[0, 1], core=1,
            controls=[[path] for path in controls],
            sides=[{"servers": [f"server-{s}"], "loads": [f"load-{s}"]} for s in (0, 1)],
        )  # fmt: skip
    found = of_slices([Slice(*row) for row in told["slices"]], BLOCK_S, True)
    ratios = {name: found.ratios[name].log for name in METRICS if name in found.ratios}
    return {"how": told["how"], "realtime": told["realtime"], "groups": found.groups,
            "left_out": found.left_out, "problem": found.problem, "ratios": ratios,
            "seconds": told["seconds"], "longer_s": told["longer_s"],
            "load": os.getloadavg()[0]}  # fmt: skip


def compared(
    host: Host, percent: float, pairs: int, seconds: float, time_budget: TimeBudget
) -> list[dict[str, object]]:
    """The pairs of one comparison. The ports change places at random, whatever they may matter."""
    chance, found = random.Random(), []
    works = (BLOCKS, round(BLOCKS * (1 + percent / 100)))
    for _ in range(pairs):
        is_swapped = chance.random() < 0.5
        sides = works[::-1] if is_swapped else works
        one = pair(host, sides, seconds, chance.getrandbits(31), time_budget.longer_left_s)
        time_budget.went_on(one["longer_s"])
        time_budget.finished()
        if is_swapped:
            one["ratios"] = {name: -log for name, log in one["ratios"].items()}
        found.append(one)
    return found


def measure(
    percents: list[float], size: str, for_s: float, nice: int | None, file: Path, is_alone: bool
) -> None:
    """Comparisons, or pairs alone, for as long as another one fits; each is in the file when it is
    finished."""
    if not LOAD.exists():
        raise InputError("the load generator is not built (./wirespeed build load)")
    pairs, seconds = sizes()[size]
    pairs, size = (1, ALONE) if is_alone else (pairs, size)
    plain = {"size": size, "pairs_of": pairs, "seconds": seconds, "rival": nice,
             "machine": own_identity()}  # fmt: skip
    session = uuid.uuid4().hex[:8]
    host = Host(Transport("here", python=sys.executable), {"mark": f"{os.getpid()}-duets"})
    host.greet()
    host.prefer(-20)
    host.ask("hold_idle")
    other = None if nice is None else rival(nice)
    file.parent.mkdir(parents=True, exist_ok=True)
    end, longest, failures = time.monotonic() + for_s, pairs * (seconds + START_S), 0
    # The session stands for a run, whose pairs together go on for a share of its time.
    time_budget = TimeBudget(for_s, for_s, max(1, int(for_s / (seconds + START_S))))
    longest *= 1 + LONGER_SHARE
    what = "pair" if is_alone else "comparison"
    print(f"a {what} takes about {longest:.0f} s: {for_s / longest:.0f} in all", flush=True)
    try:
        while time.monotonic() + longest <= end:
            percent = least_tried(percents, plain, rows_of([file]))
            began = time.monotonic()
            try:
                found = compared(host, percent, pairs, seconds, time_budget)
                failures = 0
            except (OSError, WirespeedError) as error:
                failures += 1
                print(f"a {what} failed: {error}", file=sys.stderr, flush=True)
                if failures == FAILURES_MAX:
                    raise
                continue
            row = {**plain, "session": session, "percent": percent, "t": time.time(),
                   "pairs": found}  # fmt: skip
            with open(file, "a", encoding="utf-8") as out:
                out.write(json.dumps(row) + "\n")
            longest = max(longest, time.monotonic() - began)
    except KeyboardInterrupt:
        print(f"stopped; each {what} that is finished is kept", file=sys.stderr)
    finally:
        host.close()
        if other:
            other.kill()
            other.wait()


def measuring_s(for_s: float, shares: int) -> float:
    """What is left of a session's time for its pairs: the estimate is made in it, too."""
    return for_s - min(for_s / 2, ESTIMATE_S * shares)


def least_tried(percents: list[float], plain: dict, rows: list[dict]) -> float:
    """The planted share with the fewest comparisons of this kind, of earlier sessions too."""
    tried = Counter(row["percent"] for row in rows if plain.items() <= row.items())
    return min(percents, key=lambda percent: tried[percent])


def rival(nice: int) -> subprocess.Popen[bytes]:
    """A program that works in bursts on the servers' core, as a neighbour does."""
    return subprocess.Popen([sys.executable, __file__, "burst", str(nice)])


def burst(nice: int) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    os.sched_setaffinity(0, [0])
    os.setpriority(os.PRIO_PROCESS, 0, nice)
    chance = random.Random()
    while True:
        end = time.monotonic() + chance.uniform(*BURSTS_S)
        while time.monotonic() < end:
            pass
        time.sleep(chance.uniform(*BURSTS_S))


# -- what was measured ------------------------------------------------------------------------


def judged(row: dict, metric: str) -> tuple[str, comparison.Comparison | None]:
    """The verdict that a run of this comparison alone would print."""
    logs = [one["ratios"][metric] for one in row["pairs"] if metric in one["ratios"]]
    verdict, found = power.judge(logs, METRICS[metric])
    return verdict.word, found


def rows_of(files: list[Path]) -> list[dict]:
    """All comparisons once, also where one file was added to another; a line that a power loss or a
    full disk cut off is none."""
    found = {}
    for line in (line for file in files if file.exists() for line in file.open(encoding="utf-8")):
        try:
            row = json.loads(line)
        except ValueError:
            continue
        found[row["session"], row["t"]] = row
    return list(found.values())


def report(rows: list[dict]) -> list[str]:
    """The table, apart for each machine, size and rival: what differs does not add up."""
    groups: dict[tuple, list[dict]] = defaultdict(list)
    for row in rows:
        if row["size"] != ALONE:
            where, rival_of = place_of(row)
            size = f"{row['size']}: {row['pairs_of']} pairs of {row['seconds']:g} s"
            groups[where, size, rival_of].append(row)
    lines = []
    for names, group in sorted(groups.items()):
        sessions = {row["session"] for row in group}
        counts = f"{len(group)} comparisons in {len(sessions)} sessions"
        lines += ["", f"## {'; '.join(names)}: {counts}"]
        lines += ["", "| planted | metric | comparisons | verdicts | share | 95 % bounds | p ≤ 2 % "
                  "| median | ± | by session |", "| ---: | --- | ---: | --- | ---: | --- | ---: | "
                  "---: | ---: | --- |"]  # fmt: skip
        notes = []
        for percent in sorted({row["percent"] for row in group}):
            same = [row for row in group if row["percent"] == percent]
            for metric in METRICS:
                lines.append(_line(same, percent, metric))
                notes += _open(same, percent, metric)
        lines += ["", *notes] if notes else []
        lines += ["", *shares(group)]
    return lines


def place_of(row: dict) -> tuple[str, str]:
    """The machine, and what else it did."""
    machine = row["machine"]
    where = f"{machine['cpu_model']}, {machine['cores']} cores, {machine['kernel']}"
    return where, "quiet" if row["rival"] is None else f"rival at nice {row['rival']}"


def estimated(
    rows: list[dict], size: str, draws: power.Draws = power.DRAWS,
    threshold: float = comparison.THRESHOLD,
) -> list[str]:  # fmt: skip
    """What a comparison of a size would find, from recorded pairs of its length, of any size."""
    pairs, seconds = sizes()[size]
    groups: dict[tuple, list[dict]] = defaultdict(list)
    for row in rows:
        if row["seconds"] == seconds:
            groups[place_of(row)].append(row)
    lines = []
    for names, group in sorted(groups.items()):
        lines += ["", f"## {'; '.join(names)}: a comparison of {pairs} pairs of {seconds:g} s", ""]
        group.sort(key=lambda row: row["t"])
        in_order: dict[str, list[tuple[float, power.Pair]]] = defaultdict(list)
        for row in group:
            in_order[row["session"]] += [(row["percent"], one["ratios"]) for one in row["pairs"]]
        for percent in sorted({row["percent"] for row in group}):
            same = [[pair for own, pair in session if own == percent]
                    for session in in_order.values()]  # fmt: skip
            sessions = list(filter(None, same))
            lines += power.told(sessions, percent, pairs, METRICS, RATE, draws, threshold)
        lines += power.successive(list(in_order.values()), RATE)
    return lines


def shares(rows: list[dict]) -> list[str]:
    """Of each planted share how many comparisons found it, in either metric: what a user sees."""
    lines = []
    for percent in sorted({row["percent"] for row in rows}):
        same = [row for row in rows if row["percent"] == percent]
        hits = sum(
            any(power.is_hit(judged(row, metric)[0], percent) for metric in METRICS) for row in same
        )
        low, high = bounds.wilson(hits, len(same))
        what = "found" if percent else "called different"
        sessions = len({row["session"] for row in same})
        lines.append(
            f"planted {percent:g} %: {what} in {hits} of {len(same)} comparisons "
            f"({hits / len(same):.0%}; 95 % by Wilson: {low:.0%} … {high:.0%}), in {sessions} "
            f"session{'s' * (sessions > 1)}"
        )
    return lines


def _line(rows: list[dict], percent: float, metric: str) -> str:
    every = [(row["session"], *judged(row, metric)) for row in rows]
    found = [one for _, _, one in every if one is not None]
    hits = sum(power.is_hit(word, percent) for _, word, _ in every)
    wrong = sum(word == "gain" for _, word, _ in every) if percent else 0
    low, high = bounds.interval(hits, len(every))
    sure = sum(one.p <= comparison.P_MAX for one in found)
    halves = [
        (math.log1p(one.high) - math.log1p(one.low)) / 2
        for one in found
        if one.low is not None and one.high is not None
    ]
    by_session: dict[str, list[bool]] = defaultdict(list)
    for session, word, _ in every:
        by_session[session].append(power.is_hit(word, percent))
    sessions = ", ".join(f"{sum(one)}/{len(one)}" for one in by_session.values())
    what = "found" if percent else "false"
    text = f"{hits} {what}" + (f", {wrong} called faster" if wrong else "")
    middle = f"{median(one.gain for one in found):+.2%}" if found else "–"
    half = f"{median(halves):.2%}" if halves else "–"
    return (
        f"| {percent:g} % | {metric} | {len(every)} | {text} | {hits / len(every):.1%} | "
        f"{low:.1%} … {high:.1%} | {sure} | {middle} | {half} | {sessions} |"
    )


def _open(rows: list[dict], percent: float, metric: str) -> list[str]:
    """Of a server with itself: what is missing for a bound at the promise."""
    if percent:
        return []
    hits = sum(power.is_hit(judged(row, metric)[0], 0.0) for row in rows)
    more = bounds.more_for_at_most(hits, len(rows), FALSE_MAX)
    if more == 0:
        return [f"{metric}: at most {FALSE_MAX:.0%} false is shown."]
    need = f"{more:,} more comparisons without a false one" if more else "far more comparisons"
    return [f"{metric}: at most {FALSE_MAX:.0%} false is not shown yet; it takes {need}."]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    kinds = parser.add_subparsers(dest="kind", required=True)
    for kind in ("aa", "planted", "pairs"):
        one = kinds.add_parser(kind)
        if kind != "aa":
            one.add_argument("percents", help="1,2,3,5,10")
        one.add_argument("--for", dest="for_", default="20m", help="time of this session (20m)")
        size = LONG if kind == "pairs" else "compare"
        one.add_argument("--size", choices=sorted(sizes()), default=size)
        one.add_argument("--rival", type=int, metavar="NICE", help="disturb the servers' core")
        one.add_argument("--into", type=Path, default=FILE, help=f"({FILE.relative_to(ROOT)})")
    kinds.add_parser("report").add_argument("files", type=Path, nargs="*", default=[FILE])
    one = kinds.add_parser("power")
    one.add_argument("--size", choices=sorted(sizes()), default=LONG)
    one.add_argument("--threshold", type=threshold_share, default=comparison.THRESHOLD,
                     help="smallest loss that counts (2%%), as in plan.threshold")
    one.add_argument("files", type=Path, nargs="*", default=[FILE])
    kinds.add_parser("burst").add_argument("nice", type=int)
    given = parser.parse_args()
    if given.kind == "burst":
        burst(given.nice)
    if given.kind in ("aa", "planted", "pairs"):
        words = ["0"] if given.kind == "aa" else given.percents.split(",")
        percents, for_s = [float(word) for word in words], units.duration_s(given.for_)
        is_alone = given.kind == "pairs"
        if is_alone:
            for_s = measuring_s(for_s, len(percents))
        measure(percents, given.size, for_s, given.rival, given.into, is_alone)
        given.files = [given.into]
    rows = rows_of(given.files)
    is_estimate = given.kind in ("pairs", "power")
    threshold = getattr(given, "threshold", comparison.THRESHOLD)
    lines = estimated(rows, given.size, threshold=threshold) if is_estimate else report(rows)
    print("\n".join(lines) or "nothing of this kind is finished yet")


if __name__ == "__main__":
    try:
        main()
    except WirespeedError as error:
        sys.exit(f"duets.py: {error}")
