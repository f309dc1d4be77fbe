"""The placeholder language of recipes: `{names}`, small arithmetic, and nothing else.

    text       = characters and placeholders, {{ and }} for braces
    placeholder= "{" scheme ":" name "}"            asset, jvm, template
               | "{" truth "?" text [":" text] "}"  the first text when true, else the second
               | "{" truth "}"
    truth      = both ("or" both)*
    both       = claim ("and" claim)*
    claim      = "not" claim | sum [(">" | ">=" | "<" | "<=" | "==" | "!=") sum]
    sum        = term  (("+" | "-") term)*
    term       = factor (("*" | "/" | "%") factor)*
    factor     = number | "-" factor | "(" truth ")" | path
    path       = name ("." name | "[" sum "]")*

It has no call, assignment or eval: a recipe can only name and compare things.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

SCHEMES = ("asset", "jvm", "template")
_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d+)?)|(?P<sign>(?:and|or|not)\b(?!-)|[<>=!]=|[-+*/%()\[\].<>])"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_-]*))"
)
_COMPARISONS = {
    ">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le,
    "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
NOTHING = object()  # what `{x ? text}` is when x is false: an argument that is left out
DEPTH_MAX = 8  # a variable may hold placeholders; deeper than this is a circle

Path = tuple[Any, ...]
Lookup = Callable[[Path], Any]
Scheme = Callable[[str, str], Any]


class ExpressionError(ValueError):
    """A placeholder that cannot be read or whose names do not exist."""


@dataclass(frozen=True)
class Names:
    """Where names come from: `lookup` for paths, `scheme` for `{asset:…}` and its like."""

    lookup: Lookup
    scheme: Scheme


def split(text: str) -> list[tuple[bool, str]]:
    """Cuts text into (is placeholder, inside) pieces; braces nest, doubled braces are literal."""
    pieces: list[tuple[bool, str]] = []
    literal, position = "", 0
    while position < len(text):
        character = text[position]
        if character in "{}" and text[position : position + 2] == character * 2:
            literal, position = literal + character, position + 2
        elif character == "{":
            end = _closing(text, position)
            if literal:
                pieces.append((False, literal))
            pieces.append((True, text[position + 1 : end]))
            literal, position = "", end + 1
        elif character == "}":
            raise ExpressionError(f"'}}' without '{{' in {text!r} (write '}}}}' for a plain brace)")
        else:
            literal, position = literal + character, position + 1
    if literal:
        pieces.append((False, literal))
    return pieces


def _closing(text: str, start: int) -> int:
    depth = 0
    for position in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return position
    raise ExpressionError(f"'{{' without '}}' in {text!r} (write '{{{{' for a plain brace)")


def value_of(text: str, names: Names, depth: int = 0) -> Any:
    """One text with its placeholders filled; a lone placeholder keeps its type."""
    if depth > DEPTH_MAX:
        raise ExpressionError(f"{text!r} refers to itself")
    pieces = split(text)
    if len(pieces) == 1 and pieces[0][0]:
        return _placeholder(pieces[0][1], names, depth)
    parts = []
    for is_placeholder, inside in pieces:
        value = _placeholder(inside, names, depth) if is_placeholder else inside
        if isinstance(value, list | dict):
            raise ExpressionError(f"{{{inside}}} is a list (it must be an argument of its own)")
        parts.append("" if value is NOTHING else to_text(value))
    return "".join(parts)


def arguments_of(argv: list[str], names: Names) -> list[str]:
    """An argument list: lists are spliced in, arguments that are nothing are left out."""
    result: list[str] = []
    for argument in argv:
        value = value_of(argument, names)
        if isinstance(value, list):
            result += arguments_of([to_text(item) for item in value], names)
        elif value is not NOTHING:
            result.append(to_text(value))
    return result


def to_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _placeholder(inside: str, names: Names, depth: int) -> Any:
    scheme, colon, rest = inside.partition(":")
    if colon and scheme.strip() in SCHEMES and "?" not in scheme:
        return names.scheme(scheme.strip(), to_text(value_of(rest.strip(), names, depth + 1)))
    condition, question, branches = _cut(inside, "?")
    if question:
        yes, colon, no = _cut(branches, ":")
        truth = _Reader(condition, names).all()
        if truth:
            return value_of(yes.strip(), names, depth + 1)
        return value_of(no.strip(), names, depth + 1) if colon and no.startswith(" ") else NOTHING
    value = _Reader(inside, names).all()
    if isinstance(value, str) and "{" in value:
        return value_of(value, names, depth + 1)
    return value


def _cut(text: str, mark: str) -> tuple[str, str, str]:
    """Cuts at the first `mark` that stands free (spaces around it), so texts may hold it."""
    match = re.search(rf"(?<=\s){re.escape(mark)}(?=\s)|(?<=\w){re.escape(mark)}(?=\s)", text)
    if mark == ":":
        match = re.search(r"\s:(?=\s)", text)
    if not match:
        return text, "", ""
    return text[: match.start()], mark, text[match.end() :]


class _Reader:
    """Recursive descent over one placeholder's inside."""

    def __init__(self, text: str, names: Names) -> None:
        self.text, self.names, self.position = text, names, 0
        self.kind, self.token = "", ""
        self._next()

    def all(self) -> Any:
        value = self._truth()
        if self.kind:
            raise self._error(f"unexpected {self.token!r}")
        return value

    def _next(self) -> None:
        rest = self.text[self.position :]
        if not rest.strip():
            self.kind = self.token = ""
            return
        match = _TOKEN.match(rest)
        if not match:
            raise self._error(f"unexpected character {rest.strip()[0]!r}")
        self.kind = match.lastgroup or ""
        self.token = match[self.kind]
        self.position += match.end()

    def _accept(self, *signs: str) -> str:
        if self.kind == "sign" and self.token in signs:
            sign = self.token
            self._next()
            return sign
        return ""

    def _truth(self) -> Any:
        value = self._both()
        while self._accept("or"):
            other = self._both()  # read in any case: its names must exist
            value = bool(value) or bool(other)
        return value

    def _both(self) -> Any:
        value = self._claim()
        while self._accept("and"):
            other = self._claim()
            value = bool(value) and bool(other)
        return value

    def _claim(self) -> Any:
        if self._accept("not"):
            return not self._claim()
        value = self._sum()
        sign = self._accept(*_COMPARISONS)
        if not sign:
            return value
        other = self._sum()
        if sign not in ("==", "!="):
            value, other = self._number(value), self._number(other)
        return bool(_COMPARISONS[sign](value, other))

    def _sum(self) -> Any:
        value = self._term()
        while sign := self._accept("+", "-"):
            other = self._number(self._term())
            value = self._number(value) + (other if sign == "+" else -other)
        return value

    def _term(self) -> Any:
        value = self._factor()
        while sign := self._accept("*", "/", "%"):
            value = self._apply(sign, self._number(value), self._number(self._factor()))
        return value

    def _apply(self, sign: str, left: float, right: float) -> float:
        if sign == "*":
            return left * right
        if right == 0:
            raise self._error("division by zero")
        if sign == "%":
            return left % right
        quotient = left / right
        # Connections over generators must come out whole; the rest is dropped, as wrk does.
        return int(quotient) if isinstance(left, int) and isinstance(right, int) else quotient

    def _factor(self) -> Any:
        if self._accept("-"):
            return -self._number(self._factor())
        if self._accept("("):
            value = self._truth()
            if not self._accept(")"):
                raise self._error("a ')' is missing")
            return value
        if self.kind == "number":
            token = self.token
            self._next()
            return float(token) if "." in token else int(token)
        if self.kind == "name":
            return self.names.lookup(self._path())
        raise self._error("a name or a number is missing")

    def _path(self) -> Path:
        path: list[Any] = [self.token]
        self._next()
        while sign := self._accept(".", "["):
            if sign == "[":
                path.append(self._number(self._sum()))
                if not self._accept("]"):
                    raise self._error("a ']' is missing")
            elif self.kind == "name":
                path.append(self.token)
                self._next()
            else:
                raise self._error("a name is missing after '.'")
        return tuple(path)

    def _number(self, value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._error(f"{value!r} is not a number")
        return value

    def _error(self, problem: str) -> ExpressionError:
        return ExpressionError(f"{{{self.text}}}: {problem}")
