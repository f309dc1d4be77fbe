#!/usr/bin/env python3
"""packetdrill's suites against the TCP engine: how many scripts pass, and which ones fail.

    bypass/bench/packetdrill.py PACKETDRILL SUITE=FOLDER... [--library FILE] [--against FILE] [--show]

Suites: `packetdrill` (its own repository, gtests/net), `selftests` (Linux's, tools/testing/selftests/net/packetdrill)
and `freebsd` (freebsd-net/tcp-testsuite). PACKETDRILL is the program, with what docs/internals/limits/bypass-tcp.md says was
changed in it. `--library` is the release build of bypass-packetdrill unless given, `--against` an older build: then
only what passes with one and fails with the other is listed. `--show` prints what failing scripts say. Scripts that do
not apply, and how the others are adapted, are in the tables below. Runs are in virtual time: the same in each run,
and in seconds. Standard library only.
"""

import argparse
import math
import re
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = ROOT / "target/release/libbypass_packetdrill.so"
LIMIT_S = 60

# Of both of Linux's suites: what a script's shell commands do between its steps, or a qdisc.
OF_THE_KERNEL = [
    ("tc between steps", r"rack-reo-timeout-retrans|user-timeout-probe"), ("pacing", r"slow-start-fq"),
    ("sendfile", r"sendfile"),
]
# Why scripts are not run: a pattern in the path within the suite, or (with `text`) in the script.
EXCLUDED = {
    "packetdrill": [
        ("Fast Open", r"fastopen"), ("zero copy", r"zerocopy"), ("packet timestamps", r"timestamping"),
        ("GRO", r"tcp/gro/"), ("path MTU probing", r"mtu_probe"), ("PSP", r"^psp/"),
        ("packetdrill's tests of itself", r"^packetdrill/tests/"), *OF_THE_KERNEL,
    ],
    "selftests": [
        ("Accurate ECN", r"accecn"), ("Fast Open", r"fastopen"), ("zero copy", r"zerocopy"),
        ("packet timestamps", r"timestamping"), *OF_THE_KERNEL,
        ("windows counted in kernel memory", r"rcv_wnd_shrink|ooo_rcv_mss"),
        ("sizes that Linux's cookies keep", r"syncookies_ip4_9k"),
    ],
    "freebsd": [
        ("resets and SYNs as before RFC 5961", r"insecure"), ("Fast Open", r"^fast-open/"),
        ("TCP over UDP", r"tcp-over-udp"),
    ],
}
# The same by what a script says.
EXCLUDED_TEXT = [
    ("TCP over UDP", r"udp_encapsulation"),
    ("options or syntax of FreeBSD", r"TCP_NOOPT|TCP_KEEPINIT|tcp_md5_secret|\(0\)!|ttl_exceeded_in_transit"),
    ("Fast Open", r"TCP_FASTOPEN, \[1\]"),
]

# FreeBSD's SYN options in Linux's order.
ORDER = [
    (r"<(mss \d+),nop,wscale \d+,sackOK,TS val\s+(\d+) ecr\s+(\d+)>", r"<\1,sackOK,TS val \2 ecr \3,nop,wscale 8>"),
    (r"<(mss \d+),nop,wscale \d+,nop,nop,TS val\s+(\d+) ecr\s+(\d+)>", r"<\1,nop,nop,TS val \2 ecr \3,nop,wscale 8>"),
    (r"<(mss \d+),sackOK,eol,eol>", r"<\1,nop,nop,sackOK>"),
]
# Where FreeBSD's receive window of 45 or 46 segments ends, and where ours does.
EDGES = {"65700": "65535", "66240": "65535", "65701": "65536", "66241": "65536"}
# FreeBSD's names of states, which packetdrill for Linux does not define.
STATES = ("ESTABLISHED", "SYN_SENT", "SYN_RECEIVED", "FIN_WAIT_1", "FIN_WAIT_2", "TIME_WAIT", "CLOSED", "CLOSE_WAIT",
          "LAST_ACK", "LISTEN", "CLOSING")
