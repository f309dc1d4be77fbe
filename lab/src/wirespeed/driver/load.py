"""wirespeed-load: its command line, and its JSON, which is all that is read of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from wirespeed import units
from wirespeed.driver.base import Command, Figures, Instance, Latency, LoadRun, Window
from wirespeed.driver.generator import Generator, Output
from wirespeed.errors import ProcessError

SCHEMA = "wirespeed-load/1"


def program(root: Path) -> Path:
    return root / "target" / "release" / "wirespeed-load"


def command(root: Path, instance: Instance, run: LoadRun) -> Command:
    argv = [str(program(root))]
    if instance.cores and "--pin" not in instance.argv:
        argv += ["--pin", ",".join(map(str, instance.cores))]
    if not any(word.startswith("-t") for word in instance.argv):
        argv += ["-t", str(max(1, len(instance.cores)))]
    if not any(word.startswith(("-d", "--duration")) for word in instance.argv):
        argv += ["-d", units.duration_text(run.duration_s)]
    if "--warmup" not in instance.argv:
        argv += ["--warmup", units.duration_text(run.warmup_s)]
    if run.timeout_s and not any(word.startswith(("-T", "--timeout")) for word in instance.argv):
        argv += ["--timeout", units.duration_text(run.timeout_s)]
    argv += ["--json", str(output(instance, run.folder)), "--start-at", f"{run.start_at:.6f}"]
    return Command(argv + instance.argv)


def output(instance: Instance, folder: Path) -> Path:
    return folder / f"load-{instance.label}.json"


def read(instance: Instance, run: LoadRun, last_words: str) -> Figures:
    path = output(instance, run.folder)
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ProcessError(
            f"{instance.label} ended without writing its figures: {last_words or 'no output'}"
        ) from None
    except ValueError as error:
        raise ProcessError(f"{instance.label} wrote figures that are not JSON: {error}") from error
    if data.get("schema") != SCHEMA:
        raise ProcessError(
            f"{instance.label} writes {data.get('schema')!r}, this lab reads {SCHEMA!r}; "
            "rebuild with ./wirespeed build load"
        )
    try:
        return figures(data)
    except (KeyError, TypeError) as error:
        raise ProcessError(f"{instance.label}: its figures lack {error}") from error


def figures(data: dict[str, Any]) -> Figures:
    totals, plan, errors = data["totals"], data["plan"], data["errors"]
    little = data.get("little")
    return Figures(
        rps=data["rps"],
        bytes_per_second=data["bytes_per_second"],
        window=Window(**{k: data["window"][k] for k in ("start_unix_ns", "length_ns")}),
        # also what the warm-up of an overloaded open loop left behind: the server answered it
        completed=totals.get("completed_in_window", totals["completed"]),
        errors=errors["total"],
        non_2xx=totals["non_2xx"],
        timeouts=errors["timeout"],
        connections=plan["connections"],
        closed_loop=plan["mode"] == "closed",
        due=totals.get("due"),
        sent=totals["sent"],
        little_residual=little["residual"] if little else None,
        latency={
            kind: _latency(value)
            for kind, value in data["latency"].items()
            if isinstance(value, dict) and value.get("unit") == "ns" and value.get("count")
        },
        busiest_thread=max((t["busy"] for t in data.get("threads", [])), default=None),
        threads=len(data.get("threads", [])),
        depth=plan.get("depth", 1),
        warnings=[warning["text"] for warning in data.get("warnings", [])],
        before=totals.get("warmup_completed"),
    )


def _latency(data: dict[str, Any]) -> Latency:
    return Latency(
        mean_ns=data["mean"],
        max_ns=data["max"],
        count=data["count"],
        quantiles_ns={float(q): value for q, value in data["quantiles"].items()},
        hdr=data.get("hdr_v2"),
    )


def _read(instance: Instance, run: LoadRun, output: Output) -> Figures:
    return read(instance, run, output.last_words)


GENERATOR = Generator(command, _read)
