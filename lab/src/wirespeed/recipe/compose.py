"""A recipe from parts: the file, the one that it extends, and what `--set` puts over both.

    extends = "quickstart"            # a shipped recipe, or a path relative to this one
    --set plan.duration=30s --set process.app.env.WORKERS=4

Tables are merged key by key; processes, metrics and other lists of named tables are merged by name;
any other list or value takes the place of the one below it.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wirespeed.errors import COMMAND, InputError, RecipeError
from wirespeed.recipe import texts
from wirespeed.template import expression_of, literal

OLD_FORMAT = 1  # its placeholders were another language: recipe/upgrade.py
_FOLDER_ALONE = re.compile(r"\{\{-?\s*recipe\.dir\s*-?\}\}")
_BLOCK = re.compile(r"\{\{.*?\}\}|\{%.*?%\}", re.S)
_FOLDER = re.compile(r"(?<![\w.])recipe\.dir\b")
BASES_MAX = 5  # a chain of recipes longer than this is hard to follow, or a circle


@dataclass(frozen=True)
class Composed:
    """What a recipe says in the end, and the text that says it."""

    data: dict[str, Any]
    text: str


def compose(path: Path, sets: Sequence[str], folders: Sequence[Path]) -> Composed:
    """Reads a recipe with what it extends; `folders` hold recipes that are named without a path."""
    text = text_of(path)
    data = _parsed(path, text)
    if "extends" not in data and not sets:
        return Composed(data, text)
    data = _with_base(path, data, folders, [path.resolve()], _parsed)
    for assignment in sets:
        _assign(data, assignment)
    head = f"# {path.name}" + "".join(f", --set {one}" for one in sets)
    head = "".join(letter if letter.isprintable() else " " for letter in head)  # one line of TOML
    return Composed(data, f"{head}, as it was measured\n{toml(data)}")


def in_any_format(path: Path, folders: Sequence[Path]) -> dict[str, Any]:
    """A recipe with what it extends, of any format: for names and numbers, not for its texts."""
    return _with_base(path, _toml(path, text_of(path)), folders, [path.resolve()], _toml)


def text_of(path: Path) -> str:
    """Without the mark that some editors of Windows put in front."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise RecipeError(path.name, "", f"cannot be read: {reason}") from error


def loads(text: str, file: str) -> dict[str, Any]:
    """A TOML document; raises RecipeError."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also of numbers with thousands of digits
        raise RecipeError(file, "", f"not TOML: {error}") from error


def _toml(path: Path, text: str) -> dict[str, Any]:
    return loads(text, path.name)


def _parsed(path: Path, text: str) -> dict[str, Any]:
    data = _toml(path, text)
    if data.get("wirespeed") == OLD_FORMAT and data["wirespeed"] is not True:
        raise RecipeError(
            path.name, "wirespeed",
            f"format {OLD_FORMAT}, of an earlier version (convert it: {COMMAND} upgrade {path})",
        )  # fmt: skip
    return data


def _with_base(
    path: Path,
    data: dict[str, Any],
    folders: Sequence[Path],
    seen: list[Path],
    parsed: Callable[[Path, str], dict[str, Any]],
) -> dict[str, Any]:
    name = data.pop("extends", None)
    if name is None:
        return dict(data)
    base = _base(path, name, folders)
    if base.resolve() in seen:
        raise RecipeError(
            path.name, "extends", f"{name!r} extends this recipe (remove one of the two)"
        )
    if len(seen) > BASES_MAX:
        raise RecipeError(
            path.name, "extends", f"more than {BASES_MAX} levels of recipes that extend each other"
        )
    data_below = parsed(base, text_of(base))
    below = _with_base(base, data_below, folders, [*seen, base.resolve()], parsed)
    if base.parent.resolve() != path.parent.resolve():
        below = _moved(below, base.parent.resolve())
    whole: dict[str, Any] = _merged(below, data)
    return whole


def _base(path: Path, name: Any, folders: Sequence[Path]) -> Path:
    if not isinstance(name, str):
        raise RecipeError(path.name, "extends", f"{name!r} is not a string")
    if name.endswith(".toml") or "/" in name:
        candidates = [path.parent / name]
    else:
        candidates = [folder / f"{name}.toml" for folder in (path.parent, *folders)]
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    raise RecipeError(path.name, "extends", f"recipe {name!r} not found")


def _moved(below: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Files next to the base get their full path, since the result is elsewhere."""
    processes = below.get("process")
    for process in processes if isinstance(processes, list) else []:
        if not isinstance(process, dict):  # refused later, when the whole is checked
            continue
        template = process.get("template")
        if isinstance(template, dict):
            process["template"] = {
                name: str(folder / source) if isinstance(source, str) else source
                for name, source in template.items()
            }
        argv = process.get("argv")
        if isinstance(argv, list) and argv and str(argv[0]).startswith("."):
            argv[0] = str(folder / argv[0])
    moved: dict[str, Any] = texts.mapped(below, lambda _, text: _in_folder(text, folder))
    return moved


