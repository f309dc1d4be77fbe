"""An index over all runs: facts and results of each, read once and kept in a SQLite file.

`RUNS/.index.sqlite` has a row for each run with its facts, trials and comparisons as JSON, and with
a stamp of the run's files and of the code that judges: new and changed runs are read again, and
all runs after an update. It is a cache: it can be deleted at any time, it is rebuilt where it is
damaged, and where it cannot be written the runs are read each time.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sqlite3
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import wirespeed
from wirespeed.analysis.summary import Summary, load
from wirespeed.errors import ResultsError, WirespeedError
from wirespeed.results import query, store
from wirespeed.units import BYTE_RATES

FILE = ".index.sqlite"
JUDGING = ("analysis", "results", "stats")  # packages that decide what a run says
READ = "SELECT name, stamp, document FROM runs"
COLUMNS = "name TEXT PRIMARY KEY, stamp TEXT, document TEXT"
# Not a database, broken pages, or another table of the same name (SQLITE_ERROR: no such column).
DAMAGED = (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_ERROR)
Document = dict[str, Any]


def documents(
    runs: Path, unread: dict[str, str] | None = None
) -> Iterator[tuple[Path, Document]]:
    """Every run that can be read, oldest first, from the index where it is up to date. `unread`
    gets the others: name → why. A copy of a run's folder is none of its own."""
    folders = store.list_runs(runs)
    seen: dict[str, str] = {}
    with contextlib.closing(_opened(runs / FILE if folders else None)) as index:
        rows = {name: (stamp, text) for name, stamp, text in index.execute(READ)}
        for folder in folders:
            try:
                stamp = _stamp(folder)
                document = _kept(rows.get(folder.name), stamp) or _read(index, folder, stamp)
                first = seen.setdefault(document["run"]["run"], folder.name)
                if first != folder.name:
                    raise ResultsError(f"it is a copy of {first}")
            except Exception as error:  # of a damaged run, whatever it is: the others are read
                if unread is not None:
                    unread[folder.name] = _reason(error)
                continue
            yield folder, document
        for name in rows.keys() - {folder.name for folder in folders}:
            _write(index, "DELETE FROM runs WHERE name = ?", (name,))


def _read(index: sqlite3.Connection, folder: Path, stamp: str) -> Document:
    document = _document(load(folder))
    values = (folder.name, stamp, json.dumps(document))
    _write(index, "INSERT OR REPLACE INTO runs VALUES (?, ?, ?)", values)
    return document


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, WirespeedError) else f"{type(error).__name__}: {error}"


def _kept(row: tuple[str, str] | None, stamp: str) -> Document | None:
    """The document of a row that is up to date."""
    if row is None or row[0] != stamp:
        return None
    try:
        document = json.loads(row[1])
    except (TypeError, ValueError):
        return None
    return document if isinstance(document, dict) else None


def _write(index: sqlite3.Connection, statement: str, values: tuple[str, ...]) -> None:
    """A change of the cache; without it the run is read again next time."""
    with contextlib.suppress(sqlite3.Error):
        index.execute(statement, values)
        index.commit()


def database(runs: Path, unread: dict[str, str] | None = None) -> sqlite3.Connection:
    """Tables `runs`, `trials` and `comparisons` over all runs, in memory; `unread` as above."""
    tables: dict[str, list[Document]] = {"runs": [], "trials": [], "comparisons": []}
    for folder, document in documents(runs, unread):
        name = folder.name  # by which other commands find it: its user may have renamed it
        tables["runs"].append({**document["run"], "run": name})
        for table in ("trials", "comparisons"):
            tables[table] += [{**row, "run": name} for row in document[table]]
    made = sqlite3.connect(":memory:")
    for table, rows in tables.items():
        query.fill(made, table, rows, first=("run",))
    made.commit()
    made.execute("PRAGMA query_only = on")
    return made


def mixed_units(tables: sqlite3.Connection) -> dict[str, list[str]]:
    """Metrics that the runs have in different units, which no average may mix."""
    found: dict[str, dict[float, str]] = {}
    for (text,) in tables.execute("SELECT units FROM runs"):
        for name, unit in json.loads(text).items():
            found.setdefault(name, {}).setdefault(BYTE_RATES.get(unit, 1.0), unit)
    return {name: list(units.values()) for name, units in found.items() if len(units) > 1}


def _opened(path: Path | None) -> sqlite3.Connection:
    """The index's file, rebuilt where it is damaged; one in memory where it cannot be used."""
    if path:
        try:
            return _connected(str(path))
        except sqlite3.Error as error:
            is_damaged = getattr(error, "sqlite_errorcode", 0) & 0xFF in DAMAGED
        if is_damaged:
            with contextlib.suppress(OSError, sqlite3.Error):
                path.unlink()
                return _connected(str(path))
    return _connected(":memory:")


def _connected(where: str) -> sqlite3.Connection:
    """A connection to an index that can be read to its end and written."""
    index = sqlite3.connect(where, timeout=5)
    try:
        index.execute(f"CREATE TABLE IF NOT EXISTS runs ({COLUMNS})")
        for _ in index.execute(READ):
            pass
    except sqlite3.Error:
        index.close()
        raise
    return index


def _stamp(folder: Path) -> str:
    """Changes with each trial that is finished, each change of the run itself, and each build that
    may judge it in another way."""
    times = []
    for name in ("run.json", "trials", "plan.jsonl"):
        path = folder / name
        times.append(str(path.stat().st_mtime_ns) if path.exists() else "-")
    trials = sum(1 for _ in (folder / "trials").glob("*/trial.json"))
    return "/".join([_build(), *times, str(trials)])


@cache
def _build() -> str:
    """A digest of the code that reads and judges runs."""
    digest = hashlib.blake2b(wirespeed.__version__.encode(), digest_size=8)
    root = Path(wirespeed.__file__).parent
    for source in sorted(path for name in JUDGING for path in root.glob(f"{name}/*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()


def _document(summary: Summary) -> Document:
    run = summary.run
    return {
        "run": {
            "run": run.run_id, "recipe": run.recipe, "state": run.state, "started": run.started,
            "commit": run.commit, "site": run.site, "note": run.note,
            "labels": json.dumps(run.labels), "cpu_model": run.facts.get("cpu_model"),
            "kernel": run.facts.get("kernel"), "valid_trials": len(summary.valid),
            "invalid_trials": len(summary.invalid),
            "units": json.dumps({m["name"]: m["unit"] for m in run.metrics if m.get("unit")}),
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
