"""Reads and writes run directories. Results are written once, by rename, and fsynced.

runs/<UTC stamp>-<recipe>-<8 hex>/{run.json, plan.jsonl, journal.jsonl, trials/…, derived/…}
"""

from __future__ import annotations

import calendar
import errno
import json
import os
import re
import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from wirespeed.errors import COMMAND, ResultsError, StorageError
from wirespeed.results.model import FORMAT, PlannedTrial, Run, Sample, Trial

BASELINES = "baselines"  # next to the runs: links with names that the user chose
STAMP = "%Y%m%dT%H%M%SZ"  # the beginning of a run's name; its order is that of time
MADE_WITHIN_S = 60.0  # from a run's folder to its run.json; it takes a tenth of a second
GOING = ".removed-run.json"  # the run.json of a run that is being removed

_GIVEN = re.compile(r"\d{8}T\d{6}Z-.+-[0-9a-f]{8}")  # a run's name before a user changes it
_EMPTY_AT_FIRST = ("trials", "derived")
#: Other files that may lie in a run's folder before its run.json does.
_FIRST = {"recipe.toml", "site.json", "plan.jsonl", "journal.jsonl", "lock", "published"}

Kind = TypeVar("Kind", Run, Trial)
_CHECKERS: dict[type, TypeAdapter[Any]] = {
    kind: TypeAdapter(kind) for kind in (Run, PlannedTrial, Trial)
}


class _Metric(BaseModel):
    name: str


class _Gain(BaseModel):
    round: int = 0


class _Decided(BaseModel):
    of: list[str]
    word: Literal["gain", "loss", "no difference"]
    bound: str
    rounds: int


class _Table(BaseModel):
    title: str = ""
    each: str | list[str] = []
    where: dict[str, Any] = {}
    rows: str | list[str] = []
    columns: str = ""
    value: str = ""
    values: list[str] = []
    gain: _Gain = _Gain()
    published: dict[str, Any] = {}


class _Copies(BaseModel):
    """What run.json has of its recipe and audit, as far as a report relies on it."""

    metrics: list[_Metric] = []
    tables: list[_Table] = []
    stacks: dict[str, dict[str, Any]] = {}
    audit: list[tuple[str, str, str]] = []
    decided: list[_Decided] = []


@contextmanager
def storage(path: Path) -> Iterator[None]:
    """Turns the disk's refusals into one line that says what to do."""
    try:
        yield
    except OSError as error:
        remedy = {
            errno.ENOSPC: "the disk is full; free some space and go on with --resume",
            errno.EDQUOT: "the disk quota is used up; free some space and go on with --resume",
            errno.EACCES: "permission denied; choose another folder with --runs",
            errno.EPERM: "not permitted there; choose another folder with --runs",
            errno.EROFS: "the file system is read-only; choose another folder with --runs",
        }.get(error.errno or 0, error.strerror or str(error))
        raise StorageError(f"cannot write {path}: {remedy}") from error


def write_json(path: Path, data: Any, is_durable: bool = True) -> None:
    text = json.dumps(data, indent=1, allow_nan=False) + "\n"
    if "\\ud" in text:  # half of a character, from a name that is not UTF-8, cannot be read again
        json.dumps(data, ensure_ascii=False).encode()
    write_text(path, text, is_durable)


