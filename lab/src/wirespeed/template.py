"""The template language of recipes: Jinja2 in a sandbox.

A text that is nothing but one `{{ … }}` keeps the type of its value: a list becomes several
arguments, a number can be counted with. A name that does not exist is an error, never an empty
text. An expression without a value, as `{{ '-k' if test.close }}` where that is false, leaves its
argument out. Nothing here knows what a recipe is.
"""

from __future__ import annotations

import contextlib
import difflib
import re
import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from functools import lru_cache
from typing import Any

import jinja2
from jinja2 import StrictUndefined, Undefined, meta, nodes, pass_context
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedEnvironment

OMITTED = object()  # the value of an expression that has none: its argument is left out
DEPTH_MAX = 16  # a variable may hold templates; deeper than this is a circle
_MARKS = ("{{", "{%", "{#")
_WORDS = {  # for messages of Jinja2 that speak of its parser
    "chunk after expression": "unexpected text after the expression",
    "unexpected end of template, expected 'end of print statement'.": "'}}' is missing",
}
_PLAIN: tuple[type[Any], ...] = (bool, int, float, str)
_UNKNOWN = re.compile(r"'(.+)' is undefined")
_OPENING = re.compile(r"\{(?=[{%#A-Za-z_]|$)")  # what could be taken for a placeholder
#: Of a title: nothing that repeats or widens a text, as those of other people's runs are shown too.
_IN_TITLES = (
    nodes.Output, nodes.TemplateData, nodes.Name, nodes.Const, nodes.Getattr, nodes.Getitem,
    nodes.CondExpr, nodes.Compare, nodes.Operand, nodes.And, nodes.Or, nodes.Not, nodes.Add,
    nodes.Sub, nodes.Mul, nodes.Div, nodes.FloorDiv, nodes.Concat, nodes.Filter, nodes.Call,
)  # fmt: skip
_FILTERS_IN_TITLES = ("capitalize", "int", "lower", "round", "text", "title", "upper")
_depth: ContextVar[int] = ContextVar("depth", default=0)


class BadTemplateError(ValueError):
    """A template that cannot be read, or whose names do not exist."""


class Later:
    """A value that is computed when a template uses it."""

    def __init__(self, value: Callable[[], Any]) -> None:
        self.value = value


class Named:
    """Behind a name: its parts (`app.port`), and perhaps a value and numbered ones (`app[1].port`).

    A part hides an attribute that the value has itself: `{{ test.title }}` is the variable `title`.
    """

    _path: str
    _parts: Mapping[str, Any]
    _at: Callable[[int], Any] | None


class _Text(Named, str):
    pass


class _Whole(Named, int):
    pass


class _Decimal(Named, float):
    pass


class _Truth(Named, int):
    def __str__(self) -> str:
        return to_text(bool(self))


_KINDS: dict[type, Callable[[Any], Named]] = {
    str: _Text, int: _Whole, float: _Decimal, bool: _Truth,
}  # fmt: skip


def named(
    path: str,
    parts: Mapping[str, Any],
    value: Any = None,
    at: Callable[[int], Any] | None = None,
) -> Named:
    """A name with parts; their values may be computed `Later`."""
    made: Any = Named() if value is None else _KINDS[type(value)](value)
    made._path, made._parts, made._at = path, parts, at
    assert isinstance(made, Named)
    return made


class _Context(Context):
    def resolve_or_missing(self, key: str) -> Any:
        return _now(super().resolve_or_missing(key))


