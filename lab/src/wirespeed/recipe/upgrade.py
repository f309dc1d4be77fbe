"""Recipes of format 1, whose placeholders were a language of their own, as those of format 2.

    {payload}  {connections / count}  {http[i].port}      {{ payload }}  {{ connections // count }}
    {asset:http-server}  {jvm:http-server}                {{ asset('http-server') }}
    {x ? yes : no}  {test.close ? -k}                     {{ 'yes' if x else 'no' }}
    {{  }}                                                a brace

Table titles were texts of Python's `str.format`. Only the texts change that were filled in;
comments and the layout of the file stay.
"""

from __future__ import annotations

import re
import string
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from wirespeed.errors import RecipeError
from wirespeed.recipe import compose, texts
from wirespeed.recipe.texts import Path
from wirespeed.template import BadTemplateError, check, expression_of, literal

MARK = "@"  # no bare key of TOML has it
OLD, NEW = compose.OLD_FORMAT, 2  # the key `wirespeed` of a recipe
FUNCTIONS = ("asset", "jvm", "template")
KEYWORDS = ("and", "or", "not", "in", "is", "if", "else", "true", "false", "none", "True", "False",
            "None", "axes", "processes")  # fmt: skip
_TOKEN = re.compile(
    r"(?P<space>\s*)(?:(?P<number>\d+(?:\.\d+)?)|(?P<sign>(?:and|or|not)\b(?!-)|[<>=!]=|[-+*/%()<>])"
    r"|(?P<path>[A-Za-z_][A-Za-z0-9_-]*(?:\.[A-Za-z_][A-Za-z0-9_-]*|\[[^\[\]]*\])*))"
)
_STEP = re.compile(r"\.(?P<name>[A-Za-z_][A-Za-z0-9_-]*)|\[(?P<number>[^\[\]]*)\]")
_TOML = re.compile(
    r'#[^\n]*|"""(?:[^\\]|\\.)*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'', re.S
)
_OLD = re.compile(  # ${name} is a shell's
    r"(?<![$\\])\{(?:(?P<function>asset|jvm|template):[^{}]+"
    r"|(?P<name>[A-Za-z_][\w-]*)(?:\.[\w-]+|\[\w+\])*(?:\s+[-+*/%?<>=!][^{}]*)?)\}"
)
_PLAIN = re.compile(r"\w+(?:\.\w+|\[[^\[\]\s]+\])*")
_NEW = re.compile(r"\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}", re.S)
_FORMAT = re.compile(r"^(\s*wirespeed\s*=\s*)1\b", re.M)


@dataclass(frozen=True)
class TextChange:
    """One text of a recipe, before and after."""

    key: str
    before: str
    after: str


@dataclass(frozen=True)
class Upgraded:
    """A recipe's text in the new format; `remarks` are what the user has to look at."""

    text: str
    changes: list[TextChange] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


class _OldPlaceholderError(ValueError):
    """A placeholder that format 1 did not have either."""


def upgraded(text: str, file: str, whole: Callable[[], dict[str, Any]] | None = None) -> Upgraded:
    """The same recipe in the new format; as it is where it has that already. Raises RecipeError.

    `whole` is read of a recipe that extends another: the names of both.
    """
    data = compose.loads(text, file)
    number = data.get("wirespeed", OLD if "extends" in data else None)
    if number == NEW:
        return Upgraded(text)
    if number != OLD or isinstance(number, bool):
        raise RecipeError(file, "wirespeed", f"{number!r} is not the format of a recipe (1 or 2)")
    language = _Language(data, file, whole() if whole and "extends" in data else data)
    converted = texts.mapped(data, language.converted)
    converted["wirespeed"] = NEW
    made = _replaced(text, language)
    if "wirespeed" in data:
        made = _FORMAT.sub(rf"\g<1>{NEW}", made, count=1)
    else:
        made = f"wirespeed = {NEW}\n{made}"
    if compose.loads(made, file) != converted:
        raise RecipeError(file, "", 'cannot be converted in place (write its strings as "…")')
    changes = language.changes()
    return Upgraded(made, changes, list(dict.fromkeys([*language.remarks, *language.left()])))


def _replaced(text: str, language: _Language) -> str:
    """The file with its strings converted. Where each one stands among the keys is found by a
    reading in which every string is a mark with its number in the file."""
    tokens = [match for match in _TOML.finditer(text) if not match[0].startswith("#")]
    numbered, end = "", 0
    for number, token in enumerate(tokens):
        numbered += text[end : token.start()] + f'"{MARK}{number}"'
        end = token.end()
    try:
        places = {one: path for path, one in texts.walk(tomllib.loads(numbered + text[end:]))}
    except tomllib.TOMLDecodeError:
        return text
    made, end = "", 0
    for number, token in enumerate(tokens):
        before = tomllib.loads(f"text = {token[0]}")["text"]
        path = places.get(f"{MARK}{number}")
        after = before if path is None else language.converted(_named(path, tokens), before)
        made += text[end : token.start()]
        made += token[0] if after == before else _written(token[0], after)
        end = token.end()
    return made + text[end:]


