"""Shows what a run from elsewhere would start here, and asks the user before starting it."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import replace
from pathlib import Path

import typer

from wirespeed.cli import output
from wirespeed.errors import InputError
from wirespeed.recipe.resolve import FileSet, Instance, Resolver
from wirespeed.runner import session
from wirespeed.runner.plan import PlanOptions

HERE = ("local", "netns")  # any other kind, one of a package too, starts programs elsewhere


def is_own(run_dir: Path, runs: Path) -> bool:
    """Whether this user's lab measured the run: it lies directly in the folder of runs."""
    return run_dir.resolve().parent == runs.resolve()


def without_remote_site(origin: session.Source) -> session.Source:
    """The site of a run of somebody else: this machine. InputError when it names other ones.

    Options of an ssh command, and the Python of a far host, start programs before any is shown.
    """
    if origin.site.kind not in HERE:
        raise InputError(
            f'the run was measured on other machines (kind = "{origin.site.kind}"), which are '
            "never taken from a run of somebody else; name a site of yours with --site"
        )
    return replace(origin, site=origin.site.model_copy(update={"options": [], "python": "python3"}))


def confirm(origin: session.Source, options: PlanOptions, is_trusted: bool) -> None:
    """Prints what would be started, and asks; raises InputError when the user does not agree."""
    if is_trusted:
        return
    for line in effects(origin, options):
        print(output.printable(line), file=sys.stderr)  # else a command could hide itself
    if not sys.stdin.isatty():
        raise InputError(
            "this run is not one of yours; read its commands above, then add --trust to start them"
        )
    if not typer.confirm("Start these commands?", err=True):
        raise InputError("nothing was started")


def effects(origin: session.Source, options: PlanOptions) -> list[str]:
    """Everything that a recipe has a say in: programs, their environment, templates and files."""
    schedule = session.planned(origin, options)
    lines: dict[str, None] = {}
    for planned in schedule.cells:
        if planned.is_measured:
            resolver = Resolver(schedule.recipe, planned.cell, schedule.place)
            for instance in resolver.instances(planned.seats):
                lines.update(dict.fromkeys(_of_program(instance)))
            for one in resolver.files():
                lines.setdefault(_of_file(one))
    who = "root" if os.geteuid() == 0 else "your user"
    place = f"on this machine (site {origin.site_name}, kind {origin.site.kind})"
    tuned = ["  settings of this machine are changed for the run (tune)"] if options.tune else []
    return [f"This run of somebody else starts as {who}, {place}:", *lines, *tuned]


def _of_program(instance: Instance) -> list[str]:
    lines = []
    if instance.prepare:
        lines.append(f"  {shlex.join(instance.prepare)}")
    env = dict(instance.env)
    if instance.under:
        env |= instance.under.env
    words = [f"{name}={shlex.quote(value)}" for name, value in sorted(env.items())]
    named = instance.argv[:1] and instance.argv[0].rpartition("/")[2]
    program = [] if instance.tool in ("command", named) else [instance.tool]
    lines.append("  " + " ".join([*words, *program, shlex.join(instance.argv)]))
    lines += [f"  {instance.name}: with the template {path}" for path in instance.template.values()]
    lines += [f"  {shlex.join(instance.version)}"] if instance.version else []
    return lines


def _of_file(one: FileSet) -> str:
    mounted = " on a file system that is mounted there" if one.mount else ""
    return f"  the file {one.folder}/{one.name} ({one.size_bytes:,} bytes){mounted}"
