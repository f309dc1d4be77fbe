"""A run for an OpenTelemetry collector, over OTLP/HTTP in JSON.

Traces: a span for the run and one for each trial's window, so that a dashboard of the machine's own
metrics shows which trial ran when; an invalid one is an error with its reasons. Metrics: gauges of
valid trials at the end of their windows. Ids come from the run's, so a run that is sent again is
the same spans. https://opentelemetry.io/docs/specs/otlp/#otlphttp
"""

from __future__ import annotations

import hashlib
import http.client
import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

import wirespeed
from wirespeed.analysis.summary import Summary
from wirespeed.errors import InputError, RunError
from wirespeed.report import wording
from wirespeed.results.model import Trial

TRIALS_AT_ONCE = 200  # collectors refuse bodies of more than some megabytes
ANSWER_S = 30.0
NO_ADDRESS = "--otlp: not an address (such as http://127.0.0.1:4318)"
WORD = re.compile(r"[!-~]+")  # what HTTP takes as an address
SPAN_INTERNAL, STATUS_OK, STATUS_ERROR = 1, 1, 2
Document = dict[str, Any]


@dataclass(frozen=True)
class Collector:
    """Where a run is sent. Messages have `shown` alone: a path may be secret."""

    url: str
    shown: str  # scheme, host and port


