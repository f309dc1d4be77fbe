"""From nothing to the first valid table of one's own server, by the page: how long does it take?

    python3 packaging/first_table.py                              from a fresh clone, built on first use
    python3 packaging/first_table.py --package wirespeed-V.tar.gz  from the unpacked package

Types the commands of docs/your-server.md as they stand there, one after another, in an empty folder
that holds the server of docs/guides/python.md. Files that compilers and
package managers fetched before stay where they are. Prints the seconds of each command; fails when a cell has no
valid figure, or when all of it took longer than the page promises.
"""

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "your-server.md"
SERVER = ROOT / "docs" / "guides" / "python.md"
PROMISED_S = 300


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--package", type=Path, metavar="TARBALL", help="instead of a clone")
    package = parser.parse_args().package
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        begun = time.monotonic()
        door = timed("unpack", lambda: unpacked(package, folder)) if package else timed(
            "git clone", lambda: cloned(folder))
        mine = folder / "mine"
        mine.mkdir()
        (mine / "app.py").write_text(server(SERVER.read_text()))
        (mine / "wirespeed").symlink_to(door)
        environment = {**os.environ, "WIRESPEED_RUNS": str(folder / "runs")}
        for command in commands(PAGE.read_text()):
            words = shlex.split(command)
            timed(command, lambda words=words: call(words, mine, environment))
        total_s = time.monotonic() - begun
        return judged(report(mine, environment), total_s)


def timed(what, work):
    begun = time.monotonic()
    found = work()
    print(f"{time.monotonic() - begun:6.1f} s  {what}", flush=True)
    return found


def cloned(folder):
    subprocess.run(["git", "clone", "-q", ROOT, folder / "wirespeed"], check=True)
    return folder / "wirespeed" / "wirespeed"


def unpacked(package, folder):
    subprocess.run(["tar", "-xzf", package, "-C", folder], check=True)
    (found,) = folder.glob("wirespeed-*/bin/wirespeed")
    return found


def server(text):
    (found,) = re.findall(r"^`app\.py`:\n\n```python\n(.*?)^```", text, re.M | re.S)
    return found


def commands(text):
    """The commands after the prompts of the page, indented or not."""
    return re.findall(r"^ *\$ (\./wirespeed .*)$", text, re.M)


def call(words, folder, environment):
    done = subprocess.run(words, cwd=folder, env=environment, text=True, stdin=subprocess.DEVNULL,
                          capture_output=True)
    print("\n".join(f"          {line}" for line in done.stdout.splitlines()[:12]), flush=True)
    if done.returncode:
        raise SystemExit(f"{done.stderr}`{shlex.join(words)}` ended with exit code {done.returncode}")


def report(folder, environment):
    done = subprocess.run(["./wirespeed", "report", "latest", "--json"], cwd=folder, env=environment,
                          text=True, capture_output=True, check=True)
    return json.loads(done.stdout)


def judged(result, total_s):
    empty = [cell["axes"] for cell in result["cells"] if not cell["medians"]]
    print(f"{total_s:6.1f} s  in all: {result['valid_trials']} valid trials, {len(empty)} of "
          f"{len(result['cells'])} cells without a figure")
    for axes in empty:
        print(f"without a figure: {axes}")
    if total_s > PROMISED_S:
        print(f"the page promises {PROMISED_S} s")
    return int(bool(empty) or total_s > PROMISED_S)


if __name__ == "__main__":
    sys.exit(main())
