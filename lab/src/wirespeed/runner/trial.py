"""One trial: canary, warm-up, measured window, canary, verdict, record."""

from __future__ import annotations

import os
import statistics
from dataclasses import dataclass, field
from pathlib import Path

from wirespeed.driver import jvm
from wirespeed.driver.base import Figures
from wirespeed.driver.bypass import Served
from wirespeed.errors import StorageError
from wirespeed.probe import gc, window
from wirespeed.probe.window import Part, Usage
from wirespeed.process.start import Started
from wirespeed.results import store
from wirespeed.results.model import Canary, PlannedTrial, Process, Sample, Trial, Window
from wirespeed.runner import metrics, proof
from wirespeed.runner.cells import PlannedCell
from wirespeed.runner.generate import Generated, generate
from wirespeed.runner.judge import Evidence, Verdict, judge
from wirespeed.runner.life import Life
from wirespeed.runner.warm import warm

SAMPLES_MIN = 5  # a window shorter than this many beats is sampled more often


@dataclass
class Memory:
    """What a run remembers from trial to trial."""

    canaries_ms: list[float] = field(default_factory=list)
    idle_held: bool = True

    def median_ms(self) -> float | None:
        return statistics.median(self.canaries_ms) if len(self.canaries_ms) >= SAMPLES_MIN else None


@dataclass(frozen=True)
class Order:
    """Which trial to run, and where its files go."""

    line: PlannedTrial
    planned: PlannedCell
    folder: Path
    attempt: int
    is_first_of_life: bool


def measure(life: Life, order: Order, memory: Memory) -> Trial:
    """Measures one trial in a running life; nothing counts until its trial.json is written."""
    times = life.schedule.times
    warmup: list[float] = []
    before_ms = canary(life)
    memory.idle_held &= life.host.ask("hold_idle")["held"]
    try:
        if order.is_first_of_life:
            warmup = warm(life, order.planned, order.folder)
        before = proof.served(life)
        done = generate(
            life,
            order.planned,
            order.folder,
            times.duration_s,
            min(times.warmup_s, times.step_warmup_s),
            beat_s(life, times.duration_s),
        )
        served = (before, proof.served(life))
    finally:
        life.host.ask("release_idle")
    after_ms = canary(life)
    seen = _canary_of(before_ms, after_ms)
    return _Record(life, order, done, seen, warmup, served).make(memory)


def beat_s(life: Life, duration_s: float) -> float:
    return max(0.05, min(life.schedule.recipe.sample.every, duration_s / SAMPLES_MIN))


def canary(life: Life) -> float | None:
    """Fixed work on the server's first core; it may be busy with a server that polls."""
    cores = next((s.instance.cores for s in life.running if s.instance.role == "server"), [])
    answer = life.host.ask("canary", core=cores[0]) if cores else {"ms": None}
    return None if answer["ms"] is None else float(answer["ms"])


def _canary_of(before_ms: float | None, after_ms: float | None) -> Canary | None:
    return None if before_ms is None or after_ms is None else Canary(before_ms, after_ms)


