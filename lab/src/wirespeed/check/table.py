"""Reads a table of figures into cases with metrics in base units.

A *case* is what was measured (server, stack, payload, connections …), its metrics what came out.
Three forms are read:

    one figure a row   columns `metric`, `value` and, where it is known, `unit`
    one case a row     a column for each metric, with its unit behind it: `latency_mean_ms`
    JSON               a list of objects, one a case; arenas publish such files

A value may have its unit itself: `188us`, `344.12MB/s`, `150k`.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from wirespeed.errors import InputError, UnitError
from wirespeed.units import grouped

#: What a metric may be called in a table → what it is called here.
METRICS = {
    "rate": "rps tps qps rate requests_per_second requests/s req/s throughput_rps transactions/s",
    "throughput": "throughput network bandwidth goodput transfer",
    "latency_mean": "latency_mean mean latency latency_avg avg_latency mean_latency",
    "gain_printed": "gain_printed gain",
    "reconnects": "reconnects",
    "duration": "duration",
}
_CALLED = {name: metric for metric, names in METRICS.items() for name in names.split()}
_PERCENTILE = re.compile(r"(?:latency_)?p(\d{2,3}(?:\.\d+)?)(?:_latency)?")
_WITH_UNIT = re.compile(r"([\d.,]+)\s*([a-zA-Zµ]+(?:/[a-zA-Z]+)?)")

#: Names of columns with parallel workers, and with open connections.
WORKERS = ("instances_or_connections", "instances", "workers", "processes", "cores", "threads")
CONNECTIONS = ("connections", "concurrency", "clients")
#: Requests that each connection has open at once.
DEPTH = ("pipeline", "streams", "depth")
#: Names of what was measured: two of them have response heads of different lengths.
IMPLEMENTATION = ("framework", "implementation")
PAYLOAD = ("payload_bytes", "payload", "size_bytes", "bytes")
LINK = ("link_gbps",)
#: Position of a value, which does not identify the case.
_PLACE = {"table", "source", "file", "note"}
#: Results that no law uses, which do not identify the case either.
_RESULTS = re.compile(r"cpu|memory|input_bw|language|status_.*|tpl_.*")

_TIME_S = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_BITS = {"b": 1.0, "B": 8.0}
_PREFIX = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9}
_BIT_RATE = re.compile(r"([kKMG]?)(b|B|bit|bps)(?:/s|ps|s)?")

#: `req/s`, `k`, `krps`, `Mreq/s`, `req/min`; tools write `Requests/sec` and `Ops/sec`, too.
_NOUNS = (
    r"1|conns?|connections|reqs?|requests|responses|transactions|queries|ops?|messages|msgs?|calls"
    "|hits"
)
_RATE = re.compile(rf"([kKMG]?)(?i:(?:{_NOUNS})?/(s|sec|second|min|minute)|[rtq]p(s|m))?")
_COUNTS = {"gain_printed": {"": 1.0, "%": 1.0, "percent": 1.0}, "reconnects": _PREFIX}
#: Words behind a name that change its figure: `rps (thousands)`.
_FACTORS = re.compile(
    r"(?i:(?:minute|hour|day|thousand|million|billion|percent|factor|ratio)s?|times|x|%)"
)
_EXAMPLES = {"rate": "req/s, k or M", "gain_printed": "%", "reconnects": "k or M"}

Keys = tuple[tuple[str, str], ...]


@dataclass
class Case:
    """One measured case, with table and line, and its metrics: 1/s, s, bit/s, percent."""

    keys: dict[str, str]
    table: str = ""
    line: int = 0
    metrics: dict[str, float] = field(default_factory=dict)
    rate_name: str = ""  # what the table calls its rate: transactions are not requests

    def number(self, names: Iterable[str]) -> float | None:
        """The first of these keys that is there and is a number."""
        for name in names:
            try:
                value = grouped(self.keys[name])
            except (KeyError, UnitError):
                continue
            if math.isfinite(value):
                return value
        return None

    def without(self, names: Iterable[str]) -> Keys:
        """The identity of the case without these keys."""
        left = set(names)
        return tuple((key, value) for key, value in self.keys.items() if key not in left)

    def __str__(self) -> str:
        return described(self.table or f"line {self.line}", self.keys.items())


def described(table: str, keys: Iterable[tuple[str, str]]) -> str:
    """A case or several of them for people: `T5: payload_bytes 10000, link_gbps 25`."""
    said = ", ".join(f"{key} {value}" for key, value in keys if value)
    return f"{table}: {said}" if table else said


def read(path: Path) -> list[Case]:
    """The cases of a CSV or JSON file; raises InputError with file and line."""
    if path.suffix == ".json":
        return _objects(path)
    try:
        with path.open(newline="", encoding="utf-8-sig") as lines:
            reader = csv.DictReader(lines)
            heads = [head.strip() for head in reader.fieldnames or []]
            reader.fieldnames = heads
            rows = [(reader.line_num, row) for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"{path}: cannot be read as CSV: {reason}") from None
    long = {"metric", "value"} <= set(heads)
    if not long and not any(metric_of(head) for head in heads):
        raise InputError(
            f"{path}: no column is a metric (name one, for example rps, latency_mean_ms or "
            "throughput_Gb/s, or write one value per row in columns metric, value and unit)"
        )
    return _long(path, rows) if long else _wide(path, heads, rows)


def _objects(path: Path) -> list[Case]:
    """A JSON list. Objects without a metric are left out; a file without any is refused."""
    try:
        rows = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"{path}: cannot be read as JSON: {reason}") from None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InputError(f"{path}: not a list of objects (one for each case)")
    plain = [{str(k): _text(v) for k, v in row.items()} for row in rows]
    cases = []
    for number, row in enumerate(plain, 1):
        cases += _wide(path, [*row], [(number, row)], "object")
    cases = [case for case in cases if case.metrics]
    if rows and not cases:
        raise InputError(f"{path}: no object has a metric (for example rps or avg_latency)")
    return cases


def _text(value: object) -> str:
    """Of a JSON value; lists, tables, truth values and null are left out."""
    is_plain = isinstance(value, str | int | float) and not isinstance(value, bool)
    return str(value) if is_plain else ""


def _long(path: Path, rows: list[tuple[int, dict[str, str]]]) -> list[Case]:
    cases: dict[tuple[str, Keys], Case] = {}
    for line, row in rows:
        keys, table = _keys(row, {"metric", "value", "unit"}), row.get("table") or ""
        case = cases.setdefault((table, tuple(keys.items())), Case(keys, table, line))
        name = row["metric"] or ""
        if found := metric_of(name):
            unit = found[1] or row.get("unit") or ""
            _put(case, name, found[0], _value(row["value"], found[0], unit, f"{path}: line {line}"))
    return list(cases.values())


def _wide(
    path: Path, heads: list[str], rows: list[tuple[int, dict[str, str]]], place: str = "line"
) -> list[Case]:
    metrics = {head: found for head in heads if (found := metric_of(head))}
    cases = []
    for line, row in rows:
        named = path.stem if place == "object" else ""
        case = Case(_keys(row, metrics), row.get("table") or named, line)
        for head, (metric, unit) in metrics.items():
            if row.get(head):
                where = f"{path}: {place} {line}: {head}"
                _put(case, head, metric, _value(row[head], metric, unit, where))
        cases.append(case)
    return cases


def _put(case: Case, name: str, metric: str, value: float) -> None:
    case.metrics[metric] = value
    if metric == "rate":
        case.rate_name = name


def _keys(row: Mapping[str, str], metrics: Iterable[str]) -> dict[str, str]:
    aside = _PLACE | set(metrics) | {None}
    return {
        key: (value or "").strip()
        for key, value in row.items()
        if key not in aside and not _RESULTS.fullmatch(key)
    }


def metric_of(head: str) -> tuple[str, str] | None:
    """A column's name as metric and unit: `latency_mean_ms` → ("latency_mean", "ms")."""
    for name, unit in ((head, ""), *(_split(head, at) for at in _cuts(head))):
        plain = name.strip().lower()
        if plain in _CALLED:
            metric = _CALLED[plain]
            return metric, "" if _is_of_name(metric, head[len(name) :], unit) else unit
        if match := _PERCENTILE.fullmatch(plain):
            return f"p{match[1]}", unit
    return None


