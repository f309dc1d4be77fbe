"""One index over all runs: what each run was and found, read once and kept in a SQLite file.

`RUNS/.index.sqlite` has a row for each run with its facts, trials and comparisons as JSON, and with
a stamp of the run's files, so that only new and changed runs are read again. It is a cache: it can
be deleted at any time, and where it cannot be written the runs are read each time.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from wirespeed.errors import ResultsError
from wirespeed.results import query, store
from wirespeed.results.summary import Summary, load

FILE = ".index.sqlite"
FORMAT = 1  # of the documents below; another number reads all runs again
Document = dict[str, Any]


def documents(runs: Path) -> Iterator[tuple[Path, Document]]:
    """Every run that can be read, oldest first, from the index where it is up to date."""
    folders = store.list_runs(runs)
    with contextlib.closing(_opened(runs / FILE if folders else None)) as index:
        known = {name: (stamp, text) for name, stamp, text in index.execute("SELECT * FROM runs")}
        for folder in folders:
            stamp = _stamp(folder)
            if known.get(folder.name, ("",))[0] == stamp:
                yield folder, json.loads(known[folder.name][1])
                continue
            try:
                found = _document(load(folder))
            except ResultsError:
                continue  # of another version, or not whole
            row = (folder.name, stamp, json.dumps(found))
            with contextlib.suppress(sqlite3.Error):
                index.execute("INSERT OR REPLACE INTO runs VALUES (?, ?, ?)", row)
                index.commit()
            yield folder, found
        gone = [(name,) for name in known.keys() - {folder.name for folder in folders}]
        with contextlib.suppress(sqlite3.Error):
            index.executemany("DELETE FROM runs WHERE name = ?", gone)
            index.commit()


def database(runs: Path) -> sqlite3.Connection:
    """Tables `runs`, `trials` and `comparisons` over all runs, in memory."""
    tables: dict[str, list[Document]] = {"runs": [], "trials": [], "comparisons": []}
    for _, found in documents(runs):
        name = found["run"]["run"]
        tables["runs"].append(found["run"])
        for table in ("trials", "comparisons"):
            tables[table] += [{**row, "run": name} for row in found[table]]
    made = sqlite3.connect(":memory:")
    for table, rows in tables.items():
        query.fill(made, table, rows, first=("run",))
    made.commit()
    made.execute("PRAGMA query_only = on")
    return made


def _opened(path: Path | None) -> sqlite3.Connection:
    """The index's file; one in memory where it is damaged or cannot be written."""
    for where in (str(path), ":memory:") if path else (":memory:",):
        try:
            index = sqlite3.connect(where, timeout=5)
            index.execute(
                "CREATE TABLE IF NOT EXISTS runs (name TEXT PRIMARY KEY, stamp TEXT, document TEXT)"
            )
            return index
        except sqlite3.Error:
            continue
    raise ResultsError("SQLite is not usable here")


def _stamp(folder: Path) -> str:
    """Changes with each trial that is finished and each change of the run itself."""
    times = []
    for name in ("run.json", "trials", "plan.jsonl"):
        path = folder / name
        times.append(str(path.stat().st_mtime_ns) if path.exists() else "-")
    trials = sum(1 for _ in (folder / "trials").glob("*/trial.json"))
    return "/".join([str(FORMAT), *times, str(trials)])


def _document(summary: Summary) -> Document:
    run = summary.run
    return {
        "run": {
            "run": run.run_id, "recipe": run.recipe, "state": run.state, "started": run.started,
            "commit": run.commit, "site": run.site, "note": run.note,
            "labels": json.dumps(run.labels), "cpu_model": run.facts.get("cpu_model"),
            "kernel": run.facts.get("kernel"), "valid_trials": len(summary.valid),
            "invalid_trials": len(summary.invalid),
        },
        "trials": [query.row_of(trial) for trial in store.read_trials(summary.run_dir)],
        "comparisons": [
            {
                **gain.cell.axes, "cell": gain.cell.key, "contender": gain.contender,
                "over": gain.over, "metric": gain.metric,
                "gain": gain.found.gain if gain.found else None,
                "low": gain.found.low if gain.found else None,
                "high": gain.found.high if gain.found else None,
                "q": gain.q, "verdict": gain.verdict.word, "bound": gain.verdict.bound,
                "reason": gain.verdict.reason,
            }
            for gain in summary.gains
        ],
    }  # fmt: skip
