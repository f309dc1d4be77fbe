"""From a cell and a place to concrete processes: cores, ports and command lines."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlsplit

from wirespeed import units
from wirespeed.errors import RecipeError
from wirespeed.recipe.model import (
    Asset,
    OwnFigures,
    PlacedStack,
    ProcessSpec,
    Ready,
    Recipe,
    Site,
    Stack,
)
from wirespeed.recipe.names import Functions, Names, names_of
from wirespeed.recipe.sweep import SweepPoint
from wirespeed.template import OMITTED, BadTemplateError, arguments_of, value_of
from wirespeed.topology import Seat, Topology

# Names of {{ asset('…') }} that are programs of this repository.
MODULES = ("http-server", "stub-origin", "gateway-netty", "gateway-tomcat")
PORT_MAX = 65535
SIDE_PORTS = 1000  # from the baseline's port to the contender's in a duet
RATE_TOOLS = ("load", "wrk2")  # generators with an open loop, whose rate is -R
COUNT_MAX = 4096  # processes of one kind; more is a mistake in an expression


@dataclass(frozen=True)
class Place:
    """What a site answers: where things are and where a trial may write."""

    root: Path  # the checkout, or where the recipe lies when there is none
    recipe_file: Path
    topology: Topology
    site: Site = field(default_factory=Site)
    run_dir: str = "run-directory"
    run_tmp: str = "temporary-directory"
    java: str = "java"
    java_major: int = 17
    duration_s: float | None = None
    warmup_s: float | None = None
    side: str = ""  # not empty for the second of two contenders that live next to each other


@dataclass(frozen=True)
class Check:
    """The readiness request: what must come back. Of `tcp://` addresses a connection is enough,
    and with `log` a line of the server's output."""

    url: str
    status: int
    length: int | None
    within_s: float
    log: str = ""


@dataclass(frozen=True)
class Instance:
    """One process to start, with everything filled in."""

    name: str
    index: int
    role: str
    tool: str
    argv: list[str]
    seats: list[Seat]
    port: int | None
    stack: str
    env: dict[str, str]
    limits: dict[str, int]
    ready: Check | None
    variables: dict[str, Any]  # for the process's templates
    template: dict[str, str]
    cwd: str = ""  # where it is started; empty: in the folder of this server's files
    user: str = ""  # as whom it runs; empty: as the agent does
    netns: dict[str, str] | None = None  # a namespace of its own: interface below and address
    under: Stack | None = None  # what `stack` names, with its profile filled in
    version: tuple[str, ...] = ()  # a command that prints the program's version
    prepare: tuple[str, ...] = ()  # a command that ends before the program starts
    figures: OwnFigures | None = None  # where they stand in the output of a tool of one's own
    side: str = ""  # of two contenders that live next to each other

    @property
    def host(self) -> str:
        return self.seats[0].host

    @property
    def cores(self) -> list[int]:
        return [seat.core for seat in self.seats]

    @property
    def label(self) -> str:
        """The name in files, cgroups and samples: `http-0`."""
        return f"{self.name}-{self.index}{self.side}"


@dataclass(frozen=True)
class FileSet:
    """Files that must exist before the server starts."""

    folder: str
    name: str
    size_bytes: int
    fill: str
    role: str
    mount: dict[str, str] | None


