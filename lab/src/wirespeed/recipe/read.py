"""Reads a recipe strictly: each mistake is one line: file: key: why (what to do)."""

from __future__ import annotations

import difflib
import re
import types
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel, ValidationError

from wirespeed import template
from wirespeed.errors import COMMAND, InputError, RecipeError
from wirespeed.recipe import compose, texts, upgrade
from wirespeed.recipe.model import WINDOW_OPTIONS, ProcessSpec, Recipe, Table, has_figures

WINDOW_LEAST_S = 0.001  # generators take whole milliseconds
Model = TypeVar("Model", bound=BaseModel)
#: Names that templates may use in every recipe; recipe/names.py has their values.
NAMES = ("server", "load", "origin", "run", "recipe", "link", "duration", "warmup", "port", "i",
         "count")  # fmt: skip
# Figures every trial has, whatever the recipe's metrics: docs/results-format.md lists them.
RESOURCE_ROLES = ("server", "load", "origin", "gc", "cpu")
RESOURCES = (
    "loadavg", "context_switches", "network_mbps", "memory_mib", "runqueue", "errors", "non_2xx",
    "timeouts", "little_residual", "steal",
)  # fmt: skip


def find(name: str, folders: list[Path]) -> Path:
    """A recipe by path, or by the name of a shipped one."""
    path = Path(name)
    if path.suffix == ".toml" or "/" in name:
        if path.is_file():
            return path
        raise InputError(f"recipe {name!r}: not found")
    for folder in folders:
        if (folder / f"{name}.toml").is_file():
            return folder / f"{name}.toml"
    known = sorted({p.stem for folder in folders for p in folder.glob("*.toml")})
    near = difflib.get_close_matches(name, known, 1)
    hint = (
        f"did you mean {near[0]!r}?" if near else f"shipped recipes: {', '.join(known) or 'none'}"
    )
    if Path(f"{name}.toml").is_file():
        hint = f"did you mean './{name}.toml'?"
    raise InputError(f"recipe {name!r}: not found ({hint})")


def read(path: Path) -> Recipe:
    return read_with(path, (), ())[0]


def read_with(path: Path, sets: Sequence[str], folders: Sequence[Path]) -> tuple[Recipe, str]:
    """The recipe with what it extends and what `--set` says, and the text of all that."""
    made = compose.compose(path, sets, folders or [path.parent])
    return _checked(made.data, path), made.text


def read_copy(path: Path) -> tuple[Recipe, str]:
    """The recipe that a run directory keeps, and its text, to measure it again: of earlier formats
    in today's. Refuses one whose commands may be others then, as all trials of a cell are of one.
    """
    made = upgrade.upgraded(compose.text_of(path), path.name)
    if made.remarks:
        raise RecipeError(
            path.name, "",
            f"of format 1, and may mean something else now: {made.remarks[0]} (convert a copy with "
            f"{COMMAND} upgrade, and measure that as a new run)",
        )  # fmt: skip
    return _checked(compose.loads(made.text, path.name), path), made.text


def _checked(data: dict[str, Any], path: Path) -> Recipe:
    recipe = validated(Recipe, data, path)
    _Checks(recipe, path.name).all()
    _check_templates(recipe, data, path)
    return recipe


def _check_templates(recipe: Recipe, data: dict[str, Any], path: Path) -> None:
    """Mistakes in templates, and placeholders of format 1, which would stay as they are."""
    names = {*recipe.axes, *(process.name for process in recipe.process), *NAMES}
    for keys, text in texts.walk(data):
        problem = ""
        try:
            if texts.is_title(keys):
                problem = _unknown_axis(text, recipe)
            elif keys[0] == "axes" and template.is_template(text):
                problem = f"{text!r} is not filled in (use a variable: [axis.{keys[1]}.VALUE])"
            elif texts.is_filled(keys):
                template.check(text)
                old = upgrade.old_placeholder(text, names.__contains__)
                problem = old and (
                    f"{old} is a placeholder of format 1 (write {{{{ … }}}}; for these characters "
                    f"{template.literal(old)})"
                )
        except template.BadTemplateError as error:
            problem = str(error)
        if problem:
            raise RecipeError(path.name, _dotted(_named(list(keys), data)), problem)


