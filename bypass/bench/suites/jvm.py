"""Java's sockets, channels and virtual threads: programs of java/, on each Java that is installed."""

import re
import subprocess
from pathlib import Path

import parts

HERE = Path(__file__).resolve().parent
LINE = re.compile(r"^(not ok|ok) (.*?)(?: - .*)?$")
# Program → the first version of Java that runs it.
PROGRAMS = {"Channels": 17, "VirtualThreads": 21}


def compare(runner):
    """One row: each program on each Java."""
    found = []
    for home in sorted({path.resolve() for path in Path("/usr/lib/jvm").glob("*")
                        if (path / "bin" / "javac").exists()}):
        version = _version(home)
        found += [_part(runner, home, version, name) for name, first in PROGRAMS.items() if version >= first]
    if not found:
        raise SystemExit("suites: no JDK of version 17 or later in /usr/lib/jvm")
    return parts.compare(runner, "Java's channels and virtual threads", found)


def _version(home):
    text = (home / "release").read_text() if (home / "release").exists() else ""
    number = re.search(r'JAVA_VERSION="(\d+)', text)
    return int(number.group(1)) if number else 0


def _part(runner, home, version, name):
    classes = runner.work / f"java-{version}"
    subprocess.run([home / "bin" / "javac", "-d", classes, "-sourcepath", HERE / "java",
                    HERE / "java" / f"{name}.java"], check=True)
    return parts.Part(f"{name} on Java {version}", [home / "bin" / "java", "-cp", classes, name],
                      runner.work, _read, seconds_max=400)


def _read(text, code):
    found = filter(None, map(LINE.match, text.splitlines()))
    outcomes = {name: "passed" if word == "ok" else "failed"
                for word, name in (each.groups() for each in found)}
    outcomes["(the whole program)"] = "passed" if code == 0 else "failed"
    return outcomes
