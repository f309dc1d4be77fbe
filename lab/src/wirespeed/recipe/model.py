"""Every key of a recipe, with its type and default. Unknown keys are errors.

`docs/recipes.md` explains the keys; the names here are those of the TOML.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    WithJsonSchema,
    field_serializer,
    field_validator,
    model_validator,
)

from wirespeed import extensions, units
from wirespeed.errors import UnitError

Scalar = str | int | float | bool
THRESHOLD_LEAST, THRESHOLD_MOST = 0.001, 0.5  # a server differs from itself by some 0.05 %
SLICE_LEAST_S, SLICE_MOST_S = 0.002, 1.0
PAIR_SLICES = 20  # five groups of four: fewer cannot be trimmed
LEASE_LEAST_S = 1.0
REPEAT_MAX = 1000  # a repeat beyond this is a typing error


def _seconds(value: Any) -> float:
    try:
        return units.duration_s(value)
    except UnitError as error:
        raise ValueError(str(error)) from error


Seconds = Annotated[float, BeforeValidator(_seconds, json_schema_input_type=str | float)]
# Names stand in placeholders, file names and cgroup names, so they stay plain.
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9_-]*$")]


def threshold_share(value: Any) -> float:
    """Of `plan.threshold` and `--threshold`; raises ValueError."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?%", value) if isinstance(value, str) else None
    share = float(found[1]) / 100 if found else 0.0
    if not THRESHOLD_LEAST <= share <= THRESHOLD_MOST:
        raise ValueError(f'{value!r} is not a share from 0.1% to 50% (write "1%")')
    return share


