"""`wirespeed upgrade FILE …`: recipes of an earlier format, converted in place."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from wirespeed.cli import output
from wirespeed.recipe import compose
from wirespeed.recipe.upgrade import Upgraded, upgraded
from wirespeed.runner import place


def upgrade(files: list[Path], as_json: bool) -> None:
    """Reads all of them before it writes any, so that a mistake in one changes nothing."""
    made = {path: _read(path) for path in files}
    for path, (before, found) in made.items():
        if found.text != before:
            _write(path, found.text)
    if as_json:
        output.write([
            {"file": path, "changed": found.text != before,
             "changes": [asdict(change) for change in found.changes], "remarks": found.remarks}
            for path, (before, found) in made.items()
        ])  # fmt: skip
        return
    for path, (before, found) in made.items():
        print("\n".join(_lines(path, found, found.text != before)))


def _read(path: Path) -> tuple[str, Upgraded]:
    text = compose.text_of(path)
    folders = [Path.cwd() / "recipes", place.root() / "recipes"]
    return text, upgraded(text, path.name, lambda: compose.in_any_format(path, folders))


def _lines(path: Path, upgraded: Upgraded, is_changed: bool) -> list[str]:
    if not is_changed:
        return [f"{path}: has the current format"]
    count = len(upgraded.changes)
    lines = [f"{path}: converted, {count} {'text' if count == 1 else 'texts'} changed"]
    lines += [f"  {one.key}: {one.before} → {one.after}" for one in upgraded.changes]
    return lines + [f"  check this: {remark}" for remark in upgraded.remarks]


def _write(path: Path, text: str) -> None:
    """Its lines end as they did."""
    newline = "\r\n" if b"\r\n" in path.read_bytes() else "\n"
    output.write_file(path, text, newline)