def collector(text: str) -> Collector:
    """The collector of `--otlp`, before anything is sent; raises InputError."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:  # an open bracket, a port like `http`
        raise InputError(NO_ADDRESS) from None
    if parts.scheme not in ("http", "https") or not parts.hostname or not WORD.fullmatch(text):
        raise InputError(NO_ADDRESS)
    if "@" in parts.netloc or "?" in text or "#" in text:
        raise InputError("--otlp: the address has a user, query or fragment (leave it out)")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    shown = f"{parts.scheme}://{host}" + ("" if port is None else f":{port}")
    return Collector(shown + parts.path.rstrip("/"), shown)


def send(summary: Summary, to: Collector) -> None:
    """Sends the whole run; raises RunError when the collector does not take all of it."""
    trials = sorted((*summary.valid, *summary.invalid), key=lambda trial: trial.t_start)
    for number, part in enumerate(batches(trials)):
        spans = [span(summary, trial) for trial in part]
        _post(to, "/v1/traces", traces(summary, [_of_run(summary)] * (number == 0) + spans))
        if points := metrics(summary, [trial for trial in part if trial.valid]):
            _post(to, "/v1/metrics", points)


def batches(trials: Sequence[Trial]) -> Iterator[Sequence[Trial]]:
    for start in range(0, max(1, len(trials)), TRIALS_AT_ONCE):
        yield trials[start : start + TRIALS_AT_ONCE]


def traces(summary: Summary, spans: list[Document]) -> Document:
    scope = {"scope": _scope(), "spans": spans}
    return {"resourceSpans": [{"resource": _resource(summary), "scopeSpans": [scope]}]}


def metrics(summary: Summary, trials: Sequence[Trial]) -> Document:
    """Gauges by metric; empty without any."""
    points: dict[str, list[Document]] = {}
    for trial in trials:
        start_ns, end_ns = _window(trial)
        for name, value in trial.metrics.items():
            if value is not None:
                points.setdefault(name, []).append({
                    "attributes": _attributes(_place(trial)), "asDouble": float(value),
                    "startTimeUnixNano": str(start_ns), "timeUnixNano": str(end_ns),
                })  # fmt: skip
    gauges = [
        {
            "name": f"wirespeed.{name}",
            "unit": _unit(name, summary),
            "gauge": {"dataPoints": own},
        }
        for name, own in points.items()
    ]
    scope = {"scope": _scope(), "metrics": gauges}
    resource = {"resource": _resource(summary), "scopeMetrics": [scope]}
    return {"resourceMetrics": [resource]} if gauges else {}


def _unit(name: str, summary: Summary) -> str:
    """As UCUM writes it, in which a ratio has the unit 1."""
    unit = wording.measure(name, summary.unit(name)).stored_unit
    return "1" if unit in ("share", "×") else unit.replace("µ", "u")


def span(summary: Summary, trial: Trial) -> Document:
    start_ns, end_ns = _window(trial)
    attributes = {
        **_place(trial), "bottleneck": trial.bottleneck, "disturbed": float(trial.disturbed),
        "notes": "; ".join(trial.notes),
    }  # fmt: skip
    run = summary.run.run_id
    return {
        "traceId": _id(16, run), "spanId": _id(8, run, trial.key), "parentSpanId": _id(8, run),
        "name": f"trial {trial.position}", "kind": SPAN_INTERNAL,
        "startTimeUnixNano": str(start_ns), "endTimeUnixNano": str(end_ns),
        "attributes": _attributes(attributes),
        "status": {"code": STATUS_OK} if trial.valid
        else {"code": STATUS_ERROR, "message": "; ".join(trial.reasons)},
    }  # fmt: skip


def _of_run(summary: Summary) -> Document:
    run = summary.run
    return {
        "traceId": _id(16, run.run_id), "spanId": _id(8, run.run_id), "name": run.recipe,
        "kind": SPAN_INTERNAL, "startTimeUnixNano": str(_unix_ns(run.started)),
        "endTimeUnixNano": str(_unix_ns(run.ended or run.started)),
        "attributes": _attributes({"state": run.state, "title": run.title}),
    }  # fmt: skip


def _window(trial: Trial) -> tuple[int, int]:
    if trial.window:
        start_ns = trial.window.start_unix_ns
        return start_ns, start_ns + trial.window.length_ns
    return int(trial.t_start * 1e9), int(trial.t_end * 1e9)


def _unix_ns(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp()) * 1_000_000_000 if text else 0


def _place(trial: Trial) -> Document:
    return {**trial.axes, "cell": trial.cell, "round": trial.round}


def _resource(summary: Summary) -> Document:
    run = summary.run
    attributes = {
        "run": run.run_id, "recipe": run.recipe, "commit": run.commit, "site": run.site,
        **{f"label.{name}": value for name, value in run.labels.items()},
    }  # fmt: skip
    name = {"key": "service.name", "value": {"stringValue": "wirespeed"}}
    return {"attributes": [name, *_attributes(attributes)]}


def _scope() -> Document:
    return {"name": "wirespeed", "version": wirespeed.__version__}


def _attributes(values: Document) -> list[Document]:
    return [{"key": f"wirespeed.{name}", "value": _value(value)} for name, value in values.items()]


def _value(value: object) -> Document:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}  # 64 bits are a string in protobuf's JSON
    if isinstance(value, float):
        return {"doubleValue": value}
    return {"stringValue": str(value)}


def _id(size: int, *parts: str) -> str:
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=size).hexdigest()


def _post(to: Collector, path: str, document: Document) -> None:
    body = json.dumps(document).encode()
    request = urllib.request.Request(to.url + path, body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_S) as response:
            answer = json.loads(response.read() or b"{}")
    except urllib.error.HTTPError as error:
        problem = f"{to.shown} responds to {path} with {error.code}"
        raise RunError(f"--otlp: {problem} (is it an OTLP/HTTP receiver?)") from None
    except http.client.HTTPException as error:  # its text may be bytes of another protocol
        problem = f"{to.shown}: no HTTP/1 response: {type(error).__name__}"
        raise RunError(f"--otlp: {problem} (is it a port for gRPC?)") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise RunError(f"--otlp: {to.shown}: {reason} (is a collector listening there?)") from None
    refused = answer.get("partialSuccess") if isinstance(answer, dict) else None
    if not isinstance(refused, dict):
        return
    count = str(refused.get("rejectedSpans") or refused.get("rejectedDataPoints") or 0)
    if count != "0":
        reason = refused.get("errorMessage") or "no reason given"
        line = " ".join(f"{to.shown} rejected {count} of {path}: {reason}".split())
        raise RunError(f"--otlp: {line}")