def _one_or_many(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


Names = Annotated[
    list[Name], BeforeValidator(_one_or_many, json_schema_input_type=Name | list[Name])
]


Scalars = Annotated[
    list[Scalar], BeforeValidator(_one_or_many, json_schema_input_type=Scalar | list[Scalar])
]


class Strict(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, populate_by_name=True, allow_inf_nan=False
    )


class Ramp(Strict):
    """An axis walked in order inside one server's life."""

    ramp: list[Scalar] = Field(min_length=1)


class DuetPlan(Strict):
    """How two contenders take turns."""

    pair: Seconds = 8.0  # of one pair of fresh servers
    slice: Seconds = 0.025  # below the time in which the machine's own speed changes
    skip: Seconds = 0.005  # after each thaw, in no rate: connections and caches start again
    drain: Seconds = 0.05  # a response that takes longer costs its group of slices
    block: Seconds = 2.0  # groups in it are trimmed together; long enough for a garbage collection

    @model_validator(mode="after")
    def _fit_into_each_other(self) -> DuetPlan:
        if not SLICE_LEAST_S <= self.slice <= SLICE_MOST_S:
            raise ValueError("slice is out of range (2ms to 1s, usually 25ms)")
        if not 0 <= self.skip <= self.slice / 2:
            raise ValueError("skip is too long (at most half a slice)")
        if self.pair < PAIR_SLICES * self.slice:
            raise ValueError(f"pair is too short (at least {PAIR_SLICES} slices)")
        if min(self.drain, self.block) <= 0:
            raise ValueError("drain and block must be longer than 0")
        return self


class Plan(Strict):
    # duet: what is compared lives next to each other and takes turns, where it can
    method: Literal["trials", "duet"] = "trials"
    duet: DuetPlan = Field(default_factory=lambda: DuetPlan.model_validate({}))
    repeat: int | None = Field(None, ge=1, le=REPEAT_MAX)  # None: as many as the verdicts need
    order: Literal["interleaved", "blocked"] = "interleaved"
    baseline: dict[Name, Scalar] = {}
    ceiling: dict[Name, Scalar] = {}  # cells without the server: what the rest can do
    settle: Seconds = 0.0
    warmup: Seconds = 3.0
    warmup_least: Seconds = 2.0  # a JVM below this is still being compiled
    duration_least: Seconds = 1.0  # shorter windows lose the resource figures: ticks of 10 ms
    step_warmup: Seconds = 0.25  # before each window: connections open, buffers fill
    duration: Seconds = 10.0
    cooldown: Seconds = 0.0
    restart: str = "trial"
    skip: list[dict[Name, Scalar]] = []
    # of gain and loss: a smaller difference is none
    threshold: Annotated[float, BeforeValidator(threshold_share, json_schema_input_type=str)] = 0.02

    @model_validator(mode="after")
    def _duets_have_a_baseline(self) -> Plan:
        if self.method == "duet" and len(self.baseline) != 1:
            raise ValueError('method = "duet" needs a baseline (for example { stack = "kernel" })')
        if self.method == "duet" and self.order == "blocked":
            raise ValueError('method = "duet" does not work with order = "blocked" (remove it)')
        return self


class Stack(Strict):
    provider: Literal["auto", "onload", "bypass", "none"] = "none"
    profile: str = ""
    env: dict[str, str] = {}


class PlacedStack(Stack):
    """A stack on a site; `has_onload` as its hosts reported, None where this machine is asked."""

    has_onload: bool | None = None
    interface: str = ""  # where bypass carries connections with other hosts; empty: nowhere


class Mount(Strict):
    type: Literal["tmpfs"]
    size: str = "64m"
    options: str = ""
    at: str


class Files(Strict):
    name: str
    bytes: Scalar
    fill: Literal["zero", "random"] = "zero"


class Asset(Strict):
    role: Name = "server"
    mount: Mount | None = None
    at: str = ""
    files: Files


def _cores(value: Any) -> Any:
    numbers = value if isinstance(value, list) else []
    is_list = bool(numbers) and all(type(core) is int and core >= 0 for core in numbers)
    is_text = isinstance(value, str) and re.fullmatch(r"all|from \d+", value)
    if not (is_text or (is_list and len(set(numbers)) == len(numbers))):
        raise ValueError(
            f'{value!r} does not select cores (write "from 0" for the cores of the role, "all", '
            "or a list of different core numbers such as [2, 3])"
        )
    return value


class Pin(Strict):
    cores: Annotated[str | list[int], BeforeValidator(_cores)] = "from 0"
    per: int = Field(1, ge=1)
    numa: Literal["spread", "near", "any"] = "any"
    smt: Literal["avoid", "use"] = "use"
    workers: str | int | None = None


class Port(Strict):
    base: int = Field(ge=1, le=65535)
    step: int = Field(1, ge=0)


def _expression(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"{value!r} is not a regular expression: {error}") from error
    return value


class Ready(Strict):
    http: str = ""
    tcp: str = ""  # ADDRESS:PORT of a server that speaks no HTTP: a connection is enough
    log: Annotated[str, AfterValidator(_expression)] = ""  # a line of its output
    status: int = 200
    length: Scalar | None = None
    within: Seconds = 30.0

    @model_validator(mode="after")
    def _one_of_both(self) -> Ready:
        if sum(map(bool, (self.http, self.tcp, self.log))) != 1:
            raise ValueError(
                'needs one of http = "http://…", tcp = "ADDRESS:PORT" and log = "REGEX"'
            )
        if not self.http and {"status", "length"} & self.model_fields_set:
            raise ValueError("status and length need http")
        return self


class Namespace(Strict):
    kind: Literal["macvlan"]
    on: str
    addr: str


def _texts(value: Any) -> Any:
    """Numbers in a command line are texts; `["-c", 50]` is what a user means."""
    if not isinstance(value, list):
        return value
    plain = (int, float)
    return [
        str(item) if isinstance(item, plain) and not isinstance(item, bool) else item
        for item in value
    ]


Texts = Annotated[
    list[str], BeforeValidator(_texts, json_schema_input_type=list[str | int | float])
]


class Requires(Strict):
    java: str | int | None = None


FigureNames = Literal[
    "rps", "completed", "seconds", "bytes_per_second", "errors", "non_2xx", "connections",
    "mean", "max", "p50", "p75", "p90", "p95", "p99", "p99_9", "p99_99",
]  # fmt: skip


def _pattern(value: str) -> str:
    if re.compile(_expression(value)).groups != 1:
        raise ValueError(f"{value!r} needs exactly one group (put the number in parentheses)")
    return value


class OwnFigures(Strict):
    """Where the figures stand in the output of a load tool that the lab does not know."""

    json_: dict[FigureNames, str] = Field({}, alias="json")  # paths
    text: dict[FigureNames, Annotated[str, AfterValidator(_pattern)]] = {}  # regular expressions
    unit: Literal["ns", "us", "ms", "s"] = "ms"  # of mean, max and quantiles

    @model_validator(mode="after")
    def _has_rate(self) -> OwnFigures:
        if bool(self.json_) == bool(self.text):
            raise ValueError("needs one of json = { … } and text = { … }")
        if "rps" not in {**self.json_, **self.text}:
            raise ValueError("rps is missing (map at least the rate)")
        return self


LimitName = Literal["nofile", "memlock", "nproc", "core"]


TOOLS = ("load", "wrk", "wrk2", "h2load", "ab", "oha", "k6", "vegeta", "nginx", "jvm", "command")
SITE_KINDS = ("local", "netns", "ssh", "slurm", "exec")


def _one_of(known: Sequence[str], group: str, value: str) -> str:
    if value not in known and value not in extensions.names(group):
        *first, last = (repr(name) for name in (*known, *extensions.names(group)))
        raise ValueError(f"{value!r} is not one of {', '.join(first)} or {last}")
    return value


Tool = Annotated[
    str,
    AfterValidator(lambda value: _one_of(TOOLS, extensions.GENERATORS, value)),
    WithJsonSchema({"type": "string", "examples": list(TOOLS)}),
]
SiteKind = Annotated[
    str,
    AfterValidator(lambda value: _one_of(SITE_KINDS, extensions.SITES, value)),
    WithJsonSchema({"type": "string", "examples": list(SITE_KINDS)}),
]
#: Load tools whose output the lab reads, with the options that set their window.
WINDOW_OPTIONS: dict[str, tuple[str, ...]] = {
    "load": ("-d", "--duration"), "wrk": ("-d", "--duration"), "wrk2": ("-d", "--duration"),
    "h2load": ("-D", "--duration"), "ab": ("-t",), "oha": ("-z",), "k6": ("-d", "--duration"),
    "vegeta": ("-duration",),
}  # fmt: skip


def has_figures(tool: str | None) -> bool:
    """Whether the lab or an installed package reads the output of this load tool."""
    return tool in WINDOW_OPTIONS or tool in extensions.names(extensions.GENERATORS)


# They read no fractions of a second; k6 refuses what is shorter than one.
WHOLE_SECOND_TOOLS = ("wrk", "wrk2", "ab", "k6")


class ProcessSpec(Strict):
    name: Name
    role: Literal["server", "load", "origin"]
    argv: Texts = Field(min_length=1)
    count: str | int = 1
    pin: Pin | None = None
    port: Port | None = None
    netns: Namespace | None = None
    stack: str = ""
    tool: Tool | None = None
    figures: OwnFigures | None = None
    template: dict[str, str] = {}
    limits: dict[LimitName, int] = {}
    env: dict[str, str] = {}
    inherit: Names = []  # variables of the user's environment; all others are left out
    cwd: str = ""
    user: str = ""  # as whom it runs; empty: the lab's own user
    requires: Requires = Requires()
    version: Texts = []  # a command that prints it
    prepare: Texts = []  # run to its end before each start
    ready: Ready | None = None

    @model_validator(mode="after")
    def _is_prepared(self) -> ProcessSpec:
        if self.prepare and self.role == "load":
            raise ValueError("prepare is for servers and origins (remove it from this generator)")
        return self


SysctlName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_-]*([./][A-Za-z0-9_-]+)+$")]


