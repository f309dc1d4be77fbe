"""`--profile`: where the servers' CPU time goes, from one more window of each contender.

After the run a cell of each contender is started afresh, warmed up and loaded once more while perf
takes samples of its servers' call stacks. Nothing of these windows is a measurement.
"""

from __future__ import annotations

import re
import shutil
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from wirespeed.analysis import profiles
from wirespeed.analysis.profiles import KERNEL, LIBRARY, Profile
from wirespeed.analysis.summary import load
from wirespeed.driver import stack
from wirespeed.errors import HostError, InputError, LostHostError, ProcessError, StorageError
from wirespeed.fleet.fleet import Fleet
from wirespeed.fleet.host import Host
from wirespeed.process.start import SEARCH_PATH, Started
from wirespeed.results import store
from wirespeed.runner.cells import PlannedCell
from wirespeed.runner.files import scratch_folder
from wirespeed.runner.generate import generate
from wirespeed.runner.plan import Schedule
from wirespeed.runner.server_session import ServerSession
from wirespeed.runner.warm import step_s, timeout_s, warm
from wirespeed.runner.watcher import Watcher

PROGRAM = "perf"
PACKAGE = "linux-perf"
LABEL = "profiler"
WINDOW_S = 3.0
BEGUN, LOOK_S = "sampling", 0.05
SAMPLES_A_SECOND = 499  # no multiple of a timer's rate
STACK_BYTES = 4096  # of each sample: programs are unwound from it, as few have frame pointers
READ_S = 120.0  # to unwind and name what was sampled
DEPTH_MAX = 60
ONLOAD = ("libonload.so", "libcitransport0.so")
FRAME = re.compile(r"\s+[0-9a-f]+ (.+) \((.*)\)$")
# A JVM writes the file below /tmp where perf looks: only where no link of another user leads away.
JVM_NAMES = 'test "$(cat /proc/sys/fs/protected_symlinks)" = 1 && exec jcmd "$0" Compiler.perfmap'
JVM_MAP = "/tmp/perf-{}.map"
JVM_FRAME_POINTERS = "-XX:+PreserveFramePointer"
COMPILED = re.compile(r"perf-\d+\.map")
RUST_HASH = re.compile(r"::h[0-9a-f]{16}$")  # of a build: the same function has another in the next
NOT_OF_KERNEL = ("[vdso]", "[unknown]", "[heap]", "[stack]", "[vsyscall]")


def check(fleet: Fleet, server_host: str) -> None:
    """Raises InputError before minutes are spent on a run that cannot be profiled."""
    host = fleet[server_host]
    try:
        answer = host.ask("run", argv=[PROGRAM, "--version"], env={"PATH": SEARCH_PATH})
    except HostError as error:
        host.check_lost()
        answer = {"code": 127, "err": str(error)}
    if answer["code"] != 0:
        raise InputError(
            f"--profile: {PROGRAM} does not run on {host.name} (install the package {PACKAGE}, or "
            "leave --profile out)"
        )


def take(run_dir: Path, schedule: Schedule, fleet: Fleet, watcher: Watcher) -> None:
    """Profiles a finished run; what goes wrong is said, and costs no result."""
    planned = {cell.cell.id: cell for cell in schedule.cells}
    for cell in profiles.profiled(load(run_dir)):
        places = ", ".join(f"{name} {value}" for name, value in cell.axes.items())
        watcher.notify(f"profiling {places}")
        try:
            sampled = _of_cell(run_dir, schedule, fleet, planned[cell.key])
        except LostHostError:
            raise
        except (HostError, ProcessError, StorageError) as error:
            watcher.notify(f"no profile of {places}: {error}")
            sampled = Profile(cell.key, problem=str(error))
        profiles.write(run_dir, sampled)


def _of_cell(run_dir: Path, schedule: Schedule, fleet: Fleet, planned: PlannedCell) -> Profile:
    """Its servers live once more, in a folder that goes away."""
    folder = run_dir / profiles.FOLDER / "window"
    loads = folder / "load"
    with store.storage(loads):
        loads.mkdir(parents=True, exist_ok=True)
    session = ServerSession(fleet, schedule, planned, folder, scratch_folder(run_dir.name))
    try:
        session.begin([planned])
        warm(session, planned, loads)
        return Profile(planned.cell.id, _sampled(session, planned, loads))
    finally:
        session.end()
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(session.scratch, ignore_errors=True)