class _Environment(ImmutableSandboxedEnvironment):
    context_class = _Context
    intercepted_binops = frozenset(("*", "**"))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """A text times a number, or a power, could be larger than the memory."""
        if operator == "**":
            raise BadTemplateError("'**' is not supported")
        if not (isinstance(left, int | float) and isinstance(right, int | float)):
            raise BadTemplateError("'*' is for numbers only")
        return super().call_binop(context, operator, left, right)

    def getattr(self, obj: Any, attribute: str) -> Any:
        if not isinstance(obj, Named):
            return super().getattr(obj, attribute)
        if attribute in obj._parts:
            return _now(obj._parts[attribute])
        found = Undefined() if type(obj) is Named else super().getattr(obj, attribute)
        if not isinstance(found, Undefined):
            return found
        known = ", ".join(obj._parts) or "none"
        return self.undefined(f"unknown name '{obj._path}.{attribute}' (its parts: {known})")

    def getitem(self, obj: Any, argument: Any) -> Any:
        if isinstance(obj, Named) and isinstance(argument, str):
            return self.getattr(obj, argument)
        if isinstance(obj, Named) and isinstance(argument, int) and obj._at:
            return obj._at(argument)
        return super().getitem(obj, argument)


def _printed(value: Any) -> Any:
    """Of an expression within a text; as the filter `text`, of a part that `~` joins to others."""
    if isinstance(value, Undefined):
        return value  # a name that does not exist fails when it is printed
    if isinstance(value, list | tuple):
        raise BadTemplateError("a list within a text (it must be an argument of its own)")
    return "" if value is None else to_text(_plain(value))


# Nothing is computed while a template is checked: of another one's recipe that comes before trust.
_TEXTS = _Environment(
    undefined=StrictUndefined, keep_trailing_newline=True, optimized=False,
    finalize=pass_context(lambda _, value: _printed(value)),
)  # fmt: skip
_TEXTS.filters["text"] = _printed
_FILES = SandboxedEnvironment(undefined=StrictUndefined, keep_trailing_newline=True)


def is_template(text: str) -> bool:
    return any(mark in text for mark in _MARKS)


def check(text: str) -> None:
    """Raises BadTemplateError for what is not in the language; its names are not looked up."""
    with _problems(text, {}):
        _compiled(text)


def value_of(text: str, names: Mapping[str, Any]) -> Any:
    """One text with its templates filled in; OMITTED for an expression without a value."""
    if not is_template(text):
        return text
    depth = _depth.get()
    if depth > DEPTH_MAX:
        raise BadTemplateError(f"{text}: refers to itself")
    token = _depth.set(depth + 1)
    try:
        with _problems(text, names):
            value = _compiled(text)(names)
            if isinstance(value, StrictUndefined):
                str(value)  # raises what a text with it would
            return OMITTED if value is None or isinstance(value, Undefined) else _plain(value)
    finally:
        _depth.reset(token)


def arguments_of(argv: Sequence[str], names: Mapping[str, Any]) -> list[str]:
    """A command's arguments: lists are spliced in, and arguments without a value left out."""
    result: list[str] = []
    for argument in argv:
        value = value_of(argument, names)
        if isinstance(value, list):
            result += map(to_text, value)
        elif value is not OMITTED:
            result.append(to_text(value))
    return result


def file_of(text: str, variables: Mapping[str, Any]) -> str:
    """The text of a file that is made from a template."""
    with _problems("", variables):
        return _FILES.from_string(text).render(variables)


def names_of(text: str) -> set[str]:
    """The names that a template uses; raises BadTemplateError."""
    with _problems("", {}):
        return meta.find_undeclared_variables(_FILES.parse(text))


def names_of_title(title: str) -> set[str]:
    """The same of a title; raises BadTemplateError for what a title may not have, too."""
    with _problems(title, {}):
        tree = _TEXTS.parse(title)
        for node in tree.find_all(nodes.Node):
            if not _is_for_titles(node):
                raise BadTemplateError(
                    f"{type(node).__name__.lower()} in a title (it may have names, arithmetic, "
                    f"'{{:,}}'.format(x) and the filters {', '.join(_FILTERS_IN_TITLES)})"
                )
        return meta.find_undeclared_variables(tree)


def _is_for_titles(node: nodes.Node) -> bool:
    if isinstance(node, nodes.Call):
        of = node.node
        if not (isinstance(of, nodes.Getattr) and of.attr == "format"):
            return False
        return isinstance(of.node, nodes.Const) and has_short_fields(of.node.value)
    if isinstance(node, nodes.Filter):
        return node.name in _FILTERS_IN_TITLES
    return isinstance(node, _IN_TITLES)


