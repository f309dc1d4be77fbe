"""`wirespeed runs --prune`: lists the runs that may be removed, and removes them with --yes."""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from wirespeed.cli import output
from wirespeed.errors import RunError, WirespeedError
from wirespeed.results import retention
from wirespeed.results.retention import Kept
from wirespeed.runner import prune as pruning

COLUMNS = 120


def prune(runs: Path, newest: int, is_sure: bool, as_json: bool) -> None:
    """Removes nothing without `is_sure`."""
    every = pruning.removable(runs, newest)
    sizes = {one.run_dir: retention.size_bytes(one.run_dir) for one in every if not one.why}
    problems = _removed(list(sizes)) if is_sure else {}
    if as_json:
        output.write([_document(one, sizes, is_sure, problems) for one in every])
    else:
        _show(every, sizes, is_sure, problems)
    for line in problems.values():
        print(f"wirespeed: {line}", file=sys.stderr)
    if problems:
        raise RunError(f"{len(problems)} of {len(sizes)} runs could not be removed")


def _removed(chosen: list[Path]) -> dict[Path, str]:
    """One that cannot be removed does not keep the others."""
    problems = {}
    for run_dir in chosen:
        try:
            pruning.remove(run_dir)
        except WirespeedError as error:
            problems[run_dir] = str(error)
    return problems


def _document(
    one: Kept, sizes: dict[Path, int], is_sure: bool, problems: dict[Path, str]
) -> dict[str, object]:
    is_gone = is_sure and one.run_dir in sizes and one.run_dir not in problems
    return {
        "run": one.run_dir.name, "recipe": one.recipe, "kept_because": one.why or None,
        "bytes": sizes.get(one.run_dir), "removed": is_gone,
    }  # fmt: skip


def _show(
    every: list[Kept], sizes: dict[Path, int], is_sure: bool, problems: dict[Path, str]
) -> None:
    console = Console(highlight=False, emoji=False)
    if not console.is_terminal:
        console.width = max(console.width, COLUMNS)
    gone = [run_dir for run_dir in sizes if run_dir not in problems]
    if sizes:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for heading in ("removed" if is_sure else "would be removed", "recipe", "MB"):
            table.add_column(heading, no_wrap=True, justify="right" if heading == "MB" else "left")
        for one in every:
            if one.run_dir in gone:
                size = f"{sizes[one.run_dir] / 1e6:,.1f}"
                table.add_row(escape(one.run_dir.name), escape(one.recipe), size)
        console.print(table)
    megabytes = sum(sizes[run_dir] for run_dir in gone) / 1e6
    kept = len(every) - len(gone)
    if is_sure:
        console.print(f"{len(gone)} removed ({megabytes:,.1f} MB), {kept} kept.")
    elif gone:
        console.print(
            f"{len(gone)} would be removed ({megabytes:,.1f} MB), {kept} kept; "
            "--yes removes them, --json says why the others stay."
        )
    else:
        console.print(f"Nothing to remove: all {kept} runs are kept (--json says why).")