class _Record:
    """From what a trial gave to its files."""

    def __init__(
        self,
        life: Life,
        order: Order,
        done: Generated,
        canary_seen: Canary | None,
        warmup: list[float],
        served: tuple[Served | None, Served | None],
    ) -> None:
        self.life, self.order, self.done = life, order, done
        self.canary, self.warmup, self.served = canary_seen, warmup, served
        self.everyone: list[Started] = [*life.running, *done.started]
        self.parts = [
            Part(s.label, s.instance.role, tuple(s.instance.cores)) for s in self.everyone
        ]

    def make(self, memory: Memory) -> Trial:
        measured = metrics.common_window(self.done.figures) or _whole(self.done)
        usage = window.of_window(
            self.done.samples, measured.start_unix_ns, measured.length_ns, self.parts
        )
        verdict = judge(self._evidence(measured, usage, memory))
        if self.canary:
            memory.canaries_ms += [self.canary.before_ms, self.canary.after_ms]
        trial = self._trial(measured, usage, verdict)
        self._write_files(measured)
        return trial

    def _evidence(self, measured: Window, usage: Usage | None, memory: Memory) -> Evidence:
        longest = max((f.window.length_ns for f in self.done.figures.values()), default=0)
        return Evidence(
            figures=self.done.figures,
            usage=usage,
            parts=self.parts,
            canary=self.canary,
            canary_median_ms=memory.median_ms(),
            common_share=measured.length_ns / longest if longest else 1.0,
            shared_cores=self.order.planned.shared_cores,
            accept_noise=self.life.schedule.accept_noise,
            fell_back=proof.problem(*self.served, usage, self.done.figures.values()),
        )

    def _trial(self, measured: Window, usage: Usage | None, verdict: Verdict) -> Trial:
        line = self.order.line
        return Trial(
            key=line.key,
            cell=line.cell,
            round=line.round,
            position=line.position,
            attempt=self.order.attempt,
            axes=line.axes,
            t_start=self.done.t_start,
            t_end=self.done.t_end,
            window=measured,
            valid=verdict.is_valid,
            reasons=verdict.reasons,
            bottleneck=verdict.bottleneck,
            notes=verdict.notes,
            shared_cores=self.order.planned.shared_cores,
            metrics=self._metrics(measured, usage),
            processes=[self._process(started, usage) for started in self.everyone],
            canary=self.canary,
        )

    def _metrics(self, measured: Window, usage: Usage | None) -> metrics.Flat:
        by_process: dict[str, list[Figures]] = {}
        for started in self.done.started:
            if started.label in self.done.figures:
                figures = self.done.figures[started.label]
                by_process.setdefault(started.instance.name, []).append(figures)
        roles = {part.label: part.role for part in self.parts}
        flat = metrics.combined(self.life.schedule.recipe.metric, by_process)
        flat |= metrics.costs(self.done.figures, usage, roles)
        flat |= metrics.collections(self._collections(measured), measured.length_ns / 1e9)
        return metrics.is_finite(flat)

    def _gc_logs(self) -> list[tuple[Path, float]]:
        """(log, start of the JVM) of each server that is a JVM."""
        return [
            (jvm.gc_log(s.instance, self.life.folder), self.life.started_s[s.label])
            for s in self.life.running
            if s.instance.tool == "jvm" and s.instance.role == "server"
        ]

    def _collections(self, measured: Window) -> list[gc.Collections]:
        found = [
            gc.of_window(log, since, measured.start_unix_ns, measured.length_ns)
            for log, since in self._gc_logs()
        ]
        return [one for one in found if one is not None]

    def _samples(self, measured: Window) -> list[Sample]:
        rows = window.series(
            self.done.samples, measured.start_unix_ns, measured.length_ns, self.parts
        )
        logs = [gc.pauses(log, since) for log, since in self._gc_logs()]
        pauses = [pause for log in logs if log is not None for pause in log]
        samples, before_ns = [], measured.start_unix_ns
        for t_ns, values in rows:
            if any(log is not None for log in logs):
                values["gc.pause_ms"] = sum(ms for at, ms in pauses if before_ns < at <= t_ns)
            samples.append(Sample(t_ns, _rounded(values)))
            before_ns = t_ns
        return samples

    def _process(self, started: Started, usage: Usage | None) -> Process:
        state = self.done.state.get(started.label, {})
        label = started.label
        rss_mib = (state.get("max_rss_kib") or 0) / 1024
        if usage and not rss_mib:  # still running: the kernel tells the peak only at the end
            rss_mib = usage.process_rss_mib[label]
        return Process(
            name=started.instance.name,
            index=started.instance.index,
            role=started.instance.role,
            argv=started.argv,
            cores=started.instance.cores,
            pid=started.pid,
            exit=state.get("code"),
            cpu_s=round(usage.process_cpu_s.get(label, 0.0), 6) if usage else 0.0,
            max_rss_mib=round(rss_mib, 1),
        )

    def _write_files(self, measured: Window) -> None:
        folder = self.order.folder
        store.write_samples(folder, self._samples(measured))
        commands = [
            {
                "process": started.label,
                "argv": started.argv,
                "cores": started.instance.cores,
                "stack": started.instance.stack or "kernel",
            }
            for started in self.everyone
        ]
        store.write_json(
            folder / "cmd.json", {"processes": commands, "warmup_rps": _whole_numbers(self.warmup)}
        )
        link_outputs(self.life.folder, folder)


def _whole(done: Generated) -> Window:
    """Generators that the lab cannot read: all of the time they ran."""
    return Window(int(done.t_start * 1e9), int((done.t_end - done.t_start) * 1e9))


def _rounded(values: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 4) for name, value in values.items()}


def _whole_numbers(rates: list[float]) -> list[int]:
    return [round(rate) for rate in rates]


def link_outputs(life_folder: Path, folder: Path) -> None:
    """What the servers of this life wrote stands beside each of its trials, without copies."""
    for path in life_folder.iterdir():
        target = folder / path.name
        if path.is_file() and not target.exists():
            try:
                os.link(path, target)
            except OSError as error:
                raise StorageError(f"cannot write {target}: {error.strerror}") from error


def failed(order: Order, reason: str, t_start: float, t_end: float) -> Trial:
    """The record of a trial that gave no figures: it stays in the data and is counted."""
    line = order.line
    return Trial(
        key=line.key,
        cell=line.cell,
        round=line.round,
        position=line.position,
        attempt=order.attempt,
        axes=line.axes,
        t_start=t_start,
        t_end=t_end,
        valid=False,
        reasons=[reason],
        shared_cores=order.planned.shared_cores,
    )
