#!/usr/bin/env python3
"""ThreadSanitizer over bypass: the crates' own tests, then whole contract programs with the library.

The nightly compiler builds the library and the tests with its standard library (it needs the
component rust-src), cc builds the C programs; both ends of a program run accelerated. Prints a Markdown
table and exits with status 1 if the sanitizer reported a race. `threads.py [--target DIR] [PROGRAM …]`.
"""

import argparse
import os
import re
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PROGRAMS = ROOT / "bypass/preload/tests/programs"
TRIPLE = "x86_64-unknown-linux-gnu"
#: The two scribbling threads of these tests race on purpose.
SKIPPED = "a_peer_that_scribbles_all_the_time"
REPORT = "WARNING: ThreadSanitizer"
#: A report of a program concerns the library when it names it.
OURS = "libbypass_preload"
TESTS = "tests of the crates"
#: The sanitizer puts a signal off until the program calls something that it knows to wait; and a shell that is not
#: instrumented cannot load the library, so that what waits for its word waits for ever.
LEFT_OUT = {"signal_in_call", "shells_of_threads"}
TIME_MAX_S = 60
#: Reports do not end a program. The runtime would call setrlimit as it starts, before the library's own can run.
#: A child of fork starts our thread, which the runtime takes for a reason to end it: who waits for the child then hangs.
TSAN_OPTIONS = "exitcode=0:disable_coredump=0:die_after_fork=0"

#: The runtime that comes with cc has no such names; newer compilers call them.
SHIM = """
#include <string.h>
void *__tsan_memcpy(void *to, const void *from, size_t n) { return memcpy(to, from, n); }
void *__tsan_memmove(void *to, const void *from, size_t n) { return memmove(to, from, n); }
void *__tsan_memset(void *to, int byte, size_t n) { return memset(to, byte, n); }
"""


def options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", type=Path, default=ROOT / "target/tsan", help="build folder")
    parser.add_argument("--log", type=Path, help="where the reports go; standard error otherwise")
    parser.add_argument("--programs-only", action="store_true", help="not the crates' own tests")
    parser.add_argument("programs", nargs="*", help="contract programs; all in C that have threads")
    return parser.parse_args()


def build_and_test(target, is_run):
    """The text of cargo's run; the library lies in the target folder afterwards."""
    environment = os.environ | {
        "CARGO_TARGET_DIR": str(target),
        "RUSTFLAGS": "-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer --cfg libc_allocator",
        "TSAN_OPTIONS": TSAN_OPTIONS,
    }
    cargo = ["cargo", "+nightly", "-Zbuild-std"]
    subprocess.run([*cargo, "build", "--target", TRIPLE, "-p", "bypass-preload"], cwd=ROOT, env=environment, check=True)
    command = [*cargo, "test", "--target", TRIPLE,
               "-p", "bypass-sys", "-p", "bypass-shm", "-p", "bypass-stack", "-p", "bypass-preload", "--lib",
               "--test", "both_ends", "--test", "hostile"]
    command += ["--", "--skip", SKIPPED] if is_run else ["--no-run"]
    done = subprocess.run(command, cwd=ROOT, env=environment, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode and REPORT not in done.stdout:
        sys.exit(f"threads.py: {' '.join(command)}:\n{done.stdout[-3000:]}")
    return done.stdout


def compile_c(folder, name, *flags, source=None):
    out = folder / name
    file = folder / f"{name}.c"
    if source is not None:
        file.write_text(source)
    else:
        file = PROGRAMS / f"{name}.c"
    subprocess.run(["cc", "-g", "-O1", "-D_GNU_SOURCE", "-w", *flags, str(file), "-o", str(out), "-lpthread"], check=True)
    return out


def run_program(program, libraries):
    """How it ended, and the output of both roles, or of the only one."""
    is_pair = "/* pair" in (PROGRAMS / f"{program.name}.c").read_text()[:200]
    environment = os.environ | {"LD_PRELOAD": " ".join(map(str, libraries)),
                                "TSAN_OPTIONS": TSAN_OPTIONS, "LC_ALL": "C"}
    channels = socket.socketpair() if is_pair else (subprocess.DEVNULL,)
    roles = ["server", "client"] if is_pair else ["solo"]
    started = [subprocess.Popen([program, role], env=environment, stdin=channel, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
               for role, channel in zip(roles, channels)]
    for channel in channels if is_pair else ():
        channel.close()
    try:
        said = "".join(one.communicate(timeout=TIME_MAX_S)[0] for one in started)
        return ("fails" if any(one.returncode for one in started) else 1), said
    except subprocess.TimeoutExpired:
        return "hangs", ""
    finally:
        for one in started:
            if one.poll() is None:
                one.kill()


def main():
    chosen = options()
    tested = build_and_test(chosen.target, not chosen.programs_only)
    passed = sum(map(int, re.findall(r"^test result: \w+\. (\d+) passed", tested, re.M)))
    rows = [] if chosen.programs_only else [(TESTS, passed, tested)]
    library = chosen.target / TRIPLE / "debug/libbypass_preload.so"
    names = chosen.programs or sorted(path.stem for path in PROGRAMS.glob("*.c")
                                      if "pthread_create" in path.read_text()
                                      and path.stem not in LEFT_OUT)
    with tempfile.TemporaryDirectory() as folder:
        shim = compile_c(Path(folder), "shim.so", "-shared", "-fPIC", "-fno-builtin", source=SHIM)
        for name in names:
            program = compile_c(Path(folder), name, "-fsanitize=thread")
            rows.append((name, *run_program(program, [library, shim])))
    print("| what | passed | reports | of the program alone |\n|---|---|---|---|")
    reports = []
    for name, count, said in rows:
        found = [text for text in said.split("=" * 18) if REPORT in text]
        ours = [text for text in found if name == TESTS or OURS in text]
        print(f"| {name} | {count} | {len(ours)} | {len(found) - len(ours)} |")
        reports += ours
    reports = "\n".join(reports)
    if reports:
        chosen.log.write_text(reports) if chosen.log else print(reports, file=sys.stderr)
    sys.exit(1 if reports or any(count in ("hangs", "fails") for _, count, _ in rows) else 0)


if __name__ == "__main__":
    main()