def _unknown_axis(title: str, recipe: Recipe) -> str:
    unknown = template.names_of_title(title) - {*recipe.axes, "axes", "link"}
    axes = ", ".join(recipe.axes) or "none"
    return f"unknown axis {min(unknown)!r} (axes: {axes})" if unknown else ""


def json_schema() -> dict[str, Any]:
    """What a file may say, for editors. A recipe that extends another says only what differs, so
    no key is missing from it; of the others the lab names what is missing."""
    made = Recipe.model_json_schema(by_alias=True)
    for part in made["$defs"].values():
        part.pop("required", None)
    needed = made.pop("required")
    made["properties"] |= {"extends": {"type": "string", "description": "Another recipe."}}
    either = [{"required": needed}, {"required": ["wirespeed", "extends"]}]
    return {"title": "A Wirespeed recipe", **made, "anyOf": either}


def parse_toml(path: Path) -> dict[str, Any]:
    return compose.loads(compose.text_of(path), path.name)


def validated(model: type[Model], data: dict[str, Any], path: Path) -> Model:
    try:
        return model.model_validate(data)
    except ValidationError as error:
        # Unknown keys first: they explain the missing ones.
        problems = error.errors()
        problems.sort(key=lambda problem: problem["type"] != "extra_forbidden")
        raise _explained(model, problems, path, data) from None


def _explained(
    model: type[BaseModel], problems: list[Any], path: Path, data: dict[str, Any]
) -> RecipeError:
    first = problems[0]
    location = _keys_of(first, data)
    key = _dotted(_named(location, data))
    if first["type"] == "extra_forbidden":
        return RecipeError(path.name, key, _unknown(model, location))
    if first["type"] == "missing":
        return RecipeError(path.name, key, "required key is missing")
    same_place = [problem for problem in problems if _keys_of(problem, data) == location]
    return RecipeError(path.name, key, _wrong_value(first, same_place))


def _keys_of(problem: Any, data: Any) -> list[Any]:
    """The keys and numbers that lead to the problem. Pydantic puts names of union members between
    them, which the file does not have."""
    *parts, last = problem["loc"] or (None,)
    location: list[Any] = []
    for part in (*parts, last):
        is_number = isinstance(data, list) and isinstance(part, int)
        if is_number or (isinstance(data, dict) and part in data):
            data = data[part]
            location.append(part)
    if problem["type"] == "missing":
        location.append(last)
    return location


def _named(location: list[Any], data: dict[str, Any]) -> list[Any]:
    """`process[0].argv` as `process.app.argv`, where the entry has a name."""
    if len(location) > 2 and isinstance(location[1], int):
        try:
            name = data[location[0]][location[1]]["name"]
        except (KeyError, IndexError, TypeError):
            return location
        if isinstance(name, str) and location[-1] != "name":
            return [location[0], name, *location[2:]]
    return location


def _dotted(location: list[Any]) -> str:
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def _unknown(model: type[BaseModel], location: list[Any]) -> str:
    known = _keys_at(model, location[:-1])
    near = difflib.get_close_matches(str(location[-1]), known, 1)
    if near:
        return f"unknown key (did you mean {near[0]!r}?)"
    return f"unknown key (known here: {', '.join(known)})" if known else "unknown key"


def _keys_at(model: type[BaseModel], location: list[Any]) -> list[str]:
    """The keys that the model has at this place."""
    current: Any = model
    for part in location:
        if isinstance(current, type) and issubclass(current, BaseModel):
            info = current.model_fields.get(str(part))
            current = info.annotation if info else None
        elif isinstance(part, int) or typing.get_origin(current) is dict:
            current = _member(current)
    current = _member(current)
    if not (isinstance(current, type) and issubclass(current, BaseModel)):
        return []
    return [info.alias or name for name, info in current.model_fields.items()]


def _member(annotation: Any) -> Any:
    """The model inside `list[Model]`, `dict[str, Model]` or `Model | None`."""
    if isinstance(annotation, type) and not isinstance(annotation, types.GenericAlias):
        return annotation
    for inner in reversed(typing.get_args(annotation)):
        found = _member(inner)
        if isinstance(found, type) and issubclass(found, BaseModel):
            return found
    return None


