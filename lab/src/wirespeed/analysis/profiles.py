"""Profiles of servers: samples of their call stacks, and how these divide CPU time.

RUN/profiles/CELL.folded has a stack a line, root first, with how often it was seen ("folded", as
other flame graph tools read it); frames of the kernel end in _[k], those of a stack's library in
_[l]. CELL.json says why there is none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from wirespeed.results import store

if TYPE_CHECKING:
    from wirespeed.analysis.cells import Cell
    from wirespeed.analysis.summary import Summary

FOLDER = "profiles"
KERNEL, LIBRARY = "_[k]", "_[l]"
KINDS = ("kernel", "library", "program")
Stack = tuple[str, ...]


@dataclass(frozen=True)
class Profile:
    """The samples of one cell's servers."""

    cell: str
    stacks: tuple[tuple[Stack, int], ...] = ()
    problem: str = ""

    @cached_property
    def samples(self) -> int:
        return sum(count for _, count in self.stacks)

    @cached_property
    def by_kind(self) -> dict[str, float]:
        """The share of kernel, library and program: of what ran, not of what called it."""
        shares: Counter[str] = Counter()
        for frames, count in self.stacks:
            shares[kind_of(frames[-1])] += count
        return {kind: shares[kind] / max(1, self.samples) for kind in KINDS}

    @cached_property
    def own(self) -> dict[str, float]:
        """The share that each function used itself."""
        found: Counter[str] = Counter()
        for frames, count in self.stacks:
            found[frames[-1]] += count
        return {frame: count / self.samples for frame, count in found.items()}

    @cached_property
    def whole(self) -> dict[Stack, float]:
        """The share of each function with what it called, by its path from the root."""
        stacks: Counter[Stack] = Counter()
        for frames, count in self.stacks:
            for depth in range(len(frames)):
                stacks[frames[: depth + 1]] += count
        return {path: count / self.samples for path, count in stacks.items()}


def kind_of(frame: str) -> str:
    return (
        "kernel" if frame.endswith(KERNEL) else "library" if frame.endswith(LIBRARY) else "program"
    )


def plain(frame: str) -> str:
    """The function's name alone."""
    return frame.removesuffix(KERNEL).removesuffix(LIBRARY)


def write(run_dir: Path, profile: Profile) -> None:
    folder = run_dir / FOLDER
    with store.storage(folder):
        folder.mkdir(exist_ok=True)
    lines = [f"{';'.join(frames)} {count}\n" for frames, count in profile.stacks]
    store.write_text(folder / f"{profile.cell}.folded", "".join(lines), is_durable=False)
    facts = {"cell": profile.cell, "samples": profile.samples, "problem": profile.problem}
    store.write_json(folder / f"{profile.cell}.json", facts, is_durable=False)


def read(run_dir: Path) -> list[Profile]:
    """Of a run that was not profiled: none."""
    return [_read(path) for path in sorted((run_dir / FOLDER).glob("*.json"))]


def _read(path: Path) -> Profile:
    facts = store.read_json(path)
    folded = path.with_suffix(".folded")
    text = folded.read_text(encoding="utf-8") if folded.is_file() else ""
    return Profile(str(facts["cell"]), _stacks(text.splitlines()), str(facts["problem"]))


def _stacks(lines: Iterable[str]) -> tuple[tuple[Stack, int], ...]:
    stacks = []
    for line in lines:
        frames, _, count = line.rpartition(" ")
        if frames and count.isdigit():
            stacks.append((tuple(frames.split(";")), int(count)))
    return tuple(stacks)


def profiled(summary: Summary) -> list[Cell]:
    """A cell of each contender, the baseline's first: with the other axes as where the baseline
    reached most."""
    measured = summary.measured
    if not measured:
        return []
    axis, over = next(iter(summary.run.plan.baseline.items()), (_columns(summary), None))
    based = [cell for cell in measured if cell.axes.get(axis) == over] or list(measured)
    top = max(based, key=lambda cell: cell.median(summary.primary) or 0.0)
    rest = {name: value for name, value in top.axes.items() if name != axis}
    alike = [
        cell
        for cell in measured
        if cell is not top and all(cell.axes.get(name) == value for name, value in rest.items())
    ]
    return [top, *alike]


def _columns(summary: Summary) -> str:
    return next((sheet.column_axis for sheet in summary.sheets if sheet.column_axis), "")
