"""The cells of a run with their trials, and how the run's own words find them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from wirespeed.errors import InputError
from wirespeed.results.model import BY_ONLY, BY_RECIPE, Axes, PlannedTrial, Run, Trial
from wirespeed.stats.comparison import median

SATURATED = 0.95  # a server or generator that is busy for more of its time than this
LITTLE_UNKNOWN = 0.10  # off Little's law by more: something queues outside the measured interval
TOGETHER = "the generators ran together for"  # begins a note of a trial
DISTURBED_MAX = 0.5  # a trial that lost more than this was refused, its program did not fail
DISTURBANCES = ("other programs", "the host", "the canary", "canary", "noisy")  # of older runs

# The same metric under the name that a recipe may use for it.
ALIASES = {
    "server.loadavg": "loadavg",
    "server.context_switches": "context_switches",
    "server.network_mbps": "network_mbps",
}


SHORT = re.compile(r"p\d+(_\d+)?|mean|max")


_DECIMAL = re.compile(r"((?:.*\.)?p\d+)\.(\d+)")  # of a percentile, as reports write it


def full_name(metric: str) -> str:
    """`p99` is short for `latency.p99`, and `p99.9` another name of `p99_9`."""
    if match := _DECIMAL.fullmatch(metric):
        metric = f"{match[1]}_{match[2]}"
    return f"latency.{metric}" if SHORT.fullmatch(metric) else metric


def values_of(option: str, text: str) -> tuple[tuple[str, str], ...]:
    """`payload=16,stack=kernel` as axes with their values; raises InputError."""
    pairs = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        axis, equals, value = (word.strip() for word in part.partition("="))
        if not (axis and equals and value):
            raise InputError(f"{option}: {part!r} is not AXIS=VALUE (one value for each axis)")
        pairs.append((axis, value))
    return tuple(pairs)


def is_value(value: object, text: str) -> bool:
    """Whether a text means this value of an axis; truth values as TOML or tables write them."""
    return text == str(value) or (isinstance(value, bool) and text == str(value).lower())


def is_time(metric: str) -> bool:
    """Whether it is of a merged histogram, whatever the recipe calls it: in microseconds."""
    name, _, quantile = metric.rpartition(".")
    return bool(name) and SHORT.fullmatch(quantile) is not None


@dataclass(frozen=True)
class Cell:
    """One point of the sweep with all its trials."""

    key: str
    axes: Axes
    state: str  # measured, no valid trial, not measured yet, or the plan's reason not to
    reason: str
    trials: tuple[Trial, ...] = ()  # the valid ones, in time order
    invalid: tuple[Trial, ...] = ()

    def values(self, metric: str) -> list[float]:
        name = self.stored(metric)
        figures = (trial.metrics.get(name) for trial in self.trials)
        return [value for value in figures if value is not None]

    def stored(self, metric: str) -> str:
        """The name that the cell's trials have a metric under."""
        name = ALIASES.get(metric, metric)
        return name if any(name in trial.metrics for trial in self.trials) else metric

    def by_round(self, metric: str) -> dict[int, float]:
        """The figure of each round; of a round that was measured twice the later one."""
        name = self.stored(metric)
        figures = {t.round: t.metrics.get(name) for t in self.trials}
        return {number: value for number, value in figures.items() if value is not None}

    def median(self, metric: str) -> float | None:
        values = self.values(metric)
        return median(values) if values else None

    @property
    def is_left_out(self) -> bool:
        """Whether the run was not meant to have it: plan.skip names it, or --only does not."""
        return self.state == "thinned" and self.reason in (BY_RECIPE, BY_ONLY)

    @cached_property
    def bottleneck(self) -> str:
        """The bottleneck in most of the cell's trials; a tie does not count as the server's."""
        counts = Counter(trial.bottleneck for trial in self.trials)
        if not counts:
            return "unknown"
        return max(counts, key=lambda name: (counts[name], name != "server"))

    @property
    def disturbed(self) -> float:
        """The share that its trials may have lost to noise from outside, on average."""
        return sum(trial.disturbed for trial in self.trials) / max(1, len(self.trials))

    @property
    def slowed(self) -> float:
        """The part of it that a slow host took, which slows whatever runs at the time."""
        return sum(trial.slowed for trial in self.trials) / max(1, len(self.trials))

    @property
    def failed(self) -> tuple[Trial, ...]:
        """Trials whose programs failed, alone or while they took turns; trials refused for a
        disturbance are not among them."""
        return tuple(
            trial
            for trial in (*self.trials, *self.invalid)
            if _failed_in_turns(trial) or not (trial.valid or _was_refused(trial))
        )

    @property
    def failures(self) -> str:
        """`failed 2 of 5`, or nothing."""
        count = len(self.failed)
        return f"failed {count} of {len(self.trials) + len(self.invalid)}" if count else ""

    @property
    def failed_share(self) -> float:
        return len(self.failed) / max(1, len(self.trials) + len(self.invalid))

    def fails_more_than(self, other: Cell) -> bool:
        """In number and in share: one failure in fewer rounds than before shows nothing new."""
        return len(self.failed) > len(other.failed) and self.failed_share > other.failed_share

    @property
    def failure(self) -> str:
        """Why the last of them failed."""
        return next(
            (reason for trial in reversed(self.failed) for reason in _reasons(trial)), "unknown"
        )

    @property
    def keeps_littles_law(self) -> bool:
        residuals = (trial.metrics.get("little_residual") for trial in self.trials)
        return not any(abs(residual) > LITTLE_UNKNOWN for residual in residuals if residual)

    @property
    def has_partly_alone(self) -> bool:
        """Whether in some trial a generator had the server for itself for a part of its window."""
        return any(note.startswith(TOGETHER) for trial in self.trials for note in trial.notes)

    @property
    def shares_cores(self) -> bool:
        return any(trial.shared_cores for trial in self.trials)

    def server_cores(self) -> int:
        cores = {
            core
            for trial in self.trials[:1]
            for process in trial.processes
            if process.role == "server"
            for core in process.cores
        }
        return max(1, len(cores))


