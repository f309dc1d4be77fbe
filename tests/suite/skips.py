"""The tests that may be skipped: tests/skips.toml lists them all."""

import tomllib
from pathlib import Path

LIST = Path(__file__).resolve().parents[1] / "skips.toml"
KEYS = {"step", "reason", "why"}


def listed(path=LIST):
    """The entries of the list: `step`, a part of the tests' own `reason`, and `why` it is allowed."""
    entries = tomllib.loads(path.read_text()).get("skip", [])
    for entry in entries:
        if set(entry) != KEYS or not all(isinstance(entry[key], str) and entry[key] for key in KEYS):
            raise SystemExit(f"{path}: each [[skip]] needs {', '.join(sorted(KEYS))} as text, "
                             f"not {entry}")
    return entries


def unlisted(step, skips, entries):
    """The skips of a step that no entry allows."""
    reasons = [entry["reason"] for entry in entries if entry["step"] == step]
    return [skip for skip in skips if not any(reason in skip.reason for reason in reasons)]
