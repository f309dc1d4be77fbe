"""What a run directory holds, as frozen records; docs/results-format.md describes every field.

Format history: 1 = first version.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Literal, Self

FORMAT = 1

Axes = dict[str, Any]
CellState = Literal["planned", "not-runnable", "does-not-fit", "thinned"]
RunState = Literal["running", "done", "interrupted", "failed"]
Bottleneck = Literal["server", "client", "both", "link", "concurrency", "unknown"]


class _Record:
    """JSON in and out; unknown fields of a newer minor writer are ignored, missing ones default."""

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        names = {f.name for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
        return cls(**{name: value for name, value in data.items() if name in names})

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)  # type: ignore[call-overload, no-any-return]


@dataclass(frozen=True)
class RunPlan(_Record):
    """How the run was measured: run.json's `plan`. Durations are after the budget's shortening."""

    repeat: int = 5
    order: str = "interleaved"
    baseline: Axes = field(default_factory=dict)
    warmup_s: float = 0.0
    duration_s: float = 0.0
    cooldown_s: float = 0.0
    ceiling: dict[str, Any] = field(default_factory=dict)
    settle_s: float | None = None  # None: a run from before it was recorded
    duet: dict[str, float] = field(default_factory=dict)  # the recipe's times; empty: no duets
    threshold: float = 0.02  # a share; a smaller difference is none


@dataclass(frozen=True)
class Run(_Record):
    """run.json: one run of one recipe on one site."""

    run_id: str
    recipe: str
    title: str = ""
    method: str = ""
    recipe_hash: str = ""
    recipe_format: int = 1  # its key `wirespeed`: 1 also of runs from before it was recorded
    site: str = "here"
    started: str = ""  # ISO 8601, UTC
    ended: str | None = None
    state: RunState = "running"
    wirespeed_version: str = ""
    commit: str = ""
    seed: int = 0
    argv: list[str] = field(default_factory=list)
    plan: RunPlan = field(default_factory=RunPlan)
    thinned: list[str] = field(default_factory=list)
    fit: str = "strict"
    budget_s: float | None = None
    analyses: int = 1  # how often its verdicts stood to be read: once, and at each extension again
    is_sequential: bool = False  # begun as a run that goes on until it is decided
    analysed_at: list[int] = field(default_factory=list)  # its rounds at each interim analysis
    rounds_max: int = 0  # that such a run may come to; 0: of an earlier build, or a plain run
    decided: list[dict[str, Any]] = field(default_factory=list)  # before rounds were added: keys
    # `of` (two cells or contenders, and the metric), `word`, `bound` and `rounds`
    nice: int = 0  # of every measured program
    preflight: str = ""  # what the machine could decide when the run began
    idle_held: bool = False
    labels: dict[str, str] = field(default_factory=dict)  # of the user: branch, build, what it is
    note: str = ""
    tuned: list[str] | None = None  # what was changed on the machine meanwhile; None: not asked for
    facts: dict[str, Any] = field(default_factory=dict)
    audit: list[list[str]] = field(default_factory=list)  # [what, found, why]: what differs
    axes: dict[str, list[Any]] = field(default_factory=dict)
    tables: list[dict[str, Any]] = field(default_factory=list)
    metrics: list[dict[str, Any]] = field(default_factory=list)
    stacks: dict[str, Any] = field(default_factory=dict)
    format: int = FORMAT

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        run = super().from_json(data)
        plan = RunPlan.from_json(data.get("plan", {}))
        analyses = data.get("analyses", data.get("looks", 1))  # its name in earlier runs
        return dataclasses.replace(run, plan=plan, analyses=analyses)


BY_RECIPE = "left out by the recipe"  # reasons of cells that a run is not meant to have
BY_ONLY = "left out by --only"


@dataclass(frozen=True)
class PlannedTrial(_Record):
    """One line of plan.jsonl. Cells that are not measured stand there once, in round 0."""

    position: int
    round: int
    cell: str
    key: str
    axes: Axes = field(default_factory=dict)
    state: CellState = "planned"
    reason: str = ""
    life: int = 0  # trials with the same number share one server's session, in this order
    over: str = ""  # the baseline's cell, with whose server this one's takes turns


@dataclass(frozen=True)
class Window(_Record):
    """The measured window, after warm-up."""

    start_unix_ns: int
    length_ns: int


@dataclass(frozen=True)
class Process(_Record):
    """One process of a trial: what was started, where, and what it cost in the window."""

    name: str
    index: int
    role: str
    argv: list[str] = field(default_factory=list)
    host: str = "here"  # the site's name of it
    cores: list[int] = field(default_factory=list)
    pid: int = 0
    exit: int | None = None
    cpu_s: float = 0.0
    max_rss_mib: float = 0.0


@dataclass(frozen=True)
class Calibration(_Record):
    """Fixed work on the server's core before and after the trial, in milliseconds."""

    before_ms: float
    after_ms: float