def _failed_in_turns(trial: Trial) -> bool:
    return trial.duet is not None and trial.duet.is_failure


def _reasons(trial: Trial) -> list[str]:
    """Why the programs of a trial failed."""
    if trial.duet is not None and _failed_in_turns(trial):
        return [f"while taking turns: {trial.duet.problem}", *trial.reasons]
    return trial.reasons


def _was_refused(trial: Trial) -> bool:
    """Whether something from outside, not its own programs, made the trial invalid."""
    is_named = bool(trial.reasons) and all(r.startswith(DISTURBANCES) for r in trial.reasons)
    return trial.disturbed > DISTURBED_MAX or is_named


def known_name(cells: Iterable[Cell], metric: str) -> str | None:
    """The name under which any of the cells has a metric: as it is written, as the long one of
    `p99`, or of a histogram as its median."""
    cells = tuple(cells)
    names = (metric, full_name(metric), f"{metric}.p50")
    return next((name for name in names if any(cell.values(name) for cell in cells)), None)


def place(axes: Mapping[str, object]) -> str:
    """A cell in words: `payload 128, connections 100`."""
    return ", ".join(f"{name} {value}" for name, value in axes.items())


def prefix(axes: Mapping[str, object]) -> str:
    """`payload 128: `, in front of what is said of a cell; nothing where a recipe has no axes."""
    return f"{place(axes)}: " if axes else ""


def of_plan(plan: Iterable[PlannedTrial], trials: Iterable[Trial]) -> tuple[Cell, ...]:
    lines: dict[str, PlannedTrial] = {}
    for line in plan:
        if line.cell not in lines or line.state != "planned":
            lines[line.cell] = line
    done: dict[str, list[Trial]] = {}
    for trial in sorted(trials, key=lambda trial: trial.t_start):
        done.setdefault(trial.cell, []).append(trial)
    return tuple(_cell(line, done.get(key, [])) for key, line in lines.items())


def _cell(line: PlannedTrial, trials: list[Trial]) -> Cell:
    valid = tuple(trial for trial in trials if trial.valid)
    invalid = tuple(trial for trial in trials if not trial.valid)
    state: str = line.state
    reason = line.reason
    if valid:
        state, reason = "measured", ""
    elif invalid:
        state, reason = "no valid trial", "; ".join(invalid[-1].reasons)
    elif line.state == "planned":
        state, reason = "not measured yet", "the run ended before this cell"
    return Cell(line.cell, line.axes, state, reason, valid, invalid)


def order(run: Run, axes: Axes, names: Iterable[str]) -> tuple[int, ...]:
    """A cell's place: every axis in the recipe's own order of values."""
    places = []
    for name in names:
        values = run.axes.get(name, [])
        places.append(values.index(axes[name]) if axes.get(name) in values else len(values))
    return tuple(places)


def identity(axes: Axes) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, str(value)) for name, value in axes.items()))