def _named(path: Path, tokens: list[re.Match[str]]) -> Path:
    """Keys that stand in quotes are marks, too, in such a reading."""
    return tuple(
        tomllib.loads(f"text = {tokens[int(part.removeprefix(MARK))][0]}")["text"]
        if isinstance(part, str) and part.startswith(MARK)
        else part
        for part in path
    )


def _written(token: str, text: str) -> str:
    """In the quotes that it had, where it can."""
    if token.startswith('"""'):
        escaped = text.replace("\\", "\\\\").replace('"""', '""\\"')
        return '"""' + "\n" * token.startswith('"""\n') + escaped + '"""'
    if token.startswith("'''") and "'''" not in text and not text.endswith("'"):
        return "'''" + "\n" * token.startswith("'''\n") + text + "'''"
    if token.startswith("'") and "'" not in text:
        return f"'{text}'"
    return compose.quoted(text)


class _Language:
    """From the placeholders of format 1 to those of format 2, for one recipe; `whole` has the names
    of the recipes that it extends, too."""

    def __init__(self, data: dict[str, Any], file: str, whole: dict[str, Any]) -> None:
        self.data, self.file = data, file
        self.remarks: list[str] = []
        axes = whole.get("axes", {})
        self.axes = set(axes) if isinstance(axes, dict) else set()
        processes = whole.get("process", [])
        entries = processes if isinstance(processes, list) else []
        self.processes = {str(one.get("name")) for one in entries if isinstance(one, dict)}
        self.fractions = set(_with_fractions(whole))

    def changes(self) -> list[TextChange]:
        every = ((path, text, self.converted(path, text)) for path, text in texts.walk(self.data))
        return [TextChange(_dotted(path, self.data), a, b) for path, a, b in every if a != b]

    def left(self) -> list[str]:
        """Placeholders in values of axes: format 1 filled them in where such a value was used."""
        return [
            f"{_dotted(path, self.data)}: {text!r} is not filled in now (use a variable: "
            f"[axis.{path[1]}.VALUE])"
            for path, text in texts.walk(self.data.get("axes", {}), ("axes",))
            if "{" in text
        ]

    def converted(self, path: Path, text: str) -> str:
        """The text there in the new language; raises RecipeError."""
        try:
            if texts.is_title(path):
                return self._title(text)
            if not texts.is_filled(path):
                return text
            made = "".join(
                f"{{{{ {self._placeholder(piece)} }}}}" if is_placeholder else literal(piece)
                for is_placeholder, piece in _split(text)
            )
            check(made)
            return made
        except (_OldPlaceholderError, BadTemplateError) as error:
            raise RecipeError(
                self.file, _dotted(path, self.data),
                f"{text!r} cannot be converted: {error} (correct it first)",
            ) from None  # fmt: skip

    def _title(self, text: str) -> str:
        try:
            parts = list(string.Formatter().parse(text))
        except ValueError:
            return literal(text)
        names = [name for _, name, _, _ in parts if name is not None]
        if any(not re.fullmatch(r"[A-Za-z][\w-]*", name) for name in names):
            return literal(text)  # it was printed as it stands
        return "".join(
            literal(before) + self._of_title(name, spec or "", conversion or "")
            for before, name, spec, conversion in parts
        )

    def _of_title(self, name: str | None, spec: str, conversion: str) -> str:
        if name is None:
            return ""
        if name not in self.axes and name != "link":
            return f"any {name}"
        form = f"{{{'!' + conversion if conversion else ''}{':' + spec if spec else ''}}}"
        path = self._root(name)
        return f"{{{{ {path if form == '{}' else f'{expression_of(form)}.format({path})'} }}}}"

    def _placeholder(self, inside: str) -> str:
        """The inside of braces as an expression."""
        scheme, colon, rest = inside.partition(":")
        if colon and scheme.strip() in FUNCTIONS and "?" not in scheme:
            name = scheme.strip()
            if name in self.axes | self.processes:
                raise _OldPlaceholderError(f"the name {name!r} hides the function {name}()")
            return f"{name}({self._as_text(rest.strip(), is_number=False)})"
        condition, question, branches = _cut(inside, "?")
        if not question:
            expression = self._expression(inside)
            is_truth = re.search(r"(?<![\w.-])(and|or)(?![\w-])", _outside_brackets(inside))
            return f"true if {expression} else false" if is_truth else expression
        yes, colon, no = _cut(branches, ":")
        chosen = f"{self._as_text(yes.strip())} if {self._expression(condition)}"
        return f"{chosen} else {self._as_text(no.strip())}" if colon else chosen

    def _as_text(self, text: str, is_number: bool = True) -> str:
        """A text of an alternative or a name, which may have placeholders itself."""
        pieces = _split(text)
        if not pieces:
            return "''"
        if is_number and re.fullmatch(r"0|[1-9]\d*", text):
            return text
        found = [
            self._placeholder(piece) if is_placeholder else expression_of(piece)
            for is_placeholder, piece in pieces
        ]
        if len(found) == 1:
            return f"({found[0]})" if " if " in found[0] and pieces[0][0] else found[0]
        parts = zip(found, pieces, strict=True)
        return " ~ ".join(_joined(one) if piece[0] else one for one, piece in parts)

    def _expression(self, text: str) -> str:
        made, position = "", 0
        signs = set()
        has_fractions = self._has_fractions(text)
        divide = "/" if has_fractions else "//"
        while text[position:].strip():
            match = _TOKEN.match(text, position)
            if not match:
                raise _OldPlaceholderError(f"{text[position:].strip()[0]!r} is unexpected")
            position = match.end()
            token = match["number"] or match["sign"] or self._path(match["path"])
            made += match["space"] + (divide if token == "/" else token)
            signs.add(match["sign"])
        if not made.strip():
            raise _OldPlaceholderError("a name is missing")
        if {"-", "/"} <= signs and not has_fractions:
            self.remarks.append(
                f"{{{text}}} rounds down; of a quotient below 0 format 1 left its fraction out"
            )
        return made.strip()

    def _has_fractions(self, text: str) -> bool:
        """Whether a division keeps its fraction: those of whole numbers dropped it."""
        paths = [match["path"] for match in _TOKEN.finditer(text) if match["path"]]
        names = {path.partition(".")[0] for path in paths}
        has = bool(re.search(r"\d\.\d", text)) or not names.isdisjoint(self.fractions)
        if has and "/" in text:
            self.remarks.append(
                f"{{{text}}} keeps the fractions of a division; // leaves them out, as format 1 "
                "did where both were whole numbers"
            )
        return has

    def _path(self, path: str) -> str:
        root = re.match(r"[\w-]+", path)
        assert root is not None
        made = self._root(root[0])
        for step in _STEP.finditer(path, root.end()):
            if step["name"] is None:
                made += f"[{self._expression(step['number'])}]"
            else:
                is_plain = "-" not in step["name"]
                made += f".{step['name']}" if is_plain else f"[{expression_of(step['name'])}]"
        return made

    def _root(self, name: str) -> str:
        """A name that is none in Jinja2 is an entry of `axes` or `processes`."""
        if "-" not in name and name not in KEYWORDS:
            return name
        return f"{'axes' if name in self.axes else 'processes'}[{expression_of(name)}]"


