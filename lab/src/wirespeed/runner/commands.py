"""The command lines of a plan, and which of its programs are missing."""

from __future__ import annotations

import shlex
import shutil

from wirespeed.process.start import SEARCH_PATH
from wirespeed.recipe.model import WINDOW_OPTIONS
from wirespeed.recipe.resolve import Resolver
from wirespeed.runner.plan import Schedule


def of_schedule(schedule: Schedule) -> list[str]:
    """The programs of each measured cell as they will be started, and the missing ones."""
    lines, missing = [], set()
    for planned in schedule.cells:
        if not planned.is_measured:
            continue
        where = " ".join(f"{name}={value}" for name, value in planned.cell.axes.items())
        lines.append(f"{where}:")
        resolver = Resolver(schedule.recipe, planned.cell, schedule.place)
        for one in resolver.instances(planned.seats):
            if one.prepare:
                lines.append(f"  {one.label}, before it starts: {shlex.join(one.prepare)}")
            lines.append(f"  {one.label}: {shlex.join(one.argv)}")
            program = one.tool if one.tool in WINDOW_OPTIONS else (one.argv or [""])[0]
            is_built = one.tool == "load"  # by the front door, before a run
            if program and not is_built and not shutil.which(program, path=SEARCH_PATH):
                missing.add(program)
    return [*lines, *(f"missing program: {name}" for name in sorted(missing))]