class Resolver:
    """One cell of a recipe at one place. `seats` come from the fit: label → seats."""

    def __init__(self, recipe: Recipe, cell: SweepPoint, place: Place) -> None:
        self.recipe, self.cell, self.place = recipe, cell, place
        self.link = place.topology.link_of(cell.axes)
        self.topology = place.topology.on(self.link)
        self.file = place.recipe_file
        self.processes = {process.name: process for process in recipe.process}
        self._counts: dict[str, int] = {}

    def count(self, process: ProcessSpec) -> int:
        if process.name not in self._counts:
            self._counts[process.name] = self._count(process)
        return self._counts[process.name]

    def _count(self, process: ProcessSpec) -> int:
        value = self._value(f"process.{process.name}.count", process.count, process)
        least = 0 if process.role == "server" and self._is_ceiling() else 1
        is_count = isinstance(value, int) and not isinstance(value, bool)
        if not is_count or not least <= value <= COUNT_MAX:
            self._fail(f"process.{process.name}.count", f"{value!r} is not a count of processes")
        return int(value)

    def _is_ceiling(self) -> bool:
        """Whether the recipe measures this cell without its server."""
        return bool(self.recipe.plan.ceiling) and self.cell.matches(self.recipe.plan.ceiling)

    def workers(self, process: ProcessSpec) -> int | None:
        if not process.pin or process.pin.workers is None:
            return None
        key = f"process.{process.name}.pin.workers"
        value = self._value(key, process.pin.workers, process)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            self._fail(key, f"{value!r} is not a count of workers")
        return int(value)

    def instances(self, seats: dict[str, list[Seat]]) -> list[Instance]:
        return [
            self._instance(process, index, seats)
            for process in self.recipe.process
            for index in range(self.count(process))
        ]

    def unmet(self) -> str:
        """What a process requires of this machine and does not get; empty when all is there."""
        for name, java in self.javas().items():
            if java > self.place.java_major:
                return f"{name} needs Java {java}, here is Java {self.place.java_major}"
        return ""

    def javas(self) -> dict[str, int]:
        """The least Java of each process that asks for one."""
        majors = {}
        for process in self.recipe.process:
            key = f"process.{process.name}.requires.java"
            java = self._value(key, process.requires.java, process)
            if isinstance(java, int):
                majors[process.name] = java
        return majors

    def stacks(self) -> list[Stack]:
        """Every stack that a process of this cell runs on."""
        found = [self._under(process, 0) for process in self.recipe.process]
        return [stack for stack in found if stack is not None]

    def files(self) -> list[FileSet]:
        return [self._files(asset, number) for number, asset in enumerate(self.recipe.asset)]

    def needs(self) -> set[str]:
        """Parts of the front door (`./wirespeed build NAME`) that this cell's programs need."""
        parts: set[str] = set()
        for process in self.recipe.process:
            names = names_of(self, process, 0, self._noting(parts))
            argv = self._filled(f"process.{process.name}.argv", process.argv, names)
            if process.tool in ("load", "wrk", "h2load", "ab"):
                parts.add(process.tool)
            elif argv and Path(argv[0]).name in ("nginx", "haproxy"):
                parts.add(Path(argv[0]).name)
        return parts

    def _noting(self, found: set[str]) -> Functions:
        """The functions of templates, which only note the programs of this repository."""

        def note(name: str) -> str:
            if name in MODULES:
                found.add(name)
            return name

        def note_flags(name: str) -> list[str]:
            note(name)
            return []

        return {"asset": note, "jvm": note_flags, "template": str}

    def _instance(self, process: ProcessSpec, index: int, seats: dict[str, list[Seat]]) -> Instance:
        key = f"process.{process.name}"
        label = f"{process.name}-{index}"
        names = self._names(process, index)
        argv = self._filled(f"{key}.argv", process.argv, names)
        if process.tool in RATE_TOOLS:
            self._check_rate(process, index, argv)
        if argv[:1] == ["java"]:
            argv[0] = self.place.java
        elif argv and not process.cwd:
            argv[0] = _beside(argv[0], self.file.parent)
        return Instance(
            name=process.name,
            index=index,
            role=process.role,
            tool=process.tool or _tool_of(argv),
            argv=argv,
            seats=seats.get(label) or self.topology.roles[process.role][:1],
            port=self.port_of(process, index),
            stack=self._stack(process),
            env=self._env(process, names),
            limits={str(name): value for name, value in process.limits.items()},
            ready=self._check(process, names),
            variables=self._variables(process, index, seats),
            template=process.template,
            cwd=str(self._fill(f"{key}.cwd", process.cwd, names)),
            user=process.user,
            netns=self._netns(process, names),
            under=self._under(process, index),
            version=tuple(self._filled(f"{key}.version", process.version, names)),
            prepare=tuple(self._prepare(process, names)),
            figures=process.figures,
            side=self.place.side,
        )

    def _check_rate(self, process: ProcessSpec, index: int, argv: list[str]) -> None:
        """A rate that is divided among generators may leave some of them none."""
        rate = _rate_of(argv)
        if rate is not None and rate <= 0:
            self._fail(
                f"process.{process.name}.argv",
                f"generator {index + 1} of {self.count(process)} would send {rate:g} requests per "
                "second (raise the rate, or lower the count)",
            )

    def _env(self, process: ProcessSpec, names: Names) -> dict[str, str]:
        key = f"process.{process.name}.env"
        inherited = {name: os.environ[name] for name in process.inherit if name in os.environ}
        env = {k: str(self._fill(f"{key}.{k}", v, names)) for k, v in process.env.items()}
        return {**inherited, **env}

    def _prepare(self, process: ProcessSpec, names: Names) -> list[str]:
        argv = self._filled(f"process.{process.name}.prepare", process.prepare, names)
        if argv and not process.cwd:
            argv[0] = _beside(argv[0], self.file.parent)
        return argv

    def _netns(self, process: ProcessSpec, names: Names) -> dict[str, str] | None:
        """None where the link has no interface to share, as the loopback has none."""
        if process.netns is None or not self.topology.links.get(self.link):
            return None
        key = f"process.{process.name}.netns"
        on = str(self._fill(f"{key}.on", process.netns.on, names))
        if not on:
            return None
        return {"on": on, "addr": str(self._fill(f"{key}.addr", process.netns.addr, names))}

    def _check(self, process: ProcessSpec, names: Names) -> Check | None:
        if not process.ready:
            return None
        key = f"process.{process.name}.ready"
        length: Any = process.ready.length
        if isinstance(length, str):
            length = self._fill(f"{key}.length", length, names)
        return Check(
            url="" if process.ready.log else self._asked(key, process.ready, names),
            status=process.ready.status,
            length=None if length is None else units.size_bytes(length),
            within_s=process.ready.within,
            log=process.ready.log,
        )

    def _asked(self, key: str, ready: Ready, names: Names) -> str:
        if ready.http:
            url = str(self._fill(f"{key}.http", ready.http, names))
            if problem := _problem_of_url(url):
                self._fail(f"{key}.http", f"{url!r} {problem}")
            return url
        address = str(self._fill(f"{key}.tcp", ready.tcp, names))
        host, colon, port = address.rpartition(":")
        if not (host and colon and port.isdigit() and 0 < int(port) < 65536):
            self._fail(f"{key}.tcp", f"{address!r} is not ADDRESS:PORT")
        return f"tcp://{address}"

    def _variables(
        self, process: ProcessSpec, index: int, seats: dict[str, list[Seat]]
    ) -> dict[str, Any]:
        cores = [seat.core for seat in seats.get(f"{process.name}-{index}", [])]
        return {
            **self.cell.axes,
            "port": self.port_of(process, index),
            "i": index,
            "cores": cores,
            "workers": self.workers(process) or max(1, len(cores)),
            "run": {"dir": self.place.run_dir, "tmp": self.place.run_tmp},
            "address": self.address_of(process.role),
            "limits": dict(process.limits),
            "processes": {one.name: self._process_names(one) for one in self.recipe.process},
            **self._origin(),
        }

    def _process_names(self, process: ProcessSpec) -> dict[str, Any]:
        """What a template may know of any process: where it listens, and how many there are."""
        count = self.count(process)
        ports = [self.port_of(process, index) for index in range(count)]
        return {"addr": self.address_of(process.role), "count": count, "ports": ports}

    def _origin(self) -> dict[str, str]:
        """`origin` in templates: where the first origin process listens."""
        for process in self.recipe.process:
            if process.role == "origin" and process.port:
                return {"origin": f"{self.address_of('origin')}:{self.port_of(process, 0)}"}
        return {}

    def _files(self, asset: Asset, number: int) -> FileSet:
        key = f"asset[{number}]"
        names = self._names(None, 0)
        at = asset.mount.at if asset.mount else asset.at or "{{ run.tmp }}/files"
        mount = asset.mount
        return FileSet(
            folder=str(self._fill(f"{key}.at", at, names)),
            name=str(self._fill(f"{key}.files.name", asset.files.name, names)),
            size_bytes=units.size_bytes(
                self._fill(f"{key}.files.bytes", str(asset.files.bytes), names)
            ),
            fill=asset.files.fill,
            role=asset.role,
            mount={"size": mount.size, "options": mount.options} if mount else None,
        )

    def _stack(self, process: ProcessSpec) -> str:
        if not process.stack:
            return ""
        key = f"process.{process.name}.stack"
        name = str(self._value(key, process.stack, process))
        if name not in self.recipe.stacks:
            known = ", ".join(self.recipe.stacks) or "none"
            self._fail(key, f"unknown stack {name!r} (stacks: {known})")
        return name

    def _under(self, process: ProcessSpec, index: int) -> Stack | None:
        name = self._stack(process)
        if not name:
            return None
        stack = self.recipe.stacks[name]
        names = self._names(process, index)
        profile = self._fill(f"stacks.{name}.profile", stack.profile, names)
        placed = {**stack.model_dump(), "profile": str(profile)}
        return PlacedStack(
            **placed,
            has_onload=self.topology.has_onload,
            interface=self._interface(process.role),
        )

    def _interface(self, role: str) -> str:
        """The link's, on the hosts of this role; empty where server and load share a host."""
        link = self.topology.links.get(self.link)
        return getattr(link, role, "") if link and self.topology.is_apart else ""

    def port_of(self, process: ProcessSpec, index: int) -> int | None:
        if not process.port:
            return None
        port = process.port.base + process.port.step * index
        if self.place.side:
            port += SIDE_PORTS if port + SIDE_PORTS <= PORT_MAX else -SIDE_PORTS
        if port > PORT_MAX:
            self._fail(
                f"process.{process.name}.port",
                f"instance {index} would have port {port} (the highest is {PORT_MAX})",
            )
        return port

    def address_of(self, role: str) -> str:
        return self.topology.address_of(role, self.link)

    # -- names ------------------------------------------------------------------------------

    def _names(self, process: ProcessSpec | None, index: int) -> Names:
        label = f"{process.name}-{index}{self.place.side}" if process else ""
        return names_of(self, process, index, {
            "asset": self._asset,
            "jvm": lambda name: jvm_options(self.place.root / "servers" / name,
                                            self.place.java_major),
            "template": lambda name: f"{self.place.run_dir}/{template_file(label, name)}",
        })  # fmt: skip

    def _asset(self, name: str) -> str:
        if name in MODULES:
            return str(self.place.root / "servers" / name / "target" / f"{name}.jar")
        file = self.file.parent / name
        if file.exists():
            return str(file.resolve())
        raise BadTemplateError(
            f"unknown asset {name!r} (neither {file} nor one of {', '.join(MODULES)})"
        )

    # -- filling ----------------------------------------------------------------------------

    def _value(self, key: str, value: Any, process: ProcessSpec | None) -> Any:
        if not isinstance(value, str):
            return value
        filled = self._fill(key, value, self._names(process, 0))
        return int(filled) if isinstance(filled, str) and filled.isdigit() else filled

    def _fill(self, key: str, text: str, names: Names) -> Any:
        try:
            value = value_of(text, names)
        except BadTemplateError as error:
            self._fail(key, str(error))
        return "" if value is OMITTED else value

    def _filled(self, key: str, argv: list[str], names: Names) -> list[str]:
        try:
            return arguments_of(argv, names)
        except BadTemplateError as error:
            self._fail(key, str(error))

    def _fail(self, key: str, problem: str) -> NoReturn:
        raise RecipeError(self.file.name, key, problem)