def write_text(path: Path, text: str, is_durable: bool = True) -> None:
    """Writes a whole file or nothing: a reader never sees half of it. It is on the disk when this
    returns, unless nothing depends on it: a disk takes milliseconds for that."""
    temporary = path.with_name(f".{path.name}.new")
    with storage(path):
        try:
            with open(temporary, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                if is_durable:
                    os.fsync(file.fileno())
            os.replace(temporary, path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise


def move(path: Path, to: Path) -> None:
    """Within a run directory; a full disk is one line here too, as a folder may have to grow."""
    with storage(to):
        path.rename(to)


def read_json(path: Path) -> Any:
    return _parsed(path, _read_text(path))


def _parsed(path: Path, text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refused)
    except (ValueError, RecursionError) as error:
        raise ResultsError(f"{path}: cannot be read: {error}") from error


def _refused(constant: str) -> Any:
    """NaN and Infinity are not JSON, and no comparison with them is ever a loss."""
    raise ValueError(f"{constant} is not a number")


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ResultsError(f"{path}: missing (is {path.parent} a run directory?)") from None
    except (OSError, ValueError) as error:
        raise ResultsError(f"{path}: cannot be read: {error}") from error


def _read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The whole lines of a JSON-lines file; a torn last line (power loss) is left out."""
    if not path.exists():
        return
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            data = json.loads(line)
        except ValueError:
            continue
        if isinstance(data, dict):
            yield data


def create(runs: Path, recipe: str) -> Path:
    """Makes a fresh run directory; it is a run when its run.json is there (`announce`)."""
    run_dir = runs / f"{_fresh_stamp(runs)}-{recipe}-{secrets.token_hex(4)}"
    with storage(run_dir):
        (run_dir / "trials").mkdir(parents=True)
        (run_dir / "derived").mkdir()
    return run_dir


def _fresh_stamp(runs: Path) -> str:
    """The time, but later than every run that is there: else a clock that is set back would put
    this run before them, and the next command would take another one for the last."""
    now = time.time()
    with storage(runs):
        times = [stamped for one in list_runs(runs) if (stamped := stamp_s(one.name)) is not None]
    return time.strftime(STAMP, time.gmtime(max([now, *(one + 1 for one in times)])))


def stamp_s(name: str) -> float | None:
    """The time in a run's name, in Unix seconds; None: the user gave it another name."""
    try:
        return calendar.timegm(time.strptime(name.partition("-")[0], STAMP))
    except ValueError:
        return None


def announce(run_dir: Path, run: Run) -> None:
    """The last write of a new run: from here on it can be resumed, and runs/latest is it."""
    write_run(run_dir, run)
    try:
        point_latest(run_dir)
    except StorageError:  # another user's link, or none can be made: nothing is measured
        (run_dir / "run.json").unlink(missing_ok=True)
        raise


def point_latest(run_dir: Path) -> None:
    link = run_dir.parent / f".latest-{os.getpid()}"
    with storage(link):
        link.unlink(missing_ok=True)
        try:
            link.symlink_to(run_dir.name)
            os.replace(link, run_dir.parent / "latest")
        except BaseException:
            link.unlink(missing_ok=True)
            raise


def is_in(runs: Path, run_dir: Path) -> bool:
    """Whether the run, or its link, lies in this folder; a `latest` elsewhere is not the lab's."""
    return run_dir.parent.resolve() == runs.resolve()


def write_run(run_dir: Path, run: Run) -> None:
    write_json(run_dir / "run.json", run.to_json())


def read_run(run_dir: Path) -> Run:
    return _record(Run, run_dir / "run.json")


def _record(kind: type[Kind], path: Path) -> Kind:
    """One record of this lab's format; older writers left fields out, newer ones add some."""
    text = _read_text(path)
    data = _parsed(path, text)
    if not isinstance(data, dict):
        raise ResultsError(f"{path} is not whole: it holds no table")
    if data.get("format") != FORMAT:
        raise ResultsError(
            f"{path} has format {data.get('format')}, this lab reads {FORMAT}; "
            "use the version that wrote it"
        )
    try:
        _CHECKERS[kind].validate_json(text, strict=True)  # a word is not a truth value
        if kind is Run:
            _Copies.model_validate_json(text)
    except ValidationError as error:
        raise ResultsError(f"{path} is not whole: {_problem(error)}") from None
    return kind.from_json(data)


def _problem(error: ValidationError) -> str:
    """The first field that is wrong: `it lacks run_id`, `labels: Input should be an object`."""
    first = error.errors(include_url=False)[0]
    name = ".".join(map(str, first["loc"]))
    if first["type"] == "missing":
        return f"it lacks {name}"
    return f"{name}: {first['msg']}" if name else str(first["msg"])


def write_plan(run_dir: Path, plan: Iterable[PlannedTrial]) -> None:
    text = "".join(json.dumps(line.to_json()) + "\n" for line in plan)
    write_text(run_dir / "plan.jsonl", text)


def read_plan(run_dir: Path) -> list[PlannedTrial]:
    """Every line: it is written whole, and a report lacks the cell of a line that is left out."""
    path = run_dir / "plan.jsonl"
    lines = []
    for number, text in enumerate(_read_text(path).splitlines(), 1):
        try:
            _CHECKERS[PlannedTrial].validate_json(text, strict=True)
        except ValidationError as error:
            raise ResultsError(f"{path} is not whole: line {number}: {_problem(error)}") from None
        lines.append(PlannedTrial.from_json(json.loads(text)))
    return lines


def trial_dir(run_dir: Path, position: int, key: str) -> Path:
    return run_dir / "trials" / f"{position:06d}-{key}"


def write_trial(directory: Path, trial: Trial) -> None:
    """The last write of a trial: from here on it counts."""
    write_json(directory / "trial.json", trial.to_json())


def read_trials(run_dir: Path) -> list[Trial]:
    """Every finished trial, in the order in which they were planned. None counts twice."""
    by_key: dict[str, tuple[Path, Trial]] = {}
    for path in sorted((run_dir / "trials").glob("*/trial.json")):
        trial = _record(Trial, path)
        if trial.key in by_key:
            other = by_key[trial.key][0].parent.name
            raise ResultsError(f"{path}: the same trial as {other} (move the copy elsewhere)")
        by_key[trial.key] = path, trial
    return [trial for _, trial in by_key.values()]


def write_samples(directory: Path, samples: Iterable[Sample]) -> None:
    path = directory / "samples.jsonl"
    with storage(path):
        text = "".join(json.dumps(sample.to_json()) + "\n" for sample in samples)
        path.write_text(text, encoding="utf-8")


def read_samples(directory: Path) -> list[Sample]:
    """The samples of one trial's directory."""
    return [Sample.from_json(line) for line in _read_lines(directory / "samples.jsonl")]


def append_event(run_dir: Path, event: str, is_durable: bool = True, **details: Any) -> None:
    """One line in journal.jsonl; on the disk when this returns, where no other file says it."""
    path = run_dir / "journal.jsonl"
    line = json.dumps({"t": time.time(), "event": event, **details}) + "\n"
    with storage(path), open(path, "ab+") as file:
        file.write(b"\n" * _is_torn(file) + line.encode())
        file.flush()
        if is_durable:
            os.fsync(file.fileno())


def _is_torn(file: BinaryIO) -> bool:
    """Whether the last line was cut off, by a full disk or a power loss: nothing may join it."""
    if not file.seek(0, os.SEEK_END):
        return False
    file.seek(-1, os.SEEK_END)
    return file.read() != b"\n"


def read_events(run_dir: Path) -> list[dict[str, Any]]:
    return [event for event in _read_lines(run_dir / "journal.jsonl") if "event" in event]


def is_run(folder: Path) -> bool:
    """Whether it is the directory of a run that this user may look into."""
    return os.path.exists(folder / "run.json")  # of another user's folder Path.exists raises


def list_runs(runs: Path) -> list[Path]:
    """Every run directory, oldest first; a hidden name is a link that a killed lab left."""
    if not runs.is_dir():
        return []
    names = (p for p in runs.iterdir() if p.name != "latest" and not p.name.startswith("."))
    return sorted(p for p in names if is_run(p))


def half_made(runs: Path) -> list[Path]:
    """Folders of runs whose lab was killed before they were one, or while it removed them."""
    if not runs.is_dir():
        return []
    latest = time.time() - MADE_WITHIN_S
    return sorted(p for p in runs.iterdir() if _is_half_made(p) and p.stat().st_mtime < latest)


def _is_half_made(folder: Path) -> bool:
    """Whether the lab began it, or began to remove it, and nothing of a user's can be in it. A
    run.json is missing in other programs' folders too, and may be lost."""
    if folder.is_symlink() or is_run(folder):
        return False
    try:
        if os.path.isfile(folder / GOING):
            return True
        if not (_GIVEN.fullmatch(folder.name) and os.path.isdir(folder / "trials")):
            return False
        held = {name for name in _EMPTY_AT_FIRST if os.path.isdir(folder / name)}
        return not any(map(os.listdir, (folder / name for name in held))) and all(
            name in held or name in _FIRST or _is_temporary(name) for name in os.listdir(folder)
        )
    except OSError:  # another user's
        return False


def _is_temporary(name: str) -> bool:
    """Of `write_text`, which a kill cut off."""
    return name.startswith(".") and name.endswith(".new")


def _run_dir(runs: Path, path: Path) -> Path:
    """The run's own place: what a link leads to, wherever the link lies. A run that lies on another
    disk is its link in the folder of runs: there it is found, and `latest` points to it."""
    place = path.resolve()
    if place.parent == runs.resolve():
        return place
    return next((one for one in list_runs(runs) if one.resolve() == place), place)


def find_run(runs: Path, name: str) -> Path:
    """A run by path, by its directory's name or a part of it, by a baseline's name, or `latest`."""
    for path in (Path(name), runs / name, runs / BASELINES / name):
        if name and is_run(path):
            return _run_dir(runs, path)
    matches = [p for p in list_runs(runs) if name and (p.name.startswith(name) or name in p.name)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise ResultsError(f"run {name!r}: {len(matches)} runs match (write more of the name)")
    if not list_runs(runs):
        way = f"none exists yet; `{COMMAND} run quickstart` makes one"
        raise ResultsError(f"run {name!r}: not found in {runs} ({way})")
    raise ResultsError(f"run {name!r}: not found in {runs} (`{COMMAND} runs` lists the runs)")
