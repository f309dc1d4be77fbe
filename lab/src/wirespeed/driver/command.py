"""From an instance to the command that is started, by the program's driver and its stack."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from wirespeed.driver import jvm, load, nginx, stack, wrk
from wirespeed.driver.base import Command, Figures, Instance, LoadRun


def for_server(root: Path, recipe_file: Path, instance: Instance, folder: Path) -> Command:
    """A server's or origin's command; a program without a driver is started as it was written."""
    made = Command(instance.argv)
    if instance.tool == "jvm":
        made = jvm.command(instance, folder)
    elif instance.template:
        made = nginx.command(instance, recipe_file, folder)
    return stack.wrap(root, instance.under, replace(made, env={**made.env, **instance.env}))


def for_load(root: Path, instance: Instance, run: LoadRun) -> Command:
    if instance.tool == "load":
        made = load.command(root, instance, run)
    elif instance.tool == "wrk":
        made = wrk.command(instance)
    else:
        made = Command(instance.argv)
    return stack.wrap(root, instance.under, replace(made, env={**made.env, **instance.env}))


# Options of generators that make a request something else than a GET of HTTP/1.
SPECIAL = ("-s", "--script", "-H", "--header", "-X", "--method", "--body", "--body-file", "--http2",
           "--h2", "--sink")  # fmt: skip
PLAIN_HEADER = "Connection:"


def plain_url(instance: Instance) -> str:
    """What a generator asks for with a bare GET; empty where it asks for something else."""
    if instance.role != "load" or instance.tool not in ("load", "wrk"):
        return ""
    argv = instance.argv
    for word, value in zip(argv, [*argv[1:], ""], strict=True):
        if word.split("=")[0] in SPECIAL and not value.startswith(PLAIN_HEADER):
            return ""
    return next((word for word in reversed(argv) if word.startswith("http://")), "")


def figures_of(
    instance: Instance, run: LoadRun, stdout: Path, last_words: str, started_unix_ns: int
) -> Figures | None:
    """What a generator measured; None for a command whose output the lab does not know."""
    if instance.tool == "load":
        return load.read(instance, run, last_words)
    if instance.tool == "wrk":
        return wrk.read(instance, run, stdout.read_text(errors="replace"), started_unix_ns)
    return None