def _joined(expression: str) -> str:
    """An expression as a part of a text: `~` alone would write True and 2.0."""
    return f"{expression}|text" if _PLAIN.fullmatch(expression) else f"({expression})|text"


def _with_fractions(data: dict[str, Any]) -> Iterator[str]:
    """Axes with a value, or a variable, that is not a whole number."""
    for table in ("axes", "axis"):
        found = data.get(table, {})
        for name, value in found.items() if isinstance(found, dict) else ():
            if _any_float(value):
                yield name


def _any_float(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_any_float, value.values()))
    if isinstance(value, list):
        return any(map(_any_float, value))
    return isinstance(value, float)


def _split(text: str) -> list[tuple[bool, str]]:
    """Cuts text into (is placeholder, inside) pieces; braces nest, doubled braces are literal."""
    pieces: list[tuple[bool, str]] = []
    plain, position = "", 0
    while position < len(text):
        character = text[position]
        if character in "{}" and text[position : position + 2] == character * 2:
            plain, position = plain + character, position + 2
        elif character == "{":
            end = _closing(text, position)
            pieces += [(False, plain)] * bool(plain)
            pieces.append((True, text[position + 1 : end]))
            plain, position = "", end + 1
        elif character == "}":
            raise _OldPlaceholderError("'}' without '{'")
        else:
            plain, position = plain + character, position + 1
    return pieces + [(False, plain)] * bool(plain)


def _closing(text: str, start: int) -> int:
    depth = 0
    for position in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return position
    raise _OldPlaceholderError("'{' without '}'")


def _cut(text: str, mark: str) -> tuple[str, str, str]:
    """Cuts at the first `mark` with spaces around it, so that texts may contain it."""
    pattern = r"\s:(?=\s)" if mark == ":" else r"(?:(?<=\s)|(?<=\w))\?(?=\s)"
    match = re.search(pattern, text)
    return (text[: match.start()], mark, text[match.end() :]) if match else (text, "", "")


def _outside_brackets(text: str) -> str:
    while (shorter := re.sub(r"\([^()]*\)|\[[^\[\]]*\]", "", text)) != text:
        text = shorter
    return text


def _dotted(path: Path, data: Any) -> str:
    """`process.app.argv[1]`, where entries have names."""
    made = ""
    for part in path:
        try:
            data = data[part]
        except (LookupError, TypeError):
            data = None
        if isinstance(part, int):
            name = data.get("name") if isinstance(data, dict) else None
            made += f".{name}" if isinstance(name, str) else f"[{part}]"
        else:
            made += f".{part}" if made else part
    return made


def old_placeholder(text: str, is_known: Callable[[str], bool]) -> str:
    """The first placeholder of format 1 in a text of format 2; empty where there is none."""
    found = _OLD.finditer(_NEW.sub("", text))
    return next((one[0] for one in found if one["function"] or is_known(one["name"])), "")