class Services(Strict):
    stop: list[str] = []


class Tune(Strict):
    role: Names = ["server", "load"]
    services: Services = Services()
    coalesce: dict[str, Scalar] = {}
    sysctl: dict[SysctlName, Scalar | dict[Literal["server", "load", "origin"], int]] = {}
    limits: dict[LimitName, int] = {}
    expect: dict[str, Scalar] = {}


SampleName = Literal[
    "cpu", "loadavg", "context_switches", "network", "memory", "runqueue", "psi", "steal", "gc"
]


class SampleSpec(Strict):
    every: Seconds = 0.2
    server: list[SampleName] = []  # of the server's machine
    load: list[Literal["cpu"]] = []
    origin: list[Literal["cpu"]] = []


def _quantile(value: float) -> float:
    if not 0 < value < 1:
        raise ValueError(f'{value:g} is not a quantile (for example 0.5, 0.99, "mean" or "max")')
    return value


Quantile = Annotated[float, AfterValidator(_quantile)]


class Metric(Strict):
    name: Name
    from_: Name = Field(alias="from")
    field: Literal["rps", "bytes_per_second", "service", "response", "connect", ""] = ""
    combine: Literal["sum", "histogram"] = "sum"
    quantiles: list[Quantile | Literal["mean", "max"]] = []
    unit: str = ""
    better: Literal["higher", "lower"] = "higher"

    @model_validator(mode="after")
    def _times_are_merged(self) -> Metric:
        is_time = bool(self.quantiles) or self.field in ("service", "response", "connect")
        if is_time and self.combine == "sum":
            raise ValueError('quantiles cannot be summed (write combine = "histogram")')
        return self

    @model_validator(mode="after")
    def _unit_is_what_is_counted(self) -> Metric:
        """Units must be convertible: another one would be a false name."""
        known, unit = [one for one in units.BYTE_RATES if one], self.unit
        if self.field == "bytes_per_second" and unit and unit not in known:
            raise ValueError(
                f"{unit!r} is not a unit of bytes_per_second (use one of {', '.join(known)})"
            )
        if self.field in ("rps", "") and unit in known:
            raise ValueError(f'{unit} is not a unit of requests (add field = "bytes_per_second")')
        return self


