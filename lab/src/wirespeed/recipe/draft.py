"""Writes the recipe of a user's own server: kernel, the kernel again, and bypass."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from wirespeed import template

#: A thread for each core of the generator, and no more of them than connections.
_THREADS = "{{ [connections, load.cores]|min }}"
Url = Callable[[str], str]  # of a placeholder for the port
#: The stacks of a draft. The second is the first under another name: what differs between the two
#: is noise, and a table that shows a gain there is not to be trusted.
CPU_EXCL_POLLING = "server.work_us_per_request"
KERNEL, AGAIN, BYPASS = "kernel", "kernel-again", "bypass"


@dataclass(frozen=True)
class Draft:
    """The user's answers, and the response of the server when it was tried."""

    name: str
    argv: Sequence[str]  # {port} stands for the port
    port: int
    path: str = "/"
    connections: Sequence[int] = (1, 50)
    status: int = 200
    length: int | None = None  # bytes of the body; None when the server did not say
    bypass: bool = True
    cwd: str = "{{ recipe.dir }}"
    server_cores: int | None = None  # None: all that the machine has for servers


def text(draft: Draft) -> str:
    """The recipe as TOML; `wirespeed run` takes it as it is."""
    stacks = [KERNEL, AGAIN, *([BYPASS] if draft.bypass else [])]
    length = "" if draft.length is None else f", length = {draft.length}"
    url = _url(draft.path)
    return f"""\
# {draft.name}: the server as it is, and on user-level sockets. Made by `wirespeed init`.
wirespeed = 2
name      = {_toml(draft.name)}
title     = {_toml(f"{draft.name}: requests per second and latency")}

[axes]
connections = {list(draft.connections)}
stack       = {_toml(stacks)}   # the second is the first again: its gain is noise

[plan]
warmup   = "{_warmup(draft.argv)}"   # at most: it ends when three windows agree
repeat   = 5
method   = "duet"  # each stack and the kernel take turns; separate trials where they cannot
duet     = {{ pair = "4s" }}
baseline = {{ stack = "{KERNEL}" }}
duration = "1s"

[stacks.{KERNEL}]
[stacks.{AGAIN}]
{_bypass() if draft.bypass else ""}
[axis.stack]   # both ends must bypass the kernel
{KERNEL}       = {{ client = "{KERNEL}" }}
{AGAIN} = {{ client = "{KERNEL}" }}
{f'{BYPASS}       = {{ client = "wrk" }}' if draft.bypass else ""}

[[process]]
name  = "server"
role  = "server"
stack = "{{{{ stack }}}}"
pin   = {_pin(draft.server_cores)}
port  = {{ base = {draft.port} }}
argv  = {_toml([literal(word) for word in draft.argv])}
cwd   = {_toml(draft.cwd)}
ready = {{ http = {_toml(url("{{ port }}"))}, status = {draft.status}{length} }}

[[process]]
name  = "load"
role  = "load"
stack = "{{{{ stack.client }}}}"
pin   = {{ cores = "all" }}
{_measured(url, "stack", KERNEL, "")}"""


@dataclass(frozen=True)
class ComparisonDraft:
    """Commands to compare with each other on one address."""

    commands: Sequence[Sequence[str]]  # {port} stands for the port
    port: int
    path: str
    connections: Sequence[int]
    duration: str
    status: int = 200
    folders: Sequence[str] = ("{{ recipe.dir }}",)  # where each is started; one for all of them
    method: str = "duet"
    server_cores: int | None = None
    names: Sequence[str] = ()  # of the variants; else A, B, …
    rate: int | None = None  # an open loop of so many requests per second for all
    threshold: str = "2%"  # a smaller difference is none


