"""The live display of a run: cell, trial k of n, time left, last figure.

It redraws between phases only: inside a measured window the lab does no work.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table

from wirespeed.results.model import PlannedTrial, Trial
from wirespeed.runner.plan import Schedule
from wirespeed.runner.watcher import Progress, Watcher
from wirespeed.units import duration_for_people

BAR_COLUMNS = 24
PLAIN_EVERY = 10  # without a terminal: one line for so many trials


class Display(Watcher):
    """On a terminal a line that changes; in a log a plain line now and then."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.run_dir: Path | None = None
        self.done = 0
        self._metric = ""
        self._last = ""
        # Emacs' shell is a terminal, too, but one (TERM=dumb) on which no line can change.
        self._is_live = console.is_terminal and not console.is_dumb_terminal
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> Display:
        if self._is_live:
            self._live.start()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._live.stop()

    def began(self, run_dir: Path, schedule: Schedule, progress: Progress) -> None:
        self.run_dir, self.done = run_dir, progress.done
        self._metric = schedule.recipe.metric[0].name if schedule.recipe.metric else ""
        cells = sum(cell.is_measured for cell in schedule.cells)
        shown = len(schedule.cells) - cells
        also = f" ({shown} more are shown, not measured)" if shown else ""
        self.console.print(
            f"{schedule.recipe.title or schedule.recipe.name}: {cells} cells{also}, "
            f"{progress.total - progress.done} trials, about "
            f"{duration_for_people(progress.seconds_left)}",
            soft_wrap=True,
            markup=False,
            highlight=False,
        )
        for sentence in schedule.thinned:
            self.notify(sentence)

    def phase(self, line: PlannedTrial, text: str, progress: Progress) -> None:
        if not self._is_live:
            return
        axes = " ".join(f"{name}={value}" for name, value in line.axes.items())
        self._live.update(self._line(axes, text, progress), refresh=True)

    def recorded(self, trial: Trial, progress: Progress) -> None:
        self.done = progress.done
        value = trial.metrics.get(self._metric)
        if value is not None:
            self._last = f"{self._metric} {value:,.0f}"
        if not self._is_live and (
            progress.done % PLAIN_EVERY == 0 or progress.done == progress.total
        ):
            left = duration_for_people(progress.seconds_left)
            self.console.print(
                f"trial {progress.done} of {progress.total}, {left} left, {self._last}",
                highlight=False,
            )

    def notify(self, text: str) -> None:
        self.console.print(f"wirespeed: {escape(text)}", soft_wrap=True, highlight=False)

    def _line(self, axes: str, text: str, progress: Progress) -> Table:
        row = Table.grid(padding=(0, 1))
        trial = min(progress.done + 1, progress.total)
        row.add_row(
            ProgressBar(total=progress.total, completed=progress.done, width=BAR_COLUMNS),
            f"trial {trial} of {progress.total}",
            f"· {duration_for_people(progress.seconds_left)} left ·",
            escape(axes),
            f"· {text}",
            f"· last: {self._last}" if self._last else "",
        )
        return row
