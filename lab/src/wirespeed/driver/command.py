"""From an instance to the command that is started, by the program's driver and its stack."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from wirespeed import extensions
from wirespeed.driver import ab, h2load, jvm, k6, load, mapped, nginx, oha, stack, vegeta, wrk
from wirespeed.driver.base import Command, Figures, Instance, LoadRun
from wirespeed.driver.generator import Generator, Output
from wirespeed.errors import ProcessError


def for_server(root: Path, recipe_file: Path, instance: Instance, folder: Path) -> Command:
    """A server's or origin's command; a program without a driver is started as it was written."""
    made = Command(instance.argv)
    if instance.tool == "jvm":
        made = jvm.command(instance, folder)
    elif instance.template:
        made = nginx.command(instance, recipe_file, folder)
    return stack.wrap(root, instance.under, replace(made, env={**made.env, **instance.env}))


GENERATORS = {
    "load": load.GENERATOR, "wrk": wrk.GENERATOR, "wrk2": wrk.GENERATOR, "h2load": h2load.GENERATOR,
    "ab": ab.GENERATOR, "oha": oha.GENERATOR, "k6": k6.GENERATOR, "vegeta": vegeta.GENERATOR,
}  # fmt: skip


def generator(instance: Instance) -> Generator | None:
    """Its driver; None for a command whose output is not mapped."""
    if instance.figures:
        return mapped.GENERATOR
    if instance.tool in extensions.names(extensions.GENERATORS) and instance.tool not in GENERATORS:
        added: Generator = extensions.load(extensions.GENERATORS, instance.tool)
        return added
    return GENERATORS.get(instance.tool)


def for_load(root: Path, instance: Instance, run: LoadRun) -> Command:
    driver = generator(instance)
    made = driver.command(root, instance, run) if driver else Command(instance.argv)
    return stack.wrap(root, instance.under, replace(made, env={**made.env, **instance.env}))


def for_duet(root: Path, instance: Instance, run: LoadRun, control: Path) -> Command:
    """wirespeed-load, held back through a file: it goes on until it is stopped."""
    made = load.command(root, instance, run)
    argv = [*made.argv, "--control", str(control)]
    made = replace(made, argv=argv, env={**made.env, **instance.env})
    return stack.wrap(root, instance.under, made)


# Options of generators that make a request something else than a GET of HTTP/1.
SPECIAL = ("-s", "--script", "-H", "--header", "-X", "--method", "--body", "--body-file", "--http2",
           "--h2", "--http3", "--grpc", "--sink", "--replay", "--proxy-protocol")  # fmt: skip
PLAIN_HEADER = "Connection:"
# And those with which it asks for other files than its URL, or waits for another response.
ELSEWHERE = ("--data", "--urls", "--expect")


def plain_url(instance: Instance) -> str:
    """What a generator asks for with a bare GET; empty where it asks for something else."""
    if instance.role != "load" or instance.tool not in ("load", "wrk"):
        return ""
    if any(name in SPECIAL and not value.startswith(PLAIN_HEADER)
           for name, value in _options(instance.argv)):  # fmt: skip
        return ""
    return next((word for word in reversed(instance.argv) if word.startswith("http://")), "")


def checked_url(instance: Instance) -> str:
    """The same where a response other than 2xx is a mistake of the recipe."""
    is_elsewhere = any(name in ELSEWHERE for name, _ in _options(instance.argv))
    return "" if is_elsewhere else plain_url(instance)


def _options(argv: list[str]) -> Iterator[tuple[str, str]]:
    """(option, its value) of `-H X`, `-HX`, `--header X` and `--header=X`."""
    for word, after in zip(argv, [*argv[1:], ""], strict=True):
        name, equals, value = word.partition("=")
        if word.startswith("-") and word[1:2] != "-" and len(word) > 2:
            name, equals, value = word[:2], "=", word[2:]
        yield name, value if equals else after


def figures_of(instance: Instance, run: LoadRun, output: Output) -> Figures | None:
    """What a generator measured; None for a command whose output the lab does not know."""
    driver = generator(instance)
    try:
        return driver.read(instance, run, output) if driver else None
    except (ValueError, ArithmeticError, LookupError, TypeError, AttributeError) as error:
        # Another version of the tool, or the driver of another package: its trial has failed.
        what = f"{instance.label}: the results of {instance.tool or instance.argv[0]}"
        raise ProcessError(f"{what} cannot be read: {type(error).__name__}: {error}") from error
