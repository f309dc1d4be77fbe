#!/usr/bin/env python3
"""packetdrill's suites against the TCP engine: how many scripts pass, and which ones fail.

    bypass/bench/packetdrill.py PACKETDRILL SUITE=FOLDER... [--library FILE] [--against FILE] [--kernel] [--show]

Suites: `packetdrill` (its own repository, gtests/net), `selftests` (Linux's, tools/testing/selftests/net/packetdrill)
and `freebsd` (freebsd-net/tcp-testsuite). PACKETDRILL is the program, with what docs/internals/limits/bypass-tcp.md says was
changed in it. `--library` is the release build of bypass-packetdrill unless given, `--against` an older build: then
only what passes with one and fails with the other is listed. `--show` prints what failing scripts say. Scripts that are
not run, and how the others are adapted, are in the tables below. Runs are in virtual time: the same in each run,
and in seconds.

packetdrill.txt, next to this program, says of each failing script why, and whether it applies: whether Linux's TCP or an
RFC does what it expects. The exit code is 1 when a script fails that is not there, or one passes that is. `--kernel`
(as root) plays the failing scripts on this machine's kernel too, each in a network namespace of its own, in real time:
a script that does not apply must fail there, else the exit code is 1. Standard library only.
"""

import argparse
import math
import re
import shlex
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = ROOT / "target/release/libbypass_packetdrill.so"
REASONS = Path(__file__).with_suffix(".txt")
LIMIT_S = 60
# On the kernel, where a busy machine is late now and then.
TRIES = 3
TOLERANCE_US = 20_000

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
# The flags that a kernel has a sysctl for, and FreeBSD's keepalive sysctls with their unit.
OF_THE_NETWORK = {
    "timestamps": "tcp_timestamps", "window_scaling": "tcp_window_scaling", "sack": "tcp_sack", "ecn": "tcp_ecn",
    "invalid_pause_ms": "tcp_invalid_ratelimit",
}
KEEPALIVE = {"keepidle": ("time", 1_000), "keepintvl": ("intvl", 1_000), "keepcnt": ("probes", 1)}
FREEBSD_SETTINGS = {"sack.enable": ["sack"], "ecn.enable": ["ecn"], "rfc1323": ["timestamps", "window_scaling"]}
V4 = ["--ip_version=ipv4", "--local_ip=192.168.0.1", "--gateway_ip=192.168.0.1", "--netmask_ip=255.255.0.0",
      "--remote_ip=192.0.2.1", "-D", "CMSG_LEVEL_IP=SOL_IP", "-D", "CMSG_TYPE_RECVERR=IP_RECVERR", "-D",
      "CODE=host_unreachable"]
V6 = ["--ip_version=ipv6", "--local_ip=fd3d:0a0b:17d6::1", "--gateway_ip=fd3d:0a0b:17d6:8888::1",
      "--remote_ip=fd3d:fa7b:d17d::1", "-D", "CMSG_LEVEL_IP=SOL_IPV6", "-D", "CMSG_TYPE_RECVERR=IPV6_RECVERR"]
# Each Linux passes it.
HANDSHAKE = """
0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3
+0 bind(3, ..., ...) = 0
+0 listen(3, 1) = 0
+.1 < S 0:0(0) win 65535 <mss 1000>
+0 > S. 0:0(0) ack 1 <...>
+.1 < . 1:1(0) ack 1 win 65535
+0 accept(3, ..., ...) = 4
"""
COMMAND = re.compile(r"`[^`]*`", re.S)


class Run(NamedTuple):
    """One script over one version of IP."""

    name: str
    text: str
    options: list[str]
    flags: list[str]


class Reason(NamedTuple):
    """Why scripts of a suite fail whose names match."""

    suite: str
    names: re.Pattern[str]
    applies: bool
    why: str


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


def keepalive_command(command: str) -> str:
    """A sysctl of FreeBSD's for keepalive as Linux's; any other command as none."""
    found = re.search(r"net\.inet\.tcp\.(keepidle|keepintvl|keepcnt)=(\d+)", command)
    if not found:
        return "`true`"
    name, unit = KEEPALIVE[found.group(1)]
    return f"`sysctl -qw net.ipv4.tcp_keepalive_{name}={int(found.group(2)) // unit}`"


def freebsd_line(line: str, sent_fin: bool, on_kernel: bool) -> str:
    line = COMMAND.sub(lambda found: keepalive_command(found.group(0)) if on_kernel else "`true`", line)
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


def freebsd_runs(name: str, script: str, on_kernel: bool = False) -> list[Run]:
    lines, sent_fin = [], False
    script = re.sub(r"(?ms)^#ifdef FreeBSD$.*?^#endif$|^#(ifdef STANDARD|endif)$", "", script)
    for line in script.splitlines():
        lines.append(freebsd_line(line, sent_fin, on_kernel))
        if on_kernel and (accepted := re.search(r"\baccept\(.*=\s*(\d+)", line)):
            # What quick_acks=0 is for the engine.
            lines.append(f"+0 setsockopt({accepted.group(1)}, SOL_TCP, TCP_QUICKACK, [0], 4) = 0")
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


