"""What a run of thousands of trials costs the lab besides its windows: `large.py [TRIALS]`.

Makes such a run (nothing is measured) and prints the seconds for reading and judging it, for its
report, and for the writes that each trial waits for on this disk.
"""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "report"))

from make_run import Kind, make_run
from rich.console import Console

from wirespeed.analysis.summary import load
from wirespeed.cli.run import write_report
from wirespeed.results import store

STACKS, ROUNDS, WRITES = 2, 10, 200


def kind(trials: int) -> Kind:
    rows = max(1, trials // (STACKS * ROUNDS))
    table = {"rows": "size", "columns": "stack", "value": "rps", "gain": {"over": "kernel"}}
    return Kind(
        "large", "A large run", {"size": list(range(rows)), "stack": ["kernel", "fast"]}, [table],
        lambda axes: 50_000 + axes["size"], repeat=ROUNDS,
    )  # fmt: skip


def timed(what: str, begun: float, count: int = 1) -> None:
    seconds = time.monotonic() - begun
    each = f", {seconds / count * 1e3:.2f} ms each" if count > 1 else ""
    print(f"{what}: {seconds:.2f} s{each}")


def main(trials: int) -> None:
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        run_dir = make_run(kind(trials), Path(folder))
        begun = time.monotonic()
        summary = load(run_dir)
        timed(f"read and judged {len(summary.valid)} trials", begun)
        begun = time.monotonic()
        write_report(run_dir, Console(quiet=True))
        timed("report", begun)
        one, begun = summary.valid[0], time.monotonic()
        for number in range(WRITES):
            target = Path(folder) / "writes" / str(number)
            target.mkdir(parents=True)
            store.write_json(target / "cmd.json", {}, is_durable=False)
            store.write_trial(target, replace(one, position=number))
            store.append_event(Path(folder), "trial", False, key=one.key)
        timed("writes of a trial", begun, WRITES)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
