"""Runs real programs with real clients, on the kernel and accelerated, and compares every answer.

    sudo python3 programs.py --bypass target/release/bypass [PROGRAM …] [--install] [--markdown FILE]

Each program runs in a network and process namespace of its own, in three ways: on the kernel, with
server and client accelerated, and with the server alone. What went through the kernel is read from the
namespace's own TCP counters, what went through shared memory from `bypass stat`. Root only; packages
are Debian's (--install), PyPI's and crates.io's. Standard library only.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import catalogue
import languages
from place import Failed, Place

WAYS = ("kernel", "both", "server")
SECONDS_MAX = 150


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help=", ".join(catalogue.ALL))
    parser.add_argument("--bypass", default="target/release/bypass", type=Path)
    parser.add_argument("--profile", default="", help="a profile for the accelerated runs")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "bypass-programs")
    parser.add_argument("--install", action="store_true", help="install Debian's packages first")
    parser.add_argument("--markdown", type=Path, help="write the table here")
    parser.add_argument("--json", type=Path, help="write everything here")
    parser.add_argument("--inside", nargs=2, metavar=("PROGRAM", "WAY"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        return inside(options, *options.inside)
    for name in options.programs:
        if name not in catalogue.ALL:
            parser.error(f"there is no program {name!r}; there are {', '.join(catalogue.ALL)}")
    if os.geteuid() != 0:
        parser.error("namespaces and users of their own need root; start it with sudo")
    if not options.bypass.exists():
        parser.error(f"{options.bypass} is not there; build it with ./wirespeed build bypass")
    options.work.mkdir(parents=True, exist_ok=True)
    names = options.programs or list(catalogue.ALL)
    if options.install:
        catalogue.install(names)
    rows = [compare(options, name) for name in names]
    if options.markdown:
        options.markdown.write_text(markdown(rows))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))
    wrong = [row["program"] for row in rows if row["verdict"] == "differs"]
    print(f"{len(rows)} programs, {len(wrong)} differ{': ' if wrong else ''}{', '.join(wrong)}")
    return 1 if wrong else 0


def compare(options, name):
    """One row of the table: the runs, and whether they gave the same answers."""
    row = {"program": name, "version": "", "runs": {}}
    languages.prepare(name, options.work)
    for way in WAYS:
        row["runs"][way] = one_run(options, name, way)
    kernel, *ours = (row["runs"][way] for way in WAYS)
    row["version"] = kernel.get("version", "")
    if "error" in kernel:
        row["verdict"] = "not run"
    elif all("error" not in run and run["answers"] == kernel["answers"] for run in ours):
        row["verdict"] = "same"
    else:
        row["verdict"] = "differs"
    print(f"{name}: {row['verdict']}{explain(row)}", flush=True)
    return row


def explain(row):
    kernel = row["runs"]["kernel"]
    if row["verdict"] == "not run":
        return f": {kernel['error']}"
    if row["verdict"] == "same":
        both = row["runs"]["both"]
        return (f", {len(kernel['answers'])} answers, {both['shared']} connections by shared memory, "
                f"{both['kernel']} by the kernel ({kernel['kernel']} without bypass)")
    lines = []
    for way in WAYS[1:]:
        run = row["runs"][way]
        if "error" in run:
            lines.append(f"\n  {way}: {run['error']}")
        else:
            pairs = zip(kernel["answers"], run["answers"])
            lines += [f"\n  {way}: {a!r} became {b!r}"[:400] for a, b in pairs if a != b]
    return "".join(lines)


def one_run(options, name, way):
    """A run in namespaces of its own, which end with everything in them."""
    words = ["unshare", "--net", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc",
             sys.executable, __file__, "--bypass", options.bypass.resolve(), "--profile", options.profile,
             "--work", options.work, "--inside", name, way]
    process = subprocess.Popen([str(word) for word in words], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        out, err = process.communicate(timeout=SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return {"error": f"hangs: not done after {SECONDS_MAX} s"}
    try:
        return json.loads(out.splitlines()[-1])
    except (IndexError, ValueError):
        return {"error": (err.strip().splitlines() or ["no output"])[-1]}


def inside(options, name, way):
    """Within the namespaces: the whole life of one server."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    entry = catalogue.ALL[name]
    with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=options.work) as folder:
        os.chmod(folder, 0o755)
        place = Place(Path(folder), options.work, options.bypass, options.profile, way)
        before = opened_by_kernel()
        try:
            started = time.monotonic()
            answers = list(entry.run(place))
            result = {"answers": answers, "seconds": round(time.monotonic() - started, 1),
                      "version": entry.version(), **place.counted(),
                      "kernel": opened_by_kernel() - before}
        except Failed as problem:
            result = {"error": f"{problem}{place.logs()}"}
        place.end()
    print(json.dumps(result))
    return 0


def opened_by_kernel():
    """Connections that the kernel's TCP of this namespace has accepted."""
    names, values = (line.split() for line in Path("/proc/net/snmp").read_text().splitlines()
                     if line.startswith("Tcp:"))
    return int(values[names.index("PassiveOpens")])


def why(entry, kernel, both):
    """Why connections went to the kernel, or where those are that neither column shows."""
    reasons = [f"{reason} {count}" for reason, count in both.get("reasons", {}).items()]
    if entry.why_kernel:
        reasons.append(entry.why_kernel)
    if kernel.get("kernel") and not both.get("shared") and both.get("kernel") == 0:
        reasons.append("none; their processes have ended")
    return ", ".join(reasons) or "–"


def markdown(rows):
    lines = ["| program | version | driven by | answers | by shared memory | by the kernel | to the kernel, why | verdict |",
             "|---|---|---|---|---|---|---|---|"]
    for row in rows:
        entry = catalogue.ALL[row["program"]]
        kernel, both = row["runs"]["kernel"], row["runs"]["both"]
        lines.append(f"| {row['program']} | {row['version']} | {entry.driven_by} | "
                     f"{len(kernel.get('answers', []))} | {both.get('shared', '–')} | "
                     f"{both.get('kernel', '–')} of {kernel.get('kernel', '–')} | {why(entry, kernel, both)} | "
                     f"{row['verdict']} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    raise SystemExit(main())