@dataclass(frozen=True)
class DuetRatio(_Record):
    """One metric of a pair that took turns, the contender over the baseline."""

    log: float  # natural logarithm of the ratio
    error: float | None  # its standard error within the pair, over blocks; None of a single block
    blocks: int


@dataclass(frozen=True)
class Duet(_Record):
    """A pair of fresh servers that took turns: `over` is the baseline's cell."""

    over: str
    ratios: dict[str, DuetRatio] = field(default_factory=dict)
    groups: int = 0  # of four slices each
    left_out: int = 0  # groups in which something was still in flight at a freeze
    slice_s: float = 0.0
    seconds: float = 0.0  # of all its turns, also of those beyond its planned time
    how: str = ""  # cgroup.freeze or SIGSTOP
    # Share of their cores that the servers used in their turns, the baseline's and the contender's;
    # None where they poll. Empty: of an earlier build.
    busy: list[float | None] = field(default_factory=list)
    is_realtime: bool = False  # whoever lets them take turns has real-time priority
    problem: str = ""  # why it has no ratios
    is_failure: bool = False  # the problem is one of its programs, as in a trial that failed

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        duet = super().from_json(data)
        ratios = {name: DuetRatio.from_json(one) for name, one in data.get("ratios", {}).items()}
        return dataclasses.replace(duet, ratios=ratios)


@dataclass(frozen=True)
class Trial(_Record):
    """trial.json: one finished trial. It exists only when complete (it is written by rename)."""

    key: str
    cell: str
    round: int
    position: int
    attempt: int = 1
    axes: Axes = field(default_factory=dict)
    t_start: float = 0.0
    t_end: float = 0.0
    window: Window | None = None
    valid: bool = True
    reasons: list[str] = field(default_factory=list)
    bottleneck: Bottleneck = "unknown"
    notes: list[str] = field(default_factory=list)
    shared_cores: bool = False
    metrics: dict[str, float | None] = field(default_factory=dict)
    processes: list[Process] = field(default_factory=list)
    calibration: Calibration | None = None
    disturbed: float = 0.0  # the share of its speed that others may have taken
    slowed: float = 0.0  # the part of it that a slow host took, by the calibration loop
    discarded: list[str] = field(default_factory=list)  # windows that do not count, and why
    idle_held: bool | None = None  # off idle states; None: a trial from before it was recorded
    duet: Duet | None = None  # after this trial, with the baseline's server of the same round
    format: int = FORMAT

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        trial = super().from_json(data)
        window = data.get("window")
        calibration = data.get("calibration", data.get("canary"))  # its name in earlier runs
        return dataclasses.replace(
            trial,
            window=Window.from_json(window) if window else None,
            calibration=Calibration.from_json(calibration) if calibration else None,
            processes=[Process.from_json(entry) for entry in data.get("processes", [])],
            duet=Duet.from_json(data["duet"]) if data.get("duet") else None,
        )


@dataclass(frozen=True)
class Sample(_Record):
    """One line of samples.jsonl: resource figures at one instant of the measured window."""

    t_ns: int
    values: dict[str, float] = field(default_factory=dict)