class GainSpec(Strict):
    over: Scalar
    round: int = Field(0, ge=0, le=6)


class Published(Strict):
    file: str
    scale: float = 1.0
    stacks: dict[str, str] = {}


class Table(Strict):
    title: str = ""
    each: Names = []
    where: dict[Name, Scalars] = {}
    rows: Names
    columns: Name | None = None
    value: str | None = None
    values: list[str] = []
    gain: GainSpec | None = None
    published: Published | None = None


class Recipe(Strict):
    wirespeed: Literal[2]  # the format: of recipes of format 1 see recipe/upgrade.py
    name: Name
    title: str = ""
    method: str = ""
    axes: dict[Name, list[Scalar] | Ramp] = {}
    axis: dict[Name, dict[str, dict[str, Any]]] = {}
    plan: Plan = Field(default_factory=lambda: Plan.model_validate({}))
    stacks: dict[Name, Stack] = {}
    asset: list[Asset] = []
    process: list[ProcessSpec] = Field(min_length=1)
    tune: Tune | None = None
    sample: SampleSpec = SampleSpec()
    metric: list[Metric] = []
    table: list[Table] = []

    def axis_values(self) -> dict[str, list[Scalar]]:
        """Every axis with all its values, in the recipe's order."""
        return {
            name: list(values.ramp if isinstance(values, Ramp) else values)
            for name, values in self.axes.items()
        }

    def ramps(self) -> list[str]:
        return [name for name, values in self.axes.items() if isinstance(values, Ramp)]


class RoleSite(Strict):
    """Where the processes of one role run. docs/sites.md explains each kind."""

    cores: list[int] = []
    host: str | None = None  # ssh: as the ssh command takes it
    hosts: list[str] = []
    count: Annotated[int, Field(ge=1, le=1024)] = 1  # netns: that many hosts
    addr: str | dict[str, str] = ""  # one address, or one for each link


