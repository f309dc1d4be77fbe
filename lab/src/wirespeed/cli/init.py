"""`wirespeed init`: writes a recipe for a user's own server."""

from __future__ import annotations

import os
import re
import shlex
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import typer

from wirespeed.cli import output
from wirespeed.errors import COMMAND, InputError
from wirespeed.recipe import draft, read
from wirespeed.runner import tryout
from wirespeed.topology import roles_of

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")  # it becomes the recipe's name
OF_A_SHELL = ("&&", "||", ";", "|", "&", ">", ">>", "<")


@dataclass(frozen=True)
class Answers:
    """The options given; for empty ones and 0 there is a prompt on a terminal."""

    command: str
    port: int
    path: str
    connections: str
    bypass: bool
    tried: bool
    force: bool
    server_cores: int | None = None


def init(file: Path, answers: Answers, as_json: bool = False) -> None:
    """Writes `file`, after the server was started once and asked one request."""
    if file.suffix != ".toml" or not NAME.fullmatch(file.stem):
        raise InputError(
            f"{file}: not a file name of a recipe (letters, digits, - and _, as in my-server.toml)"
        )
    if not file.parent.is_dir():
        raise InputError(f"{file}: folder {file.parent} does not exist")
    if file.exists() and not answers.force:
        raise InputError(f"{file}: already exists (--force overwrites it)")
    answers = _asked(answers)
    argv = argv_of("--command", answers.command)
    connections = connections_of(answers.connections)
    check_path(answers.path)
    if line := cores_note(answers.server_cores):
        print(f"note: {line}", file=sys.stderr)
    if not any("{port}" in word for word in argv):
        print(
            f"note: the command has no {{port}}; it must listen on port {answers.port} on its own",
            file=sys.stderr,
        )
    answer = tryout.ask(argv, answers.port, answers.path) if answers.tried else None
    status, length = (answer.status, answer.length) if answer else (200, None)
    recipe = draft.Draft(
        file.stem, argv, answers.port, answers.path, connections,
        status, length, answers.bypass, _cwd(file), answers.server_cores,
    )  # fmt: skip
    output.write_file(file, draft.text(recipe))
    read.read(file)
    if as_json:
        tried = answer is not None
        output.write({"file": file, "status": status, "length": length, "tried": tried})
        return
    if answer:
        print(f"{answers.path} answers {answer.status} with {answer.length} bytes")
    shown = file if "/" in str(file) else f"./{file}"
    print(f"wrote {file}; look at it, then:\n  {COMMAND} plan {shown}\n  {COMMAND} run {shown}")


def _asked(answers: Answers) -> Answers:
    if answers.command:
        return answers
    if not sys.stdin.isatty():
        raise InputError(
            "init: --command is missing (for example --command './my-server --port {port}')"
        )
    command = typer.prompt("Command that starts the server ({port} stands for its port)")
    port = typer.prompt("Port", default=answers.port, type=int)
    if not 1 <= port <= 65535:
        raise InputError(f"port {port} is out of range (1 to 65535)")
    path = typer.prompt("Path of the requests", default=answers.path)
    connections = typer.prompt("Connections", default=answers.connections)
    return replace(answers, command=command, port=port, path=path, connections=connections)


def argv_of(option: str, command: str) -> list[str]:
    """The words of the command, with a program that lies here named in full."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise InputError(f"{option}: {error}") from None
    if not words:
        raise InputError(f"{option}: empty")
    shell = [word for word in words if word in OF_A_SHELL]
    if shell or (words[0] == "cd"):
        raise InputError(f"{option}: {(shell or words)[0]!r} needs a shell (write sh -c '…')")
    if re.match(r"\w+=", words[0]):
        raise InputError(f"{option}: {words[0]!r} is not a program (write env {command})")
    if "/" not in words[0] and not tryout.finds(words[0]):
        raise InputError(f"{option}: program {words[0]!r} not found in PATH")
    if "/" in words[0]:
        words[0] = str(Path(words[0]).absolute())
    return words


def _cwd(file: Path) -> str:
    """Where the command was tried, which is where it is measured."""
    here = Path.cwd()
    return "{{ recipe.dir }}" if file.absolute().parent == here else draft.literal(str(here))


def cores_note(server_cores: int | None) -> str:
    """What this machine's cores are used for, where that limits what can be decided.

    Raises InputError for more cores than it gives servers.
    """
    cores = sorted(os.sched_getaffinity(0))
    for_servers = roles_of(cores, has_origin=False)["server"]
    if server_cores and server_cores > len(for_servers):
        raise InputError(
            f"--server-cores {server_cores}: of this machine's {len(cores)} cores servers get "
            f"{len(for_servers)} at most; generators and the lab need the others"
        )
    if len(cores) > 1:
        return ""
    return (
        "this machine has one core, which server and generator share: rates and latencies will not "
        "be compared, only CPU per request; --site with a second host has cores for both"
    )


def check_path(path: str) -> None:
    if not path.startswith("/"):
        raise InputError(f"--path: {path!r} does not start with /")
    if re.search(r"[^!-~]", path):
        raise InputError(
            f"--path: {path!r} has characters that a URL must encode (write a space as %20)"
        )


def connections_of(given: str) -> list[int]:
    try:
        numbers = [int(word) for word in given.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 1:
        raise InputError(f"--connections: {given!r} is not a list of numbers (for example 1,50)")
    if len(set(numbers)) < len(numbers):
        raise InputError(f"--connections: {given!r} has the same number twice")
    return numbers
