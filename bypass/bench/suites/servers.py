"""redis's and memcached's own tests, from Debian's sources, against Debian's servers.

Harness, clients and servers are all accelerated. memcached's tests prefer Unix sockets; the wrapper
here hides that the server can do those, so that they use TCP, and drops an option that Debian's lacks.
"""

import re
import shutil
import subprocess

import parts
import sources

REDIS = ("redis-server", "redis-cli", "redis-benchmark", "redis-check-aof", "redis-check-rdb")
# Minutes of work on data structures, and what wants more memory than a small machine has.
REDIS_LEFT_OUT = ("integration/corrupt-dump-fuzzer", "unit/moduleapi", "unit/printver", "unit/tls",
                  "unit/violations")
REDIS_LINE = re.compile(r"^\[(ok|err|exception|skip|ignore|timeout)\]: (.*?)(?: \(\d+ ms\))?$")
# psync2 draws who replicates from whom, and counts what it wrote.
RANDOM_NUMBER = re.compile(r"(?<=#)\d+|(?<=\(x = )\d+")
TAP_LINE = re.compile(r"^(not ok|ok) (\d+)(.*)$")


def redis(runner):
    """redis's tests in Tcl: commands, networking, replication, failover, shutdown."""
    folder = sources.debian(runner, "redis")
    for name in REDIS:
        sources.link(shutil.which(name), folder / "src" / name)
    tests = folder / "tests"
    units = [str(path.relative_to(tests).with_suffix("")) for place in ("unit", "unit/type", "unit/cluster",
                                                                        "integration")
             for path in sorted((tests / place).glob("*.tcl"))]
    return parts.compare(runner, "redis 7.0.15, its own tests", [
        parts.Part(unit, ["tclsh", "tests/test_helper.tcl", "--single", unit, "--clients", "1",
                          "--timeout", "200", "--baseport", "21111", "--portcount", "2000"],
                   folder, _read_redis, seconds_max=240)
        for unit in units if not unit.startswith(REDIS_LEFT_OUT)])


def _read_redis(text, code):
    outcomes = {}
    for line in text.splitlines():
        found = REDIS_LINE.match(re.sub(r"\x1b\[[0-9;]*m", "", line))
        if not found:
            continue
        kind, name = found.groups()
        name = re.sub(r" in tests/.*$| \d\d+$", "", name)
        name = RANDOM_NUMBER.sub("N", name)
        if outcomes.get(name) != "failed":
            outcomes[name] = {"ok": "passed", "skip": "skipped", "ignore": "skipped"}.get(kind, "failed")
    outcomes["(the whole unit)"] = "passed" if code == 0 else "failed"
    return outcomes


def memcached(runner):
    """memcached's tests in Perl, over TCP."""
    folder = sources.debian(runner, "memcached")
    wrapper = folder / "memcached-debug"
    wrapper.write_text('#!/bin/sh\n[ "$*" = -h ] && { memcached -h | grep -v unix-socket; exit; }\n'
                       'exec memcached $(echo "$*" | sed "s/-o relaxed_privileges//")\n')
    wrapper.chmod(0o755)
    if not (folder / "timedrun").exists():
        subprocess.run(["cc", "-o", "timedrun", "timedrun.c"], cwd=folder, check=True)
    return parts.compare(runner, "memcached 1.6.18, its own tests", [
        parts.Part(path.stem, ["perl", "-It/lib", f"t/{path.name}"], folder, _read_tap)
        for path in sorted((folder / "t").glob("*.t"))])


def _read_tap(text, code):
    outcomes = {}
    for line in text.splitlines():
        found = TAP_LINE.match(line)
        if found:
            word, number, rest = found.groups()
            outcomes[number] = ("skipped" if "# skip" in rest.lower() else
                                "passed" if word == "ok" else "failed")
    outcomes["(the whole file)"] = "passed" if code == 0 else "failed"
    return outcomes