def play_on_kernel(path: Path, run: Run, program: Path, folder: Path | None) -> bool:
    """Whether this machine's kernel passes a script: one for Linux as it is, with its own commands (`folder` is none),
    one of FreeBSD's adapted as for the engine."""
    settings = ["sysctl -qw net.ipv4.tcp_rmem='4096 131072 15728640'"]
    if folder:
        path = folder / (re.sub(r"\W", "_", f"{run.name}{run.options[0]}") + ".pkt")
        path.write_text(run.text)
        flags = [flag.partition("=") for flag in run.flags]
        settings += [f"sysctl -qw net.ipv4.{OF_THE_NETWORK[name]}={value}" for name, _, value in flags
                     if name in OF_THE_NETWORK]
    command = [str(program.resolve()), f"--tolerance_usecs={TOLERANCE_US}", *run.options, path.name]
    shell = f"{'; '.join(settings)}; exec {shlex.join(command)}"
    for _ in range(TRIES):
        try:
            done = subprocess.run(["unshare", "-n", "sh", "-c", shell], cwd=path.parent, capture_output=True,
                                  timeout=LIMIT_S, check=False)
        except subprocess.TimeoutExpired:
            return False
        if done.returncode == 0:
            return True
    return False


def can_play_on_kernel(program: Path) -> bool:
    """Whether scripts fail there only for what they say: not without root, or TUN."""
    with tempfile.TemporaryDirectory(prefix="bypass-packetdrill-") as place:
        return play_on_kernel(Path(place), Run("handshake.pkt", HANDSHAKE, V4, []), program, Path(place))


def passing_on_kernel(suite: str, folder: Path, names: set[str], program: Path) -> set[str]:
    """Which of these scripts this machine's kernel passes, over every version of IP that they run over."""
    passing = set()
    with tempfile.TemporaryDirectory(prefix="bypass-packetdrill-") as place:
        for name in sorted(names):
            path = folder / name
            script = path.read_text(errors="replace")
            if suite == "freebsd":
                runs, adapted = freebsd_runs(name, script, on_kernel=True), Path(place)
            else:
                runs, adapted = linux_runs(name, script, both=suite == "packetdrill"), None
            if all(play_on_kernel(path, run, program, adapted) for run in runs):
                passing.add(name)
    return passing


def reasons() -> list[Reason]:
    """What packetdrill.txt says: a suite, a pattern of names, whether the scripts apply, and why they fail."""
    said = []
    for line in REASONS.read_text().splitlines():
        if line and not line.startswith("#"):
            suite, names, applies, why = line.split(None, 3)
            said.append(Reason(suite, re.compile(names), {"applies": True, "neither": False}[applies], why))
    return said


def reason_of(suite: str, name: str, said: list[Reason]) -> Reason | None:
    return next((reason for reason in said if reason.suite == suite and reason.names.search(name)), None)


def results(runs: list[Run], program: Path, library: Path) -> dict[str, str]:
    """The complaint of each script, over every version of IP that it runs over."""
    with tempfile.TemporaryDirectory(prefix="bypass-packetdrill-") as folder, ThreadPoolExecutor(2) as pool:
        said = list(pool.map(lambda run: play(run, program, library, Path(folder)), runs))
    complaints: dict[str, str] = {}
    for run, complaint in zip(runs, said, strict=True):
        complaints[run.name] = complaints.get(run.name, "") or complaint
    return complaints


def report(suite: str, folder: Path, arguments: argparse.Namespace) -> bool:
    """Prints a suite's counts. Answers whether they are as packetdrill.txt says."""
    runs, excluded = runs_of(suite, folder)
    now = results(runs, arguments.program, arguments.library)
    failed = {name: said for name, said in now.items() if said}
    counts = ", ".join(f"{why} {count}" for why, count in excluded.items())
    print(f"{suite}: {len(now)} run, {len(now) - len(failed)} pass, {len(failed)} fail; "
          f"{excluded.total()} excluded: {counts}")
    if arguments.against:
        before = results(runs, arguments.program, arguments.against)
        listed = {name: said or "passes now" for name, said in now.items() if bool(said) != bool(before[name])}
        for name, said in listed.items():
            print(f"  {name}" + (f": {said}" if arguments.show else ""))
        return True
    return compare(suite, folder, now, arguments)


def compare(suite: str, folder: Path, now: dict[str, str], arguments: argparse.Namespace) -> bool:
    said = reasons()
    why = {name: reason_of(suite, name, said) for name in now}
    failed = {name for name, complaint in now.items() if complaint}
    apply = {name for name in failed if (reason := why[name]) is None or reason.applies}
    passed = len(now) - len(failed)
    print(f"  {passed} of the {passed + len(apply)} that apply: {100 * passed / max(1, passed + len(apply)):.1f} %")
    unknown = {name for name in failed if why[name] is None}
    stale = {name for name in now if why[name] and name not in failed}
    on_kernel = passing_on_kernel(suite, folder, failed, arguments.program) if arguments.kernel else set()
    wrong = on_kernel - apply
    for name in sorted(failed):
        reason = why[name]
        marks = ("applies" if name in apply else "neither") + (", Linux passes" if name in on_kernel else "")
        print(f"  {name} ({marks}): {reason.why if reason else 'not in packetdrill.txt'}")
        if arguments.show:
            print(now[name])
    for name in sorted(stale):
        print(f"  {name}: passes, and is in packetdrill.txt")
    return not (unknown or stale or wrong)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=Path)
    parser.add_argument("suites", nargs="+", metavar="SUITE=FOLDER")
    parser.add_argument("--library", type=Path, default=LIBRARY)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--kernel", action="store_true")
    parser.add_argument("--show", action="store_true")
    arguments = parser.parse_args()
    if arguments.kernel and not can_play_on_kernel(arguments.program):
        parser.error("--kernel: this machine's kernel passes no script, not even a handshake (is this root?)")
    is_as_said = True
    for text in arguments.suites:
        suite, _, folder = text.partition("=")
        if suite not in EXCLUDED or not Path(folder).is_dir():
            parser.error(f"{text}: no suite and folder (SUITE is one of {', '.join(EXCLUDED)})")
        is_as_said &= report(suite, Path(folder), arguments)
    return 0 if is_as_said else 1


if __name__ == "__main__":
    sys.exit(main())