def _wrong_value(first: Any, same_place: list[Any]) -> str:
    value = first["input"]
    kind = first["type"]
    if kind == "value_error":
        return str(first["ctx"]["error"])
    if kind == "literal_error":
        return f"{value!r} is not one of {first['ctx']['expected']}"
    if kind == "string_pattern_mismatch":
        return f"{value!r} is not a name (letters, digits, - and _, starting with a letter)"
    if kind in ("greater_than_equal", "less_than_equal"):
        bound = first["ctx"].get("ge", first["ctx"].get("le"))
        word = "at least" if kind == "greater_than_equal" else "at most"
        return f"{value!r} is out of range ({word} {bound})"
    if kind == "list_type" and isinstance(value, dict) and first["loc"] == (first["loc"][0],):
        return f"must be a list of tables (write [[{first['loc'][0]}]])"
    expected = dict.fromkeys(_wanted(problem) for problem in same_place)
    return f"{value!r} is not {' or '.join(expected)}"


def _wanted(problem: Any) -> str:
    kinds = {
        "string_type": "a string", "int_type": "a whole number", "int_parsing": "a whole number",
        "float_type": "a number", "float_parsing": "a number", "bool_type": "true or false",
        "finite_number": "a finite number", "bool_parsing": "true or false",
        "list_type": "a list", "dict_type": "a table",
        "model_type": "a table", "int_from_float": "a whole number",
        "too_short": "a list with at least one entry",
    }  # fmt: skip
    return kinds.get(problem["type"], str(problem["msg"]))