# sysctls of Linux's scripts and the flags of the library that set the same.
SETTINGS = {
    "tcp_timestamps": "timestamps", "tcp_sack": "sack", "tcp_window_scaling": "window_scaling", "tcp_ecn": "ecn",
    "tcp_min_tso_segs": "train_segments", "tcp_notsent_lowat": "unsent_low",
    "tcp_slow_start_after_idle": "slow_start_after_idle", "tcp_invalid_ratelimit": "invalid_pause_ms",
}
FREEBSD_SETTINGS = {"sack.enable": ["sack"], "ecn.enable": ["ecn"], "rfc1323": ["timestamps", "window_scaling"]}
V4 = ["--ip_version=ipv4", "--local_ip=192.168.0.1", "--gateway_ip=192.168.0.1", "--netmask_ip=255.255.0.0",
      "--remote_ip=192.0.2.1", "-D", "CMSG_LEVEL_IP=SOL_IP", "-D", "CMSG_TYPE_RECVERR=IP_RECVERR", "-D",
      "CODE=host_unreachable"]
V6 = ["--ip_version=ipv6", "--local_ip=fd3d:0a0b:17d6::1", "--gateway_ip=fd3d:0a0b:17d6:8888::1",
      "--remote_ip=fd3d:fa7b:d17d::1", "-D", "CMSG_LEVEL_IP=SOL_IPV6", "-D", "CMSG_TYPE_RECVERR=IPV6_RECVERR"]
COMMAND = re.compile(r"`[^`]*`", re.S)


class Run(NamedTuple):
    """One script over one version of IP."""

    name: str
    text: str
    options: list[str]
    flags: list[str]
    # The script as it is, for Linux, where its own commands make its settings.
    original: Path | None = None


def settings_of(script: str) -> list[str]:
    """Flags for what a script sets by commands before its first event."""
    commands = " ".join(re.findall(r"(?m)^`[^`]*`", script))
    flags = []
    for name, value in re.findall(r"(tcp_\w+)=(\"[^\"]*\"|\S+)", commands):
        numbers = value.strip('"`').split()
        if name in SETTINGS:
            flags.append(f"{SETTINGS[name]}={numbers[0]}")
        elif name == "tcp_wmem":
            flags.append(f"send_bytes={numbers[1]}")
        elif name == "tcp_rmem":
            most = math.prod(int(factor) for factor in re.findall(r"\d+", numbers[2]))
            flags += [f"receive_bytes={int(numbers[1]) // 2}", f"receive_bytes_max={most}"]
    if re.search(r"ethtool -K tun0 .*(tso off|gso off)", commands):
        flags.append("cut=1")
    return flags


def mtu_of(script: str) -> list[str]:
    return [f"mtu={mtu}" for mtu in re.findall(r"(?m)^(?:--mtu=|ip link set dev tun0 mtu )(\d+)", script)]


def linux_runs(name: str, script: str, both: bool) -> list[Run]:
    flags = settings_of(script) + mtu_of(script)
    text = COMMAND.sub("`true`", script)
    version = re.search(r"(?m)^--ip_version=(\S+)", script)
    kinds = [version.group(1)] if version else ["ipv4", "ipv6"]
    runs = []
    if "ipv4" in kinds and not (both and name.endswith("v6.pkt")):
        runs.append(Run(name, text, V4, ["local=192.168.0.1", *flags]))
    if "ipv6" in kinds and not (both and name.endswith("v4.pkt")):
        flags = ["local=fd3d:a0b:17d6::1", "mtu=1520", *flags]
        runs.append(Run(name, text, ["--mtu=1520", *V6], flags))
    return runs


def state_number(found: re.Match[str]) -> str:
    name = found.group(1)
    return str(STATES.index(name) + 1) if name in STATES else found.group(0)


def freebsd_line(line: str, sent_fin: bool) -> str:
    line = COMMAND.sub("`true`", line)
    line = re.sub(r"\bTCPI_([A-Z_12]+)\b", state_number, line)
    if "SO_RCVBUF" in line and "getsockopt" in line:
        return re.sub(r"getsockopt.*", "`true`", line)
    if re.match(r"\s*[+\d.*~]*\s*<", line):
        return re.sub(r"\b(\d{5})\b", lambda found: EDGES.get(found.group(1), found.group(1)), line)
    if re.match(r"\s*[+\d.*~]*\s*>", line):
        for pattern, instead in ORDER:
            line = re.sub(pattern, instead, line)
        line = re.sub(r"\bwin\s+\d+", "", line)
        if sent_fin:
            line = re.sub(r">( \S+)? F\.(\s+)1:1\(0\)(\s+)ack 2", r">\1 .\g<2>2:2(0)\3ack 2", line)
    return line