def _problem_of_url(url: str) -> str:
    """Why readiness cannot be asked there; empty when it can."""
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - it is read here, and refused here
    except ValueError as error:
        return f"is not an address: {error}"
    if parts.scheme != "http" or not parts.hostname:
        return "is not http://HOST:PORT/PATH; of a server that speaks TLS ask with tcp or log"
    if not all(33 <= ord(character) < 127 for character in url):
        return "holds what a URL has to encode, %20 for a space"
    return ""


def template_file(label: str, name: str) -> str:
    """The name of a rendered template: each instance has its own."""
    return f"{label}-{name}"


def _rate_of(argv: list[str]) -> float | None:
    """The number of -R or --rate; None without one, and where only the program can read it."""
    for place, word in enumerate(argv):
        if word in ("-R", "--rate"):
            text = "".join(argv[place + 1 : place + 2])
        elif word.startswith(("-R", "--rate=")):
            text = word.removeprefix("-R").removeprefix("--rate=")
        else:
            continue
        try:
            return float(text)
        except ValueError:
            return None
    return None


def _beside(program: str, folder: Path) -> str:
    """`./my-server` is relative to the recipe; a bare name is looked up on the path."""
    is_relative = "/" in program and not Path(program).is_absolute()
    return str((folder / program).resolve()) if is_relative else program


def _tool_of(argv: list[str]) -> str:
    program = Path(argv[0]).name if argv else ""
    return {"java": "jvm", "nginx": "nginx"}.get(program, "command")


def jvm_options(module: Path, java_major: int) -> list[str]:
    """The module's jvm.options: one flag a line; `24+: --flag` is for Java 24 and newer."""
    path = module / "jvm.options"
    if not path.exists():
        return []
    options: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        text = line.split("#")[0].strip()
        least, mark, flag = text.partition("+:")
        if mark and least.isdigit():
            text = flag.strip() if java_major >= int(least) else ""
        options += text.split()
    return options