def _in_folder(text: str, folder: Path) -> str:
    """A text of a recipe in that folder, with its name in place of `recipe.dir`."""
    alone = _FOLDER_ALONE.sub(lambda _: literal(str(folder)), text)
    name = expression_of(str(folder))
    return _BLOCK.sub(lambda block: _FOLDER.sub(lambda _: name, block[0]), alone)


def _merged(below: Any, above: Any) -> Any:
    if isinstance(below, dict) and isinstance(above, dict):
        both = {key: _merged(below[key], above[key]) for key in below if key in above}
        return {**below, **above, **both}
    if _is_named(below) and _is_named(above):
        names = [entry["name"] for entry in below]
        entries = {entry["name"]: entry for entry in below}
        for entry in above:
            entries[entry["name"]] = _merged(entries.get(entry["name"], {}), entry)
        return [entries[name] for name in dict.fromkeys([*names, *entries])]
    return above


def _is_named(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(entry, dict) and isinstance(entry.get("name"), str) for entry in value)
    )


def _assign(data: dict[str, Any], assignment: str) -> None:
    """`plan.duration=30s` or `process.app.count=2`: a value of TOML, or a plain text."""
    path, equals, text = assignment.partition("=")
    keys = [key.strip() for key in path.split(".")]
    if not equals or not all(keys):
        raise InputError(f"--set {assignment!r}: not KEY=VALUE (for example plan.duration=30s)")
    here: Any = data
    for key in keys[:-1]:
        here = _inside(here, key, assignment)
    if not isinstance(here, dict):
        raise InputError(f"--set {assignment!r}: {keys[-1]!r} is not a key of a table")
    here[keys[-1]] = _value(text.strip())


def _inside(here: Any, key: str, assignment: str) -> Any:
    """A table by its key, an entry of a list by its name or number."""
    if isinstance(here, dict):
        return here.setdefault(key, {})
    if isinstance(here, list):
        names = [entry.get("name") for entry in here if isinstance(entry, dict)]
        if key in names:
            return here[names.index(key)]
        if key.isdigit() and int(key) < len(here):
            return here[int(key)]
        known = ", ".join(str(name) for name in names if name) or f"0 to {len(here) - 1}"
        raise InputError(f"--set {assignment!r}: unknown name {key!r} (known: {known})")
    raise InputError(f"--set {assignment!r}: {key!r} is not a table")


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError, KeyError):
        return text


def toml(data: dict[str, Any]) -> str:
    """The same as TOML: one key a line, what is below it inline."""
    return "".join(f"{_key(key)} = {_inline(value)}\n" for key, value in data.items())


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_key(k)} = {_inline(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_inline, value)) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    return quoted(str(value))


def _key(key: str) -> str:
    is_bare = bool(key) and all(c.isascii() and (c.isalnum() or c in "-_") for c in key)
    return key if is_bare else quoted(key)


def quoted(text: str) -> str:
    """TOML's basic strings are JSON's, but for DEL, which must be escaped."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