def freebsd_runs(name: str, script: str) -> list[Run]:
    lines, sent_fin = [], False
    script = re.sub(r"(?ms)^#ifdef FreeBSD$.*?^#endif$|^#(ifdef STANDARD|endif)$", "", script)
    for line in script.splitlines():
        lines.append(freebsd_line(line, sent_fin))
        if re.search(r">\s*F\.\s+1:1\(0\)\s+ack 1\b", line):
            sent_fin = True
        elif "<" in line and sent_fin and not re.search(r"<\s*F\.\s+1:1\(0\)\s+ack 1\b", line):
            sent_fin = False
    version = re.search(r"(?m)^--ip_version=(\S+)", script)
    is_v6 = version is not None and version.group(1) == "ipv6"
    options = V6 if is_v6 else V4
    local = "local=fd3d:a0b:17d6::1" if is_v6 else "local=192.168.0.1"
    flags = [local, "quick_acks=0", "invalid_pause_ms=0", "ecn=2", *mtu_of(script)]
    settings = re.split(r"(?m)^[^/]*\bsocket\(", script)[0]
    for sysctl, names in FREEBSD_SETTINGS.items():
        if values := re.findall(rf"net\.inet\.tcp\.{re.escape(sysctl)}=(\d+)", settings):
            flags += [f"{name}={values[-1]}" for name in names]
    return [Run(name, "\n".join(lines) + "\n", options, flags)]


def why_excluded(suite: str, name: str, script: str) -> str | None:
    by_name = [why for why, pattern in EXCLUDED[suite] if re.search(pattern, name)]
    by_text = [why for why, pattern in EXCLUDED_TEXT if re.search(pattern, script)]
    return next(iter(by_name + by_text), None)


def runs_of(suite: str, folder: Path) -> tuple[list[Run], Counter[str]]:
    runs, excluded = [], Counter[str]()
    for path in sorted(folder.rglob("*.pkt")):
        name, script = str(path.relative_to(folder)), path.read_text(errors="replace")
        if why := why_excluded(suite, name, script):
            excluded[why] += 1
        elif suite == "freebsd":
            runs += freebsd_runs(name, script)
        else:
            runs += linux_runs(name, script, both=suite == "packetdrill")
    return runs, excluded


def play(run: Run, program: Path, library: Path, folder: Path) -> str:
    """The complaint of a script: empty when it passes."""
    path = folder / (re.sub(r"\W", "_", f"{run.name}{run.options[0]}") + ".pkt")
    path.write_text(run.text)
    command = [str(program), f"--so_filename={library}", f"--so_flags={','.join(run.flags)}", *run.options,
               path.name]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return "it hangs"
    return "" if done.returncode == 0 else (done.stderr or done.stdout or f"exit code {done.returncode}").strip()


def results(runs: list[Run], program: Path, library: Path) -> dict[str, str]:
    """The complaint of each script, over every version of IP that it runs over."""
    with tempfile.TemporaryDirectory(prefix="bypass-packetdrill-") as folder, ThreadPoolExecutor(2) as pool:
        said = list(pool.map(lambda run: play(run, program, library, Path(folder)), runs))
    complaints: dict[str, str] = {}
    for run, complaint in zip(runs, said, strict=True):
        complaints[run.name] = complaints.get(run.name, "") or complaint
    return complaints


def report(suite: str, folder: Path, arguments: argparse.Namespace) -> None:
    runs, excluded = runs_of(suite, folder)
    now = results(runs, arguments.program, arguments.library)
    failed = {name: said for name, said in now.items() if said}
    reasons = ", ".join(f"{why} {count}" for why, count in excluded.items())
    print(f"{suite}: {len(now)} run, {len(now) - len(failed)} pass, {len(failed)} fail; "
          f"{excluded.total()} excluded: {reasons}")
    listed = failed
    if arguments.against:
        before = results(runs, arguments.program, arguments.against)
        listed = {name: said or "passes now" for name, said in now.items() if bool(said) != bool(before[name])}
    for name, said in listed.items():
        print(f"  {name}" + (f": {said}" if arguments.show else ""))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=Path)
    parser.add_argument("suites", nargs="+", metavar="SUITE=FOLDER")
    parser.add_argument("--library", type=Path, default=LIBRARY)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--show", action="store_true")
    arguments = parser.parse_args()
    for text in arguments.suites:
        suite, _, folder = text.partition("=")
        if suite not in EXCLUDED or not Path(folder).is_dir():
            parser.error(f"{text}: no suite and folder (SUITE is one of {', '.join(EXCLUDED)})")
        report(suite, Path(folder), arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