class _Checks:
    """Checks over several keys: names that must exist elsewhere in the recipe."""

    def __init__(self, recipe: Recipe, file: str) -> None:
        self.recipe, self.file = recipe, file
        self.axes = recipe.axis_values()

    def all(self) -> None:
        self._axes()
        self._processes()
        self._plan()
        self._metrics()
        for number, table in enumerate(self.recipe.table):
            self._table(table, f"table[{number}]")

    def _axes(self) -> None:
        for name, values in self.axes.items():
            if not values:
                self._fail(f"axes.{name}", "empty (an axis needs at least one value)")
            if len({(type(v), v) for v in values}) != len(values):
                self._fail(f"axes.{name}", "has the same value twice (remove one)")
            for number, value in enumerate(values):
                same = [one for one in values[:number] if one == value or str(one) == str(value)]
                if same:
                    self._fail(
                        f"axes.{name}",
                        f"{same[0]!r} and {value!r} look the same in tables (remove one)",
                    )
        for name, variables in self.recipe.axis.items():
            self._axis_name(f"axis.{name}", name)
            known = [str(value) for value in self.axes[name]]
            for value in variables:
                # A value that is declared but not swept may be asked for later.
                if value not in known and difflib.get_close_matches(value, known, 1, 0.85):
                    near = difflib.get_close_matches(value, known, 1)[0]
                    self._fail(
                        f"axis.{name}.{value}", f"not a value of the axis (did you mean {near!r}?)"
                    )

    def _processes(self) -> None:
        names = [process.name for process in self.recipe.process]
        for number, name in enumerate(names):
            if name in names[:number]:
                self._fail(
                    f"process[{number}].name",
                    f"{name!r} is the name of another process (names must differ)",
                )
        for role in ("server", "load"):
            if role not in {process.role for process in self.recipe.process}:
                self._fail("process", f'no process has role = "{role}" (a recipe needs one)')
        for process in self.recipe.process:
            key = f"process.{process.name}.stack"
            self._window(process)
            self._one_text(process)
            if (
                process.stack
                and not template.is_template(process.stack)
                and process.stack not in self.recipe.stacks
            ):
                self._one_of(key, process.stack, list(self.recipe.stacks), "stack")

    def _one_text(self, process: ProcessSpec) -> None:
        """A whole command line in one string would be taken for the name of a program."""
        alone = re.sub(r"\{\{.*?\}\}", "", process.argv[0])
        if len(process.argv) == 1 and " " in alone.strip():
            split = re.findall(r"(?:\{\{.*?\}\}|\S)+", process.argv[0])
            words = ", ".join(f'"{word}"' for word in split)
            self._fail(
                f"process.{process.name}.argv",
                f"a single string (write each word separately: [{words}])",
            )

    def _window(self, process: ProcessSpec) -> None:
        """A generator's own duration would not be the window that the lab plans and records."""
        options = WINDOW_OPTIONS.get(process.tool or "", ())
        joined = tuple(o if len(o) == 2 else f"{o}=" for o in options)
        for word, after in zip(process.argv, [*process.argv[1:], ""], strict=True):
            is_alone = word in options
            is_joined = not is_alone and word.startswith(joined) if joined else False
            text = after if is_alone else word
            if (is_alone or is_joined) and not template.is_template(text):
                self._fail(
                    f"process.{process.name}.argv",
                    f"{word!r} fixes the length of the window (write {{{{ duration }}}}, and the "
                    "length as plan.duration)",
                )

    def _plan(self) -> None:
        plan = self.recipe.plan
        for name, value in plan.baseline.items():
            self._axis_value(f"plan.baseline.{name}", name, value)
        for number, values in enumerate(plan.skip):
            for name, value in values.items():
                self._axis_value(f"plan.skip[{number}].{name}", name, value)
        if plan.duration < WINDOW_LEAST_S:
            what = "shorter than 1ms" if plan.duration else "zero"
            self._fail("plan.duration", f"{what} (a measured window needs a length)")
        if plan.restart not in ("trial", "ramp"):
            for name in plan.restart.split("+"):
                if name not in self.axes:
                    axes = ", ".join(self.axes)
                    self._fail(
                        "plan.restart",
                        f"unknown axis {name!r} (write trial, ramp, or axes joined by +: {axes})",
                    )

    def _metrics(self) -> None:
        loads = {p.name: p for p in self.recipe.process if p.role == "load"}
        for number, metric in enumerate(self.recipe.metric):
            key = f"metric[{number}].from"
            if metric.from_ not in loads:
                self._one_of(key, metric.from_, list(loads), "process with role load")
            source = loads[metric.from_]
            if not has_figures(source.tool) and not source.figures:
                tools = ", ".join(WINDOW_OPTIONS)
                self._fail(
                    key,
                    f"{metric.from_!r} has no results to read (set its tool to one of {tools}, or "
                    "map its output with figures)",
                )

    def _table(self, table: Table, key: str) -> None:
        for name in table.each:
            self._axis_name(f"{key}.each", name)
        for name in table.rows:
            self._axis_name(f"{key}.rows", name)
        if table.columns:
            self._axis_name(f"{key}.columns", table.columns)
        for name, values in table.where.items():
            for value in values:
                self._axis_value(f"{key}.where.{name}", name, value)
        for value in [*([table.value] if table.value else []), *table.values]:
            self._metric_name(f"{key}.value", value)
        if table.gain and table.columns:
            self._axis_value(f"{key}.gain.over", table.columns, table.gain.over)
        elif table.gain:
            self._fail(f"{key}.gain", "a gain compares columns (add columns = an axis)")

    def _metric_name(self, key: str, value: str) -> None:
        metrics = {metric.name: metric for metric in self.recipe.metric}
        head = value.split(".")[0].split("[")[0]
        if value in RESOURCES or head in metrics or head in RESOURCE_ROLES:
            return
        self._one_of(key, value, [*metrics, *RESOURCES], "metric")

    def _axis_name(self, key: str, name: str) -> None:
        if name not in self.axes:
            self._one_of(key, name, list(self.axes), "axis")

    def _axis_value(self, key: str, axis: str, value: Any) -> None:
        self._axis_name(key, axis)
        if value not in self.axes[axis]:
            self._one_of(key, value, self.axes[axis], f"value of axis {axis}")

    def _one_of(self, key: str, value: Any, known: list[Any], what: str) -> NoReturn:
        near = difflib.get_close_matches(str(value), [str(k) for k in known], 1)
        hint = (
            f"did you mean {near[0]!r}?"
            if near
            else f"known: {', '.join(map(str, known)) or 'none'}"
        )
        noun, _, rest = what.partition(" ")
        self._fail(key, f"unknown {noun} {value!r}{' ' * bool(rest)}{rest} ({hint})")

    def _fail(self, key: str, problem: str) -> NoReturn:
        raise RecipeError(self.file, key, problem)