def comparison(made: ComparisonDraft) -> str:
    """The recipe of `compare --run A --run B`: interleaved commands, the first is the baseline."""
    names = list(made.names) or [chr(ord("A") + number) for number in range(len(made.commands))]
    folders = made.folders if len(made.folders) > 1 else [*made.folders] * len(names)
    variants = "".join(
        f"{_toml(name)} = {{ argv = {_toml([literal(word) for word in argv])}, "
        f"cwd = {_toml(folder)} }}\n"
        for name, argv, folder in zip(names, made.commands, folders, strict=True)
    )
    url = _url(made.path)
    of_latency = f"gain    = {{ over = {_toml(names[0])}, round = 1 }}\n"
    return f"""\
# Made by `wirespeed compare --run`.
wirespeed = 2
name      = "compare"
title     = {_toml(_title(made, names, folders))}

[axes]
connections = {list(made.connections)}
variant     = {_toml(names)}

[axis.variant]
{variants}
[plan]
method   = {_toml(made.method)}
baseline = {{ variant = {_toml(names[0])} }}
duration = {_toml(made.duration)}
threshold = {_toml(made.threshold)}

[[process]]
name  = "server"
role  = "server"
pin   = {_pin(made.server_cores)}
port  = {{ base = {made.port} }}
argv  = ["{{{{ variant.argv }}}}"]
cwd   = "{{{{ variant.cwd }}}}"
ready = {{ http = {_toml(url("{{ port }}"))}, status = {made.status} }}

[[process]]
name  = "load"
role  = "load"
pin   = {{ cores = "all" }}
{_measured(url, "variant", names[0], of_latency, made.rate)}"""


def _title(made: ComparisonDraft, names: Sequence[str], folders: Sequence[str]) -> str:
    """`./old --port 80 against ./new --port 80`; `head against base: ./it` where both are the same
    program of two folders, whose names say nothing to a reader."""
    commands = []
    for argv, folder in zip(made.commands, folders, strict=True):
        shown = " ".join(argv).replace("{port}", str(made.port))
        commands.append(shown.replace(f"{folder}/", "./", 1) if folder.startswith("/") else shown)
    if len(set(commands)) == 1 and made.names:
        return f"{' against '.join(reversed(names))}: {commands[0]}"
    return " against ".join(commands)


def _measured(url: Url, columns: str, over: str, of_latency: str, rate: int | None = None) -> str:
    """The rest of the generator, the metrics and the tables: the same whatever is compared.

    At one rate for all the rate says nothing: what a request costs is the first table then.
    """
    argv = ["-t", _THREADS, "-c", "{{ connections }}", "-d", "{{ duration }}"]
    argv.append(url("{{ server.port }}"))
    argv = ["-R", str(rate), *argv] if rate else argv
    gain = f'gain    = {{ over = "{over}", round = 1 }}\n'
    cost = f"""\
[[table]]
title   = "Server CPU per request at {rate:,} requests per second"
rows    = "connections"
columns = "{columns}"
value   = "{CPU_EXCL_POLLING}"
{gain}
""" if rate else ""  # fmt: skip
    return f"""\
tool  = "load"
argv  = {_toml(argv)}

[[metric]]
name   = "rps"
from   = "load"
better = "higher"

[[metric]]
name      = "latency"
from      = "load"
combine   = "histogram"
quantiles = ["mean", 0.5, 0.99, "max"]
better    = "lower"

{cost}[[table]]
title   = "Requests per second"
rows    = "connections"
columns = "{columns}"
value   = "rps"
{"" if rate else gain}
[[table]]
title   = "Latency p99"
rows    = "connections"
columns = "{columns}"
value   = "latency.p99"
{of_latency}"""


def _pin(server_cores: int | None) -> str:
    if server_cores is None:
        return '{ cores = "all" }   # of the cores for servers'
    return f'{{ cores = "from 0", per = {server_cores} }}'


def _warmup(argv: Sequence[str]) -> str:
    """Three windows take 1.5 s; a just-in-time compiler takes longer to settle."""
    return "10s" if argv[:1] and argv[0].rpartition("/")[2] == "java" else "3s"


def _bypass() -> str:
    return f"""\
[stacks.{BYPASS}]
provider = "auto"
profile  = "throughput"   # docs/profiles.md has others
[stacks.wrk]
provider = "auto"
profile  = "wrk"
"""


def _url(path: str) -> Url:
    return lambda port: "http://{{ server.addr }}:" + port + template.literal(path)


def literal(text: str) -> str:
    """A word of a command: `{port}` is its only placeholder, other braces are the user's own."""
    return "{{ port }}".join(map(template.literal, text.split("{port}")))


def _toml(value: object) -> str:
    """A text or a list of texts; TOML's basic strings are JSON's."""
    return json.dumps(value, ensure_ascii=False)
