"""`wirespeed compare --rev BASE --rev HEAD`: two revisions of a repository, built and compared."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from wirespeed.cli import compare
from wirespeed.cli import run as runs_of
from wirespeed.cli.compare import CompareOptions, Variant
from wirespeed.cli.init import argv_of
from wirespeed.errors import InputError, RunError
from wirespeed.interrupts import held_back, signals_as_interrupts
from wirespeed.runner.plan import PlanOptions

BUILD_S = 3600.0
NAMES = ("base", "head")


@dataclass(frozen=True)
class Revisions:
    """What is compared: two revisions, how each is built, and how its server is started."""

    revs: Sequence[str]
    build: str
    command: str


def measure(
    revisions: Revisions, given: CompareOptions, runs: Path, options: PlanOptions,
    fail_on: str, as_json: bool,
) -> int:  # fmt: skip
    """Builds both revisions in work trees of their own, then interleaves their servers in one run.

    The work trees go away at the end, also after SIGTERM; the user's own tree is not touched.
    """
    try:
        with signals_as_interrupts():
            return _measured(revisions, given, runs, options, fail_on, as_json)
    except KeyboardInterrupt as stop:  # outside of the run, which reports its own end
        print("wirespeed: stopped", file=sys.stderr)
        return runs_of.code_of(stop)


def _measured(
    revisions: Revisions, given: CompareOptions, runs: Path, options: PlanOptions,
    fail_on: str, as_json: bool,
) -> int:  # fmt: skip
    compare.checked(given, fail_on, options)
    commits = [_commit(rev) for rev in revisions.revs]
    if fail_on and len(set(commits)) == 1:
        names = " and ".join(f"--rev {rev}" for rev in revisions.revs)
        raise InputError(f"{names} are the same commit {commits[0]}, which shows no difference")
    with tempfile.TemporaryDirectory(prefix="wirespeed-rev-") as folder:
        trees = [Path(folder) / name for name in NAMES]
        with _worktrees(list(zip(trees, commits, strict=True))):
            for tree, rev in zip(trees, revisions.revs, strict=True):
                if revisions.build:
                    _build(tree, rev, revisions.build)
            variants = [
                Variant(name, _started(tree, revisions.command), str(tree))
                for name, tree in zip(NAMES, trees, strict=True)
            ]
            labels = (*options.labels, *zip(NAMES, commits, strict=True))
            options = replace(options, labels=labels)
            given = replace(given, can_resume=False)
            return compare.measure_variants(given, variants, runs, options, fail_on, as_json)


def _commit(rev: str) -> str:
    done = _git("rev-parse", "--verify", "--quiet", f"{rev}^{{commit}}")
    if done.returncode != 0:
        raise InputError(
            f"--rev {rev}: not a revision of the repository in {Path.cwd()}"
            + (f" ({done.stderr.strip()})" if done.stderr.strip() else "")
        )
    return done.stdout.strip()[:12]


@contextmanager
def _worktrees(commits: Sequence[tuple[Path, str]]) -> Iterator[None]:
    try:
        for tree, commit in commits:
            done = _git("worktree", "add", "--detach", "--force", str(tree), commit)
            if done.returncode != 0:
                raise RunError(f"git worktree add {commit} failed: {done.stderr.strip()}")
        yield
    finally:
        with held_back():  # the first signal may have been one of an inner block, which is over
            for tree, _ in commits:
                _removed(tree)


def _removed(tree: Path) -> None:
    # Twice, as git wants it for one that is locked: it was being made when it was stopped.
    done = _git("worktree", "remove", "--force", "--force", str(tree))
    known = _git("worktree", "list", "--porcelain").stdout.splitlines()
    if f"worktree {os.path.realpath(tree)}" in known:
        reason = done.stderr.strip()
        print(f"wirespeed: the work tree {tree} stays registered: {reason}", file=sys.stderr)


def _git(*words: str) -> subprocess.CompletedProcess[str]:
    """In a session of its own, so that Ctrl-C in a terminal does not end it. A signal that this
    process gets ends it by TERM, at which git removes what it has begun."""
    process: subprocess.Popen[str] | None = None
    try:
        with held_back():  # else a git that has just been started is not known yet
            process = subprocess.Popen(
                ["git", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                errors="replace", start_new_session=True,
            )  # fmt: skip
        assert process
        out, err = process.communicate()
    except FileNotFoundError:
        raise InputError("--rev needs git, which is not installed") from None
    except BaseException:
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            process.communicate()
        raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def _build(tree: Path, rev: str, command: str) -> None:
    print(f"wirespeed: building {rev}: {command}", file=sys.stderr)
    process: subprocess.Popen[bytes] | None = None
    try:
        with held_back():  # else a shell that has just been started is not known yet
            process = subprocess.Popen(
                ["sh", "-c", command], cwd=tree, stdout=sys.stderr,
                stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        assert process
        code = process.wait(BUILD_S)
    except BaseException as error:  # Ctrl-C too: what the shell started would go on without it
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if isinstance(error, subprocess.TimeoutExpired):
            minutes = f"{BUILD_S / 60:.0f} minutes"
            raise RunError(f"the build of {rev} did not end in {minutes}") from None
        raise
    if code != 0:
        raise RunError(f"the build of {rev} failed (exit code {code})")


def _started(tree: Path, command: str) -> list[str]:
    """A program with a path is that of the revision's own tree."""
    argv = argv_of("--run", command)
    first = shlex.split(command)[0]
    if "/" not in first or first.startswith("/"):
        return argv
    program = tree / first
    if not program.is_file():
        raise InputError(f"--run: there is no {first} in {tree.name} after its build")
    return [str(program), *argv[1:]]