def _is_of_name(metric: str, tail: str, unit: str) -> bool:
    """Whether words that follow a name are part of it, not a unit: `rps_max`, `RPS (avg)`."""
    if metric not in _EXAMPLES or _factor(metric, unit) is not None:
        return False
    words = re.split(r"[\s,;()\[\]]+", unit)
    return tail.startswith("_") or not any(
        _is_unit(word) and _factor(metric, word) != 1.0 for word in words
    )


def _is_unit(word: str) -> bool:
    """Whether it is the unit of any metric."""
    forms = (_RATE, _BIT_RATE, _FACTORS)
    return word in _TIME_S or (word != "" and any(form.fullmatch(word) for form in forms))


def _cuts(head: str) -> list[int]:
    return [at for at in reversed(range(len(head))) if head[at] in "_ (["]


def _split(head: str, at: int) -> tuple[str, str]:
    return head[:at], head[at + 1 :].strip(" ()[]")


def _value(text: str | None, metric: str, unit: str, where: str) -> float:
    if not unit and (match := _WITH_UNIT.fullmatch((text or "").strip())):
        text, unit = match[1], match[2]
    try:
        value = grouped(text or "")
    except UnitError as error:
        raise InputError(f"{where}: {error}") from None
    if not math.isfinite(value):
        raise InputError(f"{where}: {text!r} is not a number")
    if value == 0 and not unit:
        return 0.0
    return value * _scale(metric, unit.split(" ")[0], where)


def _scale(metric: str, unit: str, where: str) -> float:
    if metric == "throughput":
        match = _BIT_RATE.fullmatch(unit)
        if not match:
            raise InputError(f"{where}: unknown unit {unit!r} of throughput (Mb/s, Gb/s or MB/s)")
        return _PREFIX[match[1]] * _BITS[match[2][0]]
    if metric in ("latency_mean", "duration") or metric.startswith("p"):
        if unit not in _TIME_S:
            raise InputError(f"{where}: unknown unit {unit!r} of a latency (ms, us or s)")
        return _TIME_S[unit]
    factor = _factor(metric, unit)
    if factor is None:
        what = {"gain_printed": "a gain", "rate": "a rate"}.get(metric, metric)
        raise InputError(f"{where}: unknown unit {unit!r} of {what} ({_EXAMPLES[metric]})")
    return factor


def _factor(metric: str, unit: str) -> float | None:
    """Of a metric that needs no unit, to 1/s, percent or a plain count; None for an unknown one."""
    if metric != "rate":
        return _COUNTS[metric].get(unit)
    match = _RATE.fullmatch(unit)
    if not match:
        return None
    is_per_minute = (match[2] or match[3] or "s").lower().startswith("m")
    return _PREFIX[match[1]] / (60.0 if is_per_minute else 1.0)
