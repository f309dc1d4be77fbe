"""Runs real programs with real clients, on the kernel and accelerated, and compares every answer.

    sudo python3 programs.py --bypass target/release/bypass [PROGRAM …] [--install] [--markdown FILE]

Each program runs in a network and process namespace of its own, in three ways: on the kernel, with
server and client accelerated, and with the server alone. Traffic through the kernel is read from the
namespace's own TCP counters, what went through shared memory from `bypass stat`. With --packets the
clients are in another network namespace, joined by veth, a fourth run accelerates them alone, and connections
of the server with itself are its host's. Root only; packages
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
from place import Failed, Host, Place, opened

WAYS = ("kernel", "both", "server")
SECONDS_MAX = 150


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help=", ".join(catalogue.ALL))
    parser.add_argument("--bypass", default="target/release/bypass", type=Path)
    parser.add_argument("--profile", default="", help="a profile for the accelerated runs")
    parser.add_argument("--packets", action="store_true",
                        help="clients in a namespace of their own, joined by veth; what is accelerated is so over packets")
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
            parser.error(f"unknown program {name!r} ({', '.join(catalogue.ALL)})")
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
        options.markdown.write_text(markdown(rows, options.packets))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))
    wrong = [row["program"] for row in rows if row["verdict"] == "differs"]
    print(f"{len(rows)} programs, {len(wrong)} differ{': ' if wrong else ''}{', '.join(wrong)}")
    return 1 if wrong else 0


def ways_of(options):
    """The runs of a program. Between hosts an accelerated client is one on its own, too."""
    return (*WAYS, "client") if options.packets else WAYS


def compare(options, name):
    """One row of the table: the runs, and whether they gave the same answers."""
    row = {"program": name, "version": "", "runs": {}}
    languages.prepare(name, options.work)
    ways = ways_of(options)
    for way in ways:
        row["runs"][way] = one_run(options, name, way)
    kernel, *ours = (row["runs"][way] for way in ways)
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
        lone = row["runs"].get("client", {}).get("clients_kernel")
        return (f", {len(kernel['answers'])} answers, {both['shared']} connections carried, "
                f"{both['kernel']} by the kernel ({kernel['kernel']} without bypass)"
                + (f", {lone} of an accelerated client's by the kernel" if lone is not None else ""))
    lines = []
    for way, run in list(row["runs"].items())[1:]:
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
             "--work", options.work, *(["--packets"] if options.packets else []), "--inside", name, way]
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
        host = Host() if options.packets else None
        place = Place(Path(folder), options.work, options.bypass, options.profile, way, host)
        before = opened()
        try:
            started = time.monotonic()
            answers = list(entry.run(place))
            result = {"answers": answers, "seconds": round(time.monotonic() - started, 1),
                      "version": entry.version(), **place.counted(),
                      "kernel": opened() - before, "clients_kernel": host.connected() if host else None}
        except Failed as problem:
            result = {"error": f"{problem}{place.logs()}"}
        place.end()
    print(json.dumps(result))
    return 0


def why(entry, kernel, both):
    """Why connections went to the kernel, or where those are that neither column shows."""
    reasons = [f"{reason} {count}" for reason, count in both.get("reasons", {}).items()]
    if entry.why_kernel:
        reasons.append(entry.why_kernel)
    if kernel.get("kernel") and not both.get("shared") and both.get("kernel") == 0:
        reasons.append("none; their processes have ended")
    return ", ".join(reasons) or "–"


def markdown(rows, packets):
    carried = "over packets" if packets else "by shared memory"
    lines = [f"| program | version | driven by | answers | {carried} | by the kernel | to the kernel, why | verdict |",
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
