"""One trial: calibration loop, warm-up, measured windows until one is quiet, verdict, record."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from wirespeed.driver import jvm, stack
from wirespeed.driver.base import Figures
from wirespeed.driver.bypass import Served
from wirespeed.errors import HostError, LostHostError
from wirespeed.probe import gc, window
from wirespeed.probe.parse import LAB
from wirespeed.probe.window import Part
from wirespeed.process.start import Started
from wirespeed.results import store
from wirespeed.results.model import Calibration, PlannedTrial, Process, Sample, Trial, Window
from wirespeed.runner import counters, headroom, metrics, proof, work
from wirespeed.runner.bottleneck import Evidence
from wirespeed.runner.cells import PlannedCell
from wirespeed.runner.counters import Counting
from wirespeed.runner.disturbance import SHARE_MAX, NoiseMonitor
from wirespeed.runner.generate import (
    Generated,
    Sampling,
    core_names,
    generate,
    link_share,
)
from wirespeed.runner.plan import TRIAL_S
from wirespeed.runner.server_session import ServerSession
from wirespeed.runner.validity import judge, paused
from wirespeed.runner.warm import learn, note_of, step_s, timeout_s, warm
from wirespeed.runner.warm import window_s as measured_s

WINDOW_PREFIX = "window-"  # folders of the windows that do not count
CENSUS_BELOW_S = 2.0  # in shorter windows the ticks of /proc/stat are coarser than the limit
SAMPLES_MIN = 3  # a window shorter than this many beats is sampled more often


@dataclass
class RunContext:
    """What a run remembers from trial to trial."""

    noise: NoiseMonitor
    counting: Counting = field(default_factory=Counting)


@dataclass(frozen=True)
class Attempt:
    """Which trial to run, and where its files go."""

    line: PlannedTrial
    planned: PlannedCell
    folder: Path
    attempt: int
    is_first_of_session: bool


def measure(session: ServerSession, order: Attempt, context: RunContext) -> Trial:
    """Measures one trial in a running session; nothing counts until its trial.json is written."""
    warmup: list[float] = []
    session.check_urls(order.planned)
    before_ms = calibration(session)
    idle_held = session.fleet.hold_idle()
    try:
        if order.is_first_of_session:
            warmup = warm(session, order.planned, order.folder)
        tried = _windows(session, order, context.noise, before_ms)
        counted = {} if tried[-1].has_failed else _counted(session, order, context)
    finally:
        session.fleet.release_idle()
    trial = _settled(order, tried).write(warmup, tried, idle_held)
    trial = replace(trial, metrics={**trial.metrics, **metrics.is_finite(counted)})
    unsettled = note_of(session, warmup)
    return replace(trial, notes=[*trial.notes, unsettled]) if unsettled else trial


def _windows(
    session: ServerSession, order: Attempt, noise: NoiseMonitor, before_ms: float | None
) -> list[_MeasuredWindow]:
    """Measures the window again in the same session while something from outside disturbs it."""
    tried: list[_MeasuredWindow] = []
    while True:
        folder = order.folder if not tried else _window_folder(order.folder, len(tried) + 1)
        one = _window(session, order, noise, folder, before_ms)
        tried.append(one)
        is_disturbed = one.verdict.disturbed.share > 0
        noise.saw(one.calibration, is_disturbed, is_first_window=len(tried) == 1)
        if one.has_failed or not is_disturbed:
            return tried
        share = min(seen.verdict.disturbed.share for seen in tried)
        if not noise.wants_another(len(tried), window_cost_s(session, order), share):
            return tried
        before_ms = one.calibration.after_ms if one.calibration else None


def _counted(session: ServerSession, order: Attempt, context: RunContext) -> metrics.Flat:
    """The processor's events per request, from a window of its own whose time no trial took."""
    if not counters.is_asked(session, context.counting, order.line.round):
        return {}
    began = time.monotonic()
    try:
        return counters.count(session, order.planned, _made(order.folder / counters.FOLDER))
    except LostHostError:
        raise
    except HostError:
        session.fleet.each(session.fleet.all(), "sample_stop")  # of hosts that had begun
        context.counting.give_up()
        return {}
    finally:
        context.noise.time_budget.leave_out(time.monotonic() - began)


def _window_folder(folder: Path, number: int) -> Path:
    return _made(folder / f"{WINDOW_PREFIX}{number}")


def _made(folder: Path) -> Path:
    with store.storage(folder):
        folder.mkdir(exist_ok=True)
    return folder


def window_cost_s(session: ServerSession, order: Attempt) -> float:
    """The cost of one more window."""
    return step_s(session, order.planned) + measured_s(session, order.planned) + TRIAL_S


def _window(
    session: ServerSession,
    order: Attempt,
    noise: NoiseMonitor,
    folder: Path,
    before_ms: float | None,
) -> _MeasuredWindow:
    length_s = measured_s(session, order.planned)
    with_census = noise.wants_names or length_s < CENSUS_BELOW_S
    before = proof.served(session)
    done = generate(
        session,
        order.planned,
        folder,
        length_s,
        step_s(session, order.planned),
        Sampling(beat_s(session, length_s), with_census),
        timeout_s(session, order.planned),
    )
    learn(session, order.planned, done)
    served = (before, proof.served(session))
    seen = _Seen(done, _calibration_of(before_ms, calibration(session)), served, folder)
    return _MeasuredWindow(session, order, seen, noise.best_ms)


