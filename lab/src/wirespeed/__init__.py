"""Wirespeed's lab: turns a recipe into trials, trials into results, and results into a report.

`load_run` is for Python programs that read runs (docs/query.md, "From Python"). It stays as it is
within a version, with the fields that the page names; everything else may change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from wirespeed.analysis.summary import Summary

__all__ = ["__version__", "load_run"]
__version__ = "0.1.0"


def load_run(name: str | Path = "latest", runs: str | Path | None = None) -> Summary:
    """A run by its folder, a part of its name, a baseline's name or `latest`, with its verdicts.

    `runs` is the folder that it is looked for in, by default the one that the commands use.
    Raises wirespeed.errors.ResultsError if the run does not exist.
    """
    # Here, so that nothing is imported where only the version is asked for.
    import os
    from pathlib import Path

    from wirespeed.analysis import summary
    from wirespeed.results import store
    from wirespeed.runner import place

    folder = Path(runs or os.environ.get("WIRESPEED_RUNS") or place.runs_folder())
    return summary.load(store.find_run(folder.absolute(), str(name)))