def _rate(value: Any) -> Any:
    try:
        if value:
            units.link_bits_per_second(value)
    except UnitError as error:
        raise ValueError(str(error)) from error
    return value


Rate = Annotated[str, BeforeValidator(_rate)]


class LinkSpec(Strict):
    rate: Rate = ""  # 25gbit, 400mbit: as tc writes it, in bits a second
    mtu: int | None = Field(None, ge=576, le=65535)
    speed: str = ""  # the published link that it stands for
    server: str = ""  # the interface on the server's host
    load: str = ""
    net: str = ""
    queues: int | None = Field(None, ge=1, le=64)  # of the interfaces that `netns` makes


class SlurmSpec(Strict):
    nodes: int = 2
    partition: str = ""
    options: list[str] = []  # of salloc
    job: int | None = None  # an allocation that exists already


class Site(Strict):
    kind: SiteKind = "local"
    housekeeping: list[int] = []
    server: RoleSite = RoleSite()
    load: RoleSite = RoleSite()
    origin: RoleSite = RoleSite()
    link: dict[str, LinkSpec] = {}
    fit: Literal["strict", "share", "pairs"] = "strict"
    # high: measured programs before all others, where this user may; the default on the loopback.
    # With a link the kernel's own threads serve packets, and high would hold them back.
    priority: Literal["high", "normal"] | None = None
    python: str = "python3"  # on other hosts: 3.9 or newer
    lease: Seconds = 10.0  # silence after which a host ends everything that it started for us
    options: list[str] = []  # of the ssh command: ["-F", "ssh_config", "-J", "jump"]
    command: list[str] = []  # exec: what starts a program on a host, `{{ host }}`
    slurm: SlurmSpec = SlurmSpec()

    @model_validator(mode="after")
    def _has_no_ignored_keys(self) -> Site:
        """Keys of another kind of site would be ignored: `host` of a site that is `local`,
        as the kind is when none is said, measured this machine alone."""
        if self.kind not in SITE_KINDS:  # the package that adds a kind says what it reads
            return self
        if vain := [key for key, kinds in self._of_kinds() if self.kind not in kinds]:
            kinds = dict(self._of_kinds())[vain[0]]
            expected = " or ".join(f'"{kind}"' for kind in kinds) or '"netns", of load alone'
            raise ValueError(
                f'{vain[0]} needs kind = {expected} (this site has kind = "{self.kind}")'
            )
        return self

    def _of_kinds(self) -> list[tuple[str, tuple[str, ...]]]:
        """(key that is said, kinds of site that read it)"""
        keys: list[tuple[str, tuple[str, ...]]] = []
        for role, own in (("server", self.server), ("load", self.load), ("origin", self.origin)):
            keys += [(f"{role}.host", ("ssh", "exec"))] * bool(own.host)
            keys += [(f"{role}.hosts", ("ssh", "exec"))] * bool(own.hosts)
            keys += [(f"{role}.count", ("netns",) if role == "load" else ())] * (own.count != 1)
            keys += [(f"{role}.addr", ("local", "ssh", "slurm", "exec"))] * bool(own.addr)
        keys += [("options", ("ssh",))] * bool(self.options)
        keys += [("command", ("exec",))] * bool(self.command)
        keys += [("slurm", ("slurm",))] * (self.slurm != SlurmSpec())
        queues = any(link.queues is not None for link in self.link.values())
        keys += [("queues of a link", ("netns",))] * queues
        return keys

    @field_validator("lease")
    @classmethod
    def _lease_lasts(cls, lease: float) -> float:
        if lease < LEASE_LEAST_S:  # signs of life are sent five times in it
            raise ValueError(f"is too short (at least {units.duration_text(LEASE_LEAST_S)})")
        return lease

    @field_serializer("lease")
    def _lease_as_written(self, lease: float) -> str:
        return units.duration_text(lease)

    @property
    def is_high_priority(self) -> bool:
        if self.priority:
            return self.priority == "high"
        return self.kind == "local" and not self.link


class Sites(Strict):
    site: dict[Name, Site]
