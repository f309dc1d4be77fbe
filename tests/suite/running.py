"""Runs the steps of `./test` one after the other, and prints what each did."""

import contextlib
import os
import resource
import signal
import subprocess
import sys
import time

from suite import skips
from suite.steps import OUT, ROOT


def run_all(chosen, entries, prepare):
    """Yields each step with its results and, where it failed, what to quote of its output.

    Compiles for later steps in the background, as early as their `after` says.
    `prepare` installs what the tests need."""
    compiling = {}
    try:
        _compile_ahead([step for step in chosen if step.after == "start"], compiling)
        prepare()
        for position, step in enumerate(chosen):
            waiting = {one.name for one in chosen[position:]}
            _compile_ahead([one for one in chosen[position + 1:] if one.after not in waiting], compiling)
            place, before_s = f"{position + 1}/{len(chosen)}", cpu_s()
            if step.name in compiling:
                _wait(compiling[step.name], step, place, time.time())
                end(compiling[step.name])  # where it took too long
            yield step, *run(step, place, entries, before_s)
    finally:
        for process in compiling.values():
            end(process)


def _compile_ahead(chosen, compiling):
    """Starts what compiles for the steps, unless it has been started; adds it to `compiling`."""
    for step in chosen:
        if step.ahead and step.name not in compiling:
            with _undisturbed():
                compiling[step.name] = subprocess.Popen(
                    ["nice", "-n", "19", *step.ahead], cwd=ROOT, stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)


@contextlib.contextmanager
def _undisturbed():
    """Signals wait until a process that is being started is known, so that it ends with the run."""
    came = []
    handlers = {sign: signal.signal(sign, lambda number, _: came.append(number))
                for sign in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for sign, handler in handlers.items():
            signal.signal(sign, handler)
        for number in came[:1]:
            signal.raise_signal(number)


def cpu_s():
    """Seconds of CPU that the processes which have been started here took, from where they have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(step, place, entries, before_s):
    """Runs one step; returns its results, and what to quote of its output if it failed.

    `before_s` is cpu_s() before what was compiled for the step ended, which is the step's too."""
    started = time.time()
    texts, codes = _run_commands(step, lambda process: _wait(process, step, place, started))
    (OUT / f"{step.name}.txt").write_text(_joined(texts))
    found = step.read("".join(texts), started - 1)
    quote = judge(step, found, texts, codes, entries)
    print(f"{'✘' if quote else '✔'} {step.name:13} {found.passed:5} passed {found.failed:3} failed "
          f"{len(found.skips):3} skipped  {time.time() - started:5.0f} s  {cpu_s() - before_s:5.0f} s of CPU",
          flush=True)
    return found, quote


def judge(step, found, texts, codes, entries):
    """Adds what the runner does not count to `found`; returns what to quote if the step failed."""
    bad = [text for text, code in zip(texts, codes) if code]
    lines = [step.excerpt(_joined(bad))] if bad else []
    if bad and not found.failed:
        found.failed, found.passed = len(bad), max(0, found.passed - len(bad))
    if not bad and found.passed + found.failed == 0:
        found.failed = 1
        lines.append("the step ran no test")
    for skip in skips.unlisted(step.name, found.skips, entries):
        found.skips.remove(skip)
        found.failed += 1
        lines.append(f"skipped, and not listed in tests/skips.toml: {skip.test}: {skip.reason}")
    return "\n".join(lines)


def _joined(texts):
    return texts[0] if len(texts) == 1 else "".join(
        f"{text}part {number} ended\n" for number, text in enumerate(texts, 1))


def _run_commands(step, wait):
    """The output of commands that run in parallel, and their exit codes. Each has a session of its
    own, so that a hang or a Ctrl-C leaves nothing."""
    parts = [OUT / f"{step.name}.txt"] if len(step.commands) == 1 else [
        OUT / f"{step.name}.{number}.txt" for number in range(1, len(step.commands) + 1)]
    processes = []
    try:
        for command, part in zip(step.commands, parts):
            with open(part, "wb") as output, _undisturbed():
                processes.append(subprocess.Popen(
                    command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT,
                    stdin=subprocess.DEVNULL, start_new_session=True))
        codes = [wait(process) for process in processes]
    finally:
        for process in processes:
            end(process)
    return [part.read_text(errors="replace") for part in parts], codes


def _wait(process, step, place, started):
    while True:
        try:
            return process.wait(0.5)
        except subprocess.TimeoutExpired:
            elapsed = time.time() - started
            if elapsed > step.minutes_max * 60:
                print(f"{step.name}: stopped after {step.minutes_max} minutes", flush=True)
                return 1
            if sys.stdout.isatty():
                left = max(0, step.seconds - elapsed)
                print(f"\r\033[K  {place} {step.name} … {elapsed:.0f} s, "
                      f"about {left:.0f} s left\r", end="", flush=True)


def end(process):
    """Ends a process and its session."""
    if sys.stdout.isatty():
        print("\r\033[K", end="")
    for sign in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, sign)
            time.sleep(0.2)
        except ProcessLookupError:
            return
