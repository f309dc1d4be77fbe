"""vegeta: an open loop at a rate; its results are read by `vegeta report -type=json`.

The recipe's words are options of `vegeta attack`, and an address at the end that is asked for.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from wirespeed import units
from wirespeed.driver.base import Command, Figures, Instance, Latency, LoadRun, Window
from wirespeed.driver.generator import (
    Generator,
    Output,
    has,
    json_of,
    little,
    no_result,
    number_after,
)
from wirespeed.errors import ProcessError

_QUANTILES = {"50th": 0.5, "90th": 0.9, "95th": 0.95, "99th": 0.99}
_ANSWER_S = 60.0
WORKERS_MAX = 10_000  # where -max-workers does not say


def command(_root: Path, instance: Instance, run: LoadRun) -> Command:
    argv = ["vegeta", "attack", "-output", str(_results(instance, run))]
    if not has(instance.argv, "-duration"):
        argv += ["-duration", units.duration_text(run.duration_s)]
    words = list(instance.argv)
    if words and words[-1].startswith(("http://", "https://")):
        targets = run.folder / f"vegeta-{instance.label}.targets"
        targets.write_text(f"GET {words.pop()}\n", encoding="utf-8")
        argv += ["-targets", str(targets)]
    return Command(argv + words)


def _results(instance: Instance, run: LoadRun) -> Path:
    return run.folder / f"vegeta-{instance.label}.bin"


def read(instance: Instance, run: LoadRun, output: Output) -> Figures:
    argv = ["vegeta", "report", "-type=json", str(_results(instance, run))]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=_ANSWER_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ProcessError(f"{instance.label}: vegeta report gave no answer: {error}") from error
    data = json_of(instance, "vegeta", done.stdout, output.last_words or done.stderr)
    try:
        return _figures(instance, data, output.started_unix_ns)
    except (KeyError, TypeError):
        raise no_result(instance, "vegeta", output.last_words) from None


def _figures(instance: Instance, data: dict, started_unix_ns: int) -> Figures:  # type: ignore[type-arg]
    seconds = (data["duration"] + data["wait"]) / 1e9
    requests, codes = data["requests"], data["status_codes"]
    failed = int(codes.get("0", 0))  # no answer at all
    good = sum(count for code, count in codes.items() if code.startswith("2"))
    answered = requests - failed
    times = data["latencies"]
    quantiles: dict[float, float | None] = {q: times[name] for name, q in _QUANTILES.items()}
    latency = Latency(times["mean"], times["max"], answered, quantiles)
    # Without a rate it sends 50 a second; with -rate 0 and -max-workers it is a closed loop.
    rate = _rate(instance.argv)
    rps = answered / seconds if seconds else 0.0
    workers = number_after(instance.argv, WORKERS_MAX, "-max-workers")
    return Figures(
        rps=rps,
        bytes_per_second=data["bytes_in"]["total"] / seconds if seconds else 0.0,
        window=Window(started_unix_ns, int(data["duration"])),
        completed=answered,
        errors=failed,
        non_2xx=answered - good,
        timeouts=sum("timeout" in text or "deadline" in text for text in data["errors"] or []),
        connections=workers,
        closed_loop=rate == 0,
        due=int(rate * data["duration"] / 1e9) if rate else None,
        sent=requests if rate else None,
        little_residual=None if rate else little(latency, workers, rps),
        latency={"service" if rate == 0 else "response": latency} if answered else {},
    )


def _rate(argv: list[str]) -> float:
    """Requests per second of `-rate 100`, `-rate=100/1s` or `-rate 6000/1m`."""
    for word, after in zip(argv, [*argv[1:], ""], strict=True):
        text = after if word == "-rate" else word[6:] if word.startswith("-rate=") else ""
        number, _, per = text.partition("/")
        if number.isdigit():
            return int(number) / (units.duration_s(per if per[:1].isdigit() else f"1{per or 's'}"))
    return 50.0


GENERATOR = Generator(command, read)