def _settled(order: Attempt, tried: list[_MeasuredWindow]) -> _MeasuredWindow:
    """The window that failed, else the calmest; its files are the trial's.

    Programs that fail in the second window have failed as much as in the first.
    """
    failed = [one for one in tried if one.has_failed]
    chosen = min(failed or tried, key=lambda one: one.verdict.disturbed.share)
    if chosen.folder != order.folder:
        aside = _window_folder(order.folder, 1)
        for path in list(order.folder.iterdir()):
            if path.is_file():
                store.move(path, aside / path.name)
        for path in list(chosen.folder.iterdir()):
            store.move(path, order.folder / path.name)
        chosen.folder.rmdir()
    return chosen


def beat_s(session: ServerSession, duration_s: float) -> float:
    return max(0.05, min(session.schedule.recipe.sample.every, duration_s / SAMPLES_MIN))


def calibration(session: ServerSession) -> float | None:
    """Fixed work on the server's first core; it may be busy with a server that polls."""
    seats = next((s.instance.seats for s in session.running if s.instance.role == "server"), [])
    host = session.fleet[seats[0].host] if seats else None
    answer = host.ask("calibration", core=seats[0].core) if host else {"ms": None}
    return None if answer["ms"] is None else float(answer["ms"])


def _calibration_of(before_ms: float | None, after_ms: float | None) -> Calibration | None:
    return None if before_ms is None or after_ms is None else Calibration(before_ms, after_ms)


@dataclass(frozen=True)
class _Seen:
    """The results of one window."""

    done: Generated
    calibration: Calibration | None
    served: tuple[Served | None, Served | None]  # what bypass had carried before, and after
    folder: Path


