"""The command lines of a plan, and which of its programs are not there."""

from __future__ import annotations

import shlex
import shutil

from wirespeed.process.start import SEARCH_PATH
from wirespeed.recipe.resolve import Resolver
from wirespeed.runner.plan import Schedule


def of_schedule(schedule: Schedule) -> list[str]:
    """The programs of each measured cell as they will be started, and those that are missing."""
    lines, missing = [], set()
    for planned in schedule.cells:
        if not planned.is_measured:
            continue
        where = " ".join(f"{name}={value}" for name, value in planned.cell.axes.items())
        lines.append(f"{where}:")
        resolver = Resolver(schedule.recipe, planned.cell, schedule.place)
        for one in resolver.instances(planned.seats):
            lines.append(f"  {one.label}: {shlex.join(one.argv)}")
            is_ours = one.tool in ("load", "wrk")
            if one.argv and not is_ours and not shutil.which(one.argv[0], path=SEARCH_PATH):
                missing.add(one.argv[0])
    return [*lines, *(f"missing: there is no program {name}" for name in sorted(missing))]
