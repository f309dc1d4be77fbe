"""The null server of wirespeed-load in a server's place.

The rate of the generators against it is their own limit, on their own stack.

A generator on a stack that polls fills its core whatever it does, so its core shows nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from wirespeed.driver import command, load, stack
from wirespeed.recipe.resolve import Check, Instance

COST_S = 3.0  # of one cell: two starts and stops, and three windows with their steps of load
READY_S = 30.0
#: The null server's responses have no body, so they show the cost of requests and small responses.
ANSWER_BYTES_MAX = 1500
_RATE = ("-R", "--rate")


def key_of(root: Path, instances: Sequence[Instance]) -> str:
    """The same for cells in which generators reach the same, whatever file they ask for; empty
    where the null server adds nothing: it is asked in closed loops that poll."""
    return _signature(instances) if _tells(root, instances) else ""


def _tells(root: Path, instances: Sequence[Instance]) -> bool:
    loads = [one for one in instances if one.role == "load"]
    servers = [one for one in instances if one.role == "server"]
    return (
        any(stack.is_polling(root, one.under) for one in loads)
        and all(one.tool == "load" and command.plain_url(one) for one in loads)
        and not any(word.startswith(_RATE) for one in loads for word in one.argv)
        and not all(_waits_for_each(one.argv) for one in loads)
        and bool(servers)
        and all(one.port is not None for one in servers)
    )


def _waits_for_each(argv: Sequence[str]) -> bool:
    """Whether a generator has one request under way at a time, and so no limit of its own."""
    following = dict(pairwise(argv))
    return following.get("-c") == "1" and not any(word.startswith("--depth") for word in argv)


def _signature(instances: Sequence[Instance]) -> str:
    parts = []
    for one in instances:
        argv = [word for word in one.argv if not word.startswith("http://")]
        load_argv = argv if one.role == "load" else []
        if one.role != "origin":
            parts.append((one.role, load_argv, one.seats, one.under))
    return repr(parts)


def in_place_of(root: Path, server: Instance) -> Instance:
    """The null server on a server's cores, port and stack."""
    address = f"{server.seats[0].address}:{server.port}"
    return replace(
        server,
        tool="command",
        argv=[str(load.program(root)), "sink", address],
        env={},
        template={},
        prepare=(),
        cwd="",
        ready=Check(f"tcp://{address}", 200, None, READY_S),
    )