class _MeasuredWindow:
    """From what a window gave to the files of its trial."""

    def __init__(
        self, session: ServerSession, order: Attempt, seen: _Seen, calibration_best_ms: float | None
    ) -> None:
        self.session, self.order, self.done, self.folder = session, order, seen.done, seen.folder
        self.calibration, self.served = seen.calibration, seen.served
        done = seen.done
        self.everyone: list[Started] = [*session.running, *done.started]
        self.parts = [
            Part(s.label, s.instance.role, core_names(session, s.instance)) for s in self.everyone
        ]
        if done.lab_core is not None:
            self.parts.append(Part(LAB, LAB, (done.lab_core,)))
        self.measured = metrics.common_window(done.figures) or _whole(done)
        start_ns, length_ns = self.measured.start_unix_ns, self.measured.length_ns
        self.usage = window.of_window(done.samples, start_ns, length_ns, self.parts)
        self.link_share = link_share(session, order.planned, done, self.measured)
        loaded_s = done.before_s + self.measured.length_ns / 1e9
        self.headroom = headroom.of_window(session, order.planned, done)
        self.work = work.of_window(session, seen.served, done.figures, self.usage, loaded_s)
        self.verdict = judge(self._evidence(calibration_best_ms))

    @property
    def has_failed(self) -> bool:
        """For a reason of its own, which another window in this session would not cure."""
        return bool(self.verdict.reasons) and self.verdict.disturbed.share <= SHARE_MAX

    def write(self, warmup: list[float], tried: list[_MeasuredWindow], idle_held: bool) -> Trial:
        self._write_files(warmup)
        discarded = [_described(one) for one in tried if one is not self]
        return replace(self._trial(discarded), idle_held=idle_held)

    def _evidence(self, calibration_best_ms: float | None) -> Evidence:
        root = self.session.schedule.place.root
        longest = max((f.window.length_ns for f in self.done.figures.values()), default=0)
        return Evidence(
            figures=self.done.figures,
            usage=self.usage,
            parts=self.parts,
            calibration=self.calibration,
            calibration_best_ms=calibration_best_ms,
            common_share=self.measured.length_ns / longest if longest else 1.0,
            shared_cores=self.order.planned.shared_cores,
            link_share=self.link_share,
            useful_server=self.work.useful if self.work else None,
            polling_load=any(stack.is_polling(root, s.instance.under) for s in self.done.started),
            headroom=self.headroom,
            fell_back=proof.problem(
                self.session, *self.served, self.usage, self.done.figures.values()
            ),
            others=self.done.others,
            clock_step_s=self.done.clock_step_s,
            accept_noise=self.session.schedule.accept_noise,
        )

    def _trial(self, discarded: list[str]) -> Trial:
        line, verdict, flat = self.order.line, self.verdict, self._metrics()
        return Trial(
            key=line.key,
            cell=line.cell,
            round=line.round,
            position=line.position,
            attempt=self.order.attempt,
            axes=line.axes,
            t_start=self.done.t_start,
            t_end=self.done.t_end,
            window=self.measured,
            valid=verdict.is_valid,
            reasons=verdict.reasons,
            bottleneck=verdict.bottleneck,
            notes=[*verdict.notes, *paused(flat.get("gc.throughput"))],
            shared_cores=self.order.planned.shared_cores,
            metrics=flat,
            processes=[self._process(started) for started in self.everyone],
            calibration=self.calibration,
            disturbed=round(verdict.disturbed.share, 4),
            slowed=round(verdict.disturbed.slowed, 4),
            discarded=discarded,
        )

    def _metrics(self) -> metrics.Flat:
        by_process: dict[str, list[Figures]] = {}
        for started in self.done.started:
            if started.label in self.done.figures:
                figures = self.done.figures[started.label]
                by_process.setdefault(started.instance.name, []).append(figures)
        roles = {part.label: part.role for part in self.parts}
        flat = metrics.combined(self.session.schedule.recipe.metric, by_process)
        flat |= metrics.costs(self.done.figures, self.usage, roles)
        flat |= {"link.share": round(self.link_share, 4)} if self.link_share else {}
        flat |= {"load.headroom": round(self.headroom, 3)} if self.headroom else {}
        flat |= work.metrics(self.work, self.session, self.usage, roles, self.done.figures)
        flat |= metrics.collections(self._collections(), self.measured.length_ns / 1e9)
        return metrics.is_finite(flat)

    def _gc_logs(self) -> list[gc.Log]:
        """Of each server that is a JVM. Its log is of no use when its clock was set meanwhile."""
        if self.done.clock_step_s:
            return []
        return [
            gc.Log(
                jvm.gc_log(s.instance, self.session.folder),
                self.session.started_s[s.label],
                self.session.fleet.host_of(s.label).wall_ahead_s,
            )
            for s in self.session.running
            if s.instance.tool == "jvm" and s.instance.role == "server"
        ]

    def _collections(self) -> list[gc.Collections]:
        measured = self.measured
        logs = [
            gc.of_window(log, measured.start_unix_ns, measured.length_ns) for log in self._gc_logs()
        ]
        return [one for one in logs if one is not None]

    def _samples(self) -> list[Sample]:
        measured = self.measured
        rows = window.series(
            self.done.samples, measured.start_unix_ns, measured.length_ns, self.parts
        )
        logs = [gc.pauses(log) for log in self._gc_logs()]
        pauses = [pause for log in logs if log is not None for pause in log]
        samples, before_ns = [], measured.start_unix_ns
        for t_ns, values in rows:
            if any(log is not None for log in logs):
                values["gc.pause_ms"] = sum(ms for at, ms in pauses if before_ns < at <= t_ns)
            samples.append(Sample(t_ns, _rounded(values)))
            before_ns = t_ns
        return samples

    def _process(self, started: Started) -> Process:
        usage = self.usage
        state = self.done.state.get(started.label, {})
        label = started.label
        rss_mib = (state.get("max_rss_kib") or 0) / 1024
        if usage and not rss_mib:  # still running: the kernel reports the peak only at the end
            rss_mib = usage.process_rss_mib[label]
        return Process(
            name=started.instance.name,
            index=started.instance.index,
            role=started.instance.role,
            argv=started.argv,
            host=started.instance.host,
            cores=started.instance.cores,
            pid=started.pid,
            exit=state.get("code"),
            cpu_s=round(usage.process_cpu_s.get(label, 0.0), 6) if usage else 0.0,
            max_rss_mib=round(rss_mib, 1),
        )

    def _write_files(self, warmup: list[float]) -> None:
        folder = self.order.folder
        store.write_samples(folder, self._samples())
        commands = [
            {
                "process": started.label,
                "argv": started.argv,
                "host": started.instance.host,
                "cores": started.instance.cores,
                "stack": started.instance.stack or "kernel",
            }
            for started in self.everyone
        ]
        store.write_json(
            folder / "cmd.json",
            {"processes": commands, "warmup_rps": _whole_numbers(warmup)},
            is_durable=False,  # it shows how; trial.json, which follows, is what counts
        )
        link_outputs(self.session.folder, folder)


def _described(discarded: _MeasuredWindow) -> str:
    """The record of a window that does not count: why, and the rate it gave."""
    rps = sum(figures.rps for figures in discarded.done.figures.values())
    words = [*discarded.verdict.reasons, *discarded.verdict.disturbed.words]
    return f"{'; '.join(dict.fromkeys(words))}: {rps:,.0f} requests/s"


def _whole(done: Generated) -> Window:
    """Generators that the lab cannot read: all of the time they ran."""
    return Window(int(done.t_start * 1e9), int((done.t_end - done.t_start) * 1e9))


def _rounded(values: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 4) for name, value in values.items()}


def _whole_numbers(rates: list[float]) -> list[int]:
    return [round(rate) for rate in rates]


def link_outputs(session_folder: Path, folder: Path) -> None:
    """Links the output of this session's servers next to each of its trials, without copies."""
    for path in session_folder.iterdir():
        target = folder / path.name
        if path.is_file() and not target.exists():
            with store.storage(target):
                os.link(path, target)


def failed(order: Attempt, reason: str, t_start: float, t_end: float) -> Trial:
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