def has_short_fields(text: str) -> bool:
    """Whether no field of a text for `str.format` is wider than 999 characters."""
    specs = [spec or "" for _, _, spec, _ in string.Formatter().parse(text)]
    return not any("{" in spec or re.search(r"\d{4}", spec) for spec in specs)


def literal(text: str) -> str:
    """The template of a text that may look like one."""
    if "\r" in text:  # of which Jinja2 makes line ends, but not within an expression
        return "{{ " + expression_of(text) + " }}"
    return _OPENING.sub("{{ '{' }}", text)


def expression_of(text: str) -> str:
    """The expression whose value is this text."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    escaped = escaped.replace("\r", "\\r")
    return f"'{escaped}'"


def to_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _now(value: Any) -> Any:
    return value.value() if isinstance(value, Later) else value


def _plain(value: Any) -> Any:
    """A value of the types that TOML has, without the parts of its name."""
    if isinstance(value, _Truth):
        return bool(value)
    for kind in _PLAIN:
        if isinstance(value, kind):
            return kind(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Named):
        known = ", ".join(value._parts)
        raise BadTemplateError(f"'{value._path}' has no value of its own (its parts: {known})")
    raise BadTemplateError(f"a {type(value).__name__} (must be a text, a number or a list)")


@lru_cache(maxsize=4096)
def _compiled(text: str) -> Callable[[Mapping[str, Any]], Any]:
    inside = _alone(text)
    if inside is None:
        return _TEXTS.from_string(text).render
    return _TEXTS.compile_expression(inside, undefined_to_none=False)


def _alone(text: str) -> str | None:
    """The expression of a text that is nothing else."""
    tokens = [(kind, value) for _, kind, value in _TEXTS.lex(text)]
    kinds = [kind for kind, _ in tokens]
    is_alone = (
        kinds[:1] == ["variable_begin"]
        and kinds[-1:] == ["variable_end"]
        and kinds.count("variable_end") == 1
    )
    return "".join(value for _, value in tokens[1:-1]) if is_alone else None


@contextlib.contextmanager
def _problems(text: str, names: Mapping[str, Any]) -> Iterator[None]:
    """Every error of a template as one line that begins with it."""
    head = f"{text}: " if text else ""
    try:
        yield
    except BadTemplateError as error:
        raise BadTemplateError(_once(head, str(error))) from None
    except jinja2.UndefinedError as error:
        raise BadTemplateError(head + _unknown(str(error.message), names)) from None
    except jinja2.TemplateSyntaxError as error:
        line = f"line {error.lineno}: " if not text or "\n" in text else ""
        problem = _WORDS.get(str(error.message), error.message)
        raise BadTemplateError(f"{head}{line}{problem}") from None
    except jinja2.TemplateError as error:
        raise BadTemplateError(f"{head}{error.message}") from None
    except ZeroDivisionError:
        raise BadTemplateError(f"{head}division by zero") from None
    except (MemoryError, RecursionError):
        raise BadTemplateError(f"{head}too large or too deeply nested") from None
    except (SyntaxError, NameError) as error:  # of the Python that Jinja2 makes
        raise BadTemplateError(f"{head}cannot be computed: {error.args[0]}") from None
    except (ArithmeticError, TypeError, ValueError, LookupError, AttributeError) as error:
        raise BadTemplateError(f"{head}{error}") from None


def _once(head: str, problem: str) -> str:
    """The problem of a variable's own template is said of that one."""
    return problem if _MARKS[0] in problem.partition(":")[0] else head + problem


def _unknown(message: str, names: Mapping[str, Any]) -> str:
    match = _UNKNOWN.fullmatch(message)
    if not match:
        return message
    near = difflib.get_close_matches(match[1], list(names), 1)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(sorted(names))}"
    return f"unknown name {match[1]!r} ({hint})" if names else f"unknown name {match[1]!r}"