def _sampled(
    session: ServerSession, planned: PlannedCell, loads: Path
) -> tuple[tuple[profiles.Stack, int], ...]:
    servers = [one for one in session.running if one.instance.role == "server"]
    host = session.fleet.host_of(servers[0].label)  # a site has one host for servers
    there = host.folder_there(session.folder)
    before_s = step_s(session, planned)
    has_pointers = all(JVM_FRAME_POINTERS in one.argv for one in servers)
    record = [
        PROGRAM, "record", "--quiet", f"--freq={SAMPLES_A_SECOND}",
        "--call-graph=" + ("fp" if has_pointers else f"dwarf,{STACK_BYTES}"),
        f"--output={there}/perf.data",
        f"--pid={','.join(map(str, _processes(session.fleet, servers)))}",
        "--", "sh", "-c", f"echo {BEGUN}; exec sleep {before_s + WINDOW_S:.2f}",
    ]  # fmt: skip
    _spawn(host, session.folder, record)
    try:
        _wait_for_samples(host, session.folder)
        generate(session, planned, loads, WINDOW_S, before_s, timeout_s=timeout_s(session, planned))
        _ended(host, session.folder, READ_S)
    finally:
        _stop(host)
    script = [PROGRAM, "script", "--no-inline", "--fields=comm,ip,sym,dso",
              f"--input={there}/perf.data"]  # fmt: skip
    jvms = [one for one in servers if one.instance.tool == "jvm"]
    maps = _name_methods(host, _processes(session.fleet, jvms))
    try:
        _spawn(host, session.folder, script)
        _ended(host, session.folder, READ_S)
    finally:
        _stop(host)
        if maps:
            host.ask("run", argv=["rm", "-f", *maps])
    root = session.schedule.place.root
    text = _output(session.folder).read_text(encoding="utf-8", errors="replace")
    stacks = folded(text.splitlines(), (stack.library(root).name, *ONLOAD))
    if not stacks:
        raise ProcessError(f"{PROGRAM} took no sample of the servers")
    return tuple(stacks.items())


def _name_methods(host: Host, processes: Sequence[int]) -> list[str]:
    """Has JVMs write the names of their compiled methods for perf (JDK 17 and newer); returns the
    files. Without names the profile is as good for all else."""
    for pid in processes:
        try:
            host.ask("run", argv=["sh", "-c", JVM_NAMES, str(pid)], env={"PATH": SEARCH_PATH})
        except HostError:
            host.check_lost()
    return [JVM_MAP.format(pid) for pid in processes]


def _processes(fleet: Fleet, servers: Iterable[Started]) -> list[int]:
    return [pid for one in servers for pid in fleet.state(one.label)["members"]]


def _output(folder: Path) -> Path:
    return folder / f"{LABEL}.out"


def _spawn(host: Host, folder: Path, argv: list[str]) -> None:
    there = host.folder_there(folder)
    host.ask(
        "spawn", name=LABEL, argv=argv, env={"PATH": SEARCH_PATH}, folder=there, cwd=there,
        stdout=f"{there}/{LABEL}.out", stderr=f"{there}/{LABEL}.err",
    )  # fmt: skip


def _wait_for_samples(host: Host, folder: Path) -> None:
    """perf starts its command when it takes samples; on a busy machine that is seconds later."""
    deadline = time.monotonic() + READ_S
    while LABEL not in host.exits and time.monotonic() < deadline:
        host.bring_back(folder)
        if _output(folder).is_file() and BEGUN in _output(folder).read_text(encoding="utf-8"):
            return
        host.poll(LOOK_S)


def _ended(host: Host, folder: Path, timeout_s: float) -> None:
    if host.wait_exit([LABEL], timeout_s) is None:
        raise ProcessError(f"{PROGRAM} did not end within {timeout_s:.0f} s")
    host.bring_back(folder)
    if code := host.exits[LABEL]:
        said = (folder / f"{LABEL}.err").read_text(encoding="utf-8", errors="replace").split("\n")
        words = [line.strip() for line in said if line.strip()]
        raise ProcessError(
            f"{PROGRAM} failed (exit code {code})" + (f": {words[-1]}" if words else "")
        )


def _stop(host: Host) -> None:
    host.ask("stop", names=[LABEL], grace_s=0)
    host.ask("forget", names=[LABEL])
    host.exits.pop(LABEL, None)


def folded(lines: Iterable[str], libraries: Iterable[str]) -> Counter[profiles.Stack]:
    """How often each stack was seen, root first, from what `perf script` prints: the name of the
    thread, the frames from the innermost on, an empty line."""
    stacks: Counter[profiles.Stack] = Counter()
    known = set(libraries)
    thread, frames = "", list[str]()
    for line in [*lines, ""]:
        if frame := FRAME.match(line):
            frames.append(_named(frame[1], frame[2], known))
        elif line.strip():
            thread = line.strip()
        elif frames:
            stacks[(_clean(thread), *frames[::-1][-DEPTH_MAX:])] += 1
            frames = []
    return stacks


def _named(symbol: str, place: str, libraries: set[str]) -> str:
    name = Path(place).name
    where = "compiled Java" if COMPILED.fullmatch(name) else name.strip("[]")
    shown = _clean(f"[{where}]" if symbol == "[unknown]" else RUST_HASH.sub("", symbol))
    if name in libraries:
        return shown + LIBRARY
    is_module = place.startswith("[") and not place.startswith(NOT_OF_KERNEL)
    return shown + KERNEL if is_module else shown


def _clean(text: str) -> str:
    """Without the characters that end a frame or a line of the folded form."""
    return re.sub(r"[;\s]+", " ", text).strip()
