#!/usr/bin/env python3
"""Finds habits of language that keep readers out, and names the term to use.

    tests/architecture/words.py [--count] [--added BASE] [--lower] [PATH ...]

Reads what people read: Markdown without code, comments, string literals (messages, help, option
tables), comments of TOML, profiles and scripts, and the names of functions that are sentences. Prints
`FILE:LINE: 'text': use TERM`. Exits with status 1 when a clean place has a finding or another place has
more than `words-left.toml` allows; with --added, when a line added since BASE has one. --count prints
the sums only; --lower writes lower numbers into `words-left.toml`. What a pattern finds wrongly, such as
a term of the field, is listed in `words-allowed.toml` with its reason.
Standard library only.
"""

import argparse
import io
import re
import subprocess
import sys
import tokenize
import tomllib
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LEFT = Path(__file__).with_name("words-left.toml")
ALLOWED = Path(__file__).with_name("words-allowed.toml")
ALLOWED_MAX = 20

#: (pattern, the term to use). A pattern that starts with "(" distinguishes capitals.
HABITS = [
    (r"\b(?<!there )(?:is|are|was|were) no (?!longer|more|less|such file)\w+", "invalid …, unknown …, not a …"),
    (r"(?:^|[.;:] )(?:Who(?:ever)?|What(?:ever)?) (?!is |are |does |if |happens |it |this |to |a )[a-z]+s? ",
     "the actor's name (client, worker, peer, caller)"),
    (r"\bthose (?:that|who)\b", "a noun"),
    (r"\bby (?:itself|themselves|others')\b", "the actor's name"),
    (r"\b(?:is|are|stays?|remains?) (?:the kernel's|ours|theirs|another's|anybody's|the program's)\b",
     "handled by the kernel, accelerated"),
    (r"\banew\b", "again"),
    (r"\b(?:mend|mends|mended|mending)\b", "fix"),
    (r"\bin vain\b", "spuriously, without effect"),
    (r"\bbeside\b", "next to, besides, in parallel with"),
    (r"\bby turns\b", "alternating, interleaved"),
    (r"\b(?:tell|tells|told|telling)\b", "report, notify, show"),
    (r"\b(?:hear|hears|heard) (?:of|from|nothing|it)\b", "receive, be notified"),
    (r"\b(?:CPU|requests?|frames?|calls?|reads?|writes?|cost|bytes|copies|µs|ns|ms) an? "
     r"(?:request|connection|frame|call|response|second|process|packet|file|round|core|message)\b", "per …"),
    (r"\bby the clock\b", "open loop, at a fixed rate"),
    (r"(?<!-for-)\b(?:calm|disturbed|strangers?)\b", "quiet, noisy, other processes, unknown peer"),
    (r"\bheld against\b", "checked against"),
    (r"\bgates? (?:is|are|stays?|were) (?:open|shut)\b", "passes, fails"),
    (r"\b(?:greet|greets|greeting|knock|bell|doorbell|luggage|grave|limbo|deaf|moot|strike|whispers?)\b",
     "the field's term"),
    (r"\bheights?\b(?!=)", "absolute values"),
    (r"\btrains?\b", "GSO segments, burst"),
    (r"\b(?:lent|lend|lends|loan|loans)\b", "zero-copy share"),
    (r"\bcannot be had\b", "is not available"),
    (r"\bnothing of (?:ours|theirs|it)\b", "a noun"),
    (r"\bhas (?:its|their) say\b", "applies"),
    (r"\bof before\b", "earlier"),
    (r"\bin due time\b", "later"),
    (r"\bas it does not\b|\bso it is\b|\bso far as\b", "something shorter"),
    (r"\b(?:leaves?|left) with (?:status )?\d", "exits with status"),
    (r"\bpast the kernel\b", "kernel bypass"),
    (r"\b(?:wants?) (?:a|an|one|no) \w+", "needs"),
    (r"\bside by side\b", "in parallel, next to each other"),
    (r"(?<!user )(?<!uid=)(?<!uid = )(?<!')\bnobody\b(?! nogroup)", "the actor's name"),
]
HABITS = [(re.compile(pattern, re.M if pattern.startswith("(") else re.I), instead)
          for pattern, instead in HABITS]

SKIP = re.compile(r"(^|/)(target|build|node_modules|published|history|corpus|corpora)/"
                  r"|(^|/)(LICENSE|words(-left|-allowed)?\.(py|toml)|test_words\.py)$|\.lock$")
#: Code in prose, and the values that a message has placeholders for.
CODE_SPAN = re.compile(r"`[^`]*`|\{[^{}]*\}")

#: Comments, strings and characters of Rust, Java and C, so that none is taken for another.
C_TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|\br(#*)".*?"\1|""".*?"""|"(?:\\.|[^"\\])*"'
                     r"|'(?:\\[^']+|[^'\\])'", re.S)
C_NAME = re.compile(r"\b(?:fn|void) (\w+)")
PYTHON_NAME = re.compile(r"\bdef (\w+)")
HASH_TEXT = re.compile(r"#.*|\"[^\"]*\"|'[^']*'")
WORDS_OF_A_SENTENCE = 4


@dataclass(frozen=True)
class Finding:
    path: str
    line: int
    text: str
    instead: str

    def __str__(self):
        return f"{self.path}:{self.line}: {self.text!r}: use {self.instead}"


def markdown(text):
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip().startswith("```"):
            fenced = not fenced
        elif not fenced:
            yield number, line


def literal_lines(number, literal):
    """The lines of a string literal; a literal of one word is a name, not prose."""
    for offset, part in enumerate(literal.split("\n")):
        part = re.sub(r"\\[nt]|\\$", " ", part)
        if " " in part.strip():
            yield number + offset, part


def sentence_of(name):
    """`a_name_of_words` or `aNameOfWords` as a sentence, if it has enough words to be one."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().strip("_").split("_")
    words = words[words[0] == "test":]
    return " ".join(words).capitalize() + " " if len(words) >= WORDS_OF_A_SENTENCE else ""


def names(text, pattern):
    for number, line in enumerate(text.splitlines(), 1):
        for name in pattern.findall(line):
            yield number, sentence_of(name)


def c_like(text):
    number, at = 1, 0
    for match in C_TOKEN.finditer(text):
        number, at = number + text.count("\n", at, match.start()), match.start()
        token = match.group()
        if token.startswith(("//", "/*")):
            yield from enumerate(token.split("\n"), number)
        elif not token.startswith("'"):
            yield from literal_lines(number, token.lstrip("r#").strip('"#'))
    yield from names(text, C_NAME)


def python(text):
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, SyntaxError):
        tokens = []
    for token in tokens:
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
        elif token.type == tokenize.STRING or "FSTRING_MIDDLE" in tokenize.tok_name[token.type]:
            yield from literal_lines(token.start[0], token.string.lstrip("rRbBfFuU").strip("\"'"))
    yield from names(text, PYTHON_NAME)


def hashed(text):
    """Comments and strings of a language whose comments start with `#`."""
    for number, line in enumerate(text.splitlines(), 1):
        for match in HASH_TEXT.findall(line):
            yield from literal_lines(number, match)


def page(text):
    yield from enumerate(text.splitlines(), 1)


READERS = {".md": markdown, ".rs": c_like, ".java": c_like, ".c": c_like, ".h": c_like, ".py": python,
           ".toml": hashed, ".opf": hashed, ".sh": hashed, ".conf": hashed, ".yml": hashed, ".j2": page,
           ".html": page, ".lua": page}


def reader_of(path, text):
    """The reader of a file: by its ending, or by its first line when it is a script without one."""
    if path.suffix in READERS or not text.startswith("#!"):
        return READERS.get(path.suffix)
    return python if "python" in text.split("\n", 1)[0] else hashed


def findings_in(name, text):
    """Every finding in the text of one file, in the order of its lines."""
    read = reader_of(Path(name), text)
    lines = list(read(text)) if read else []
    prose = [CODE_SPAN.sub("", line).strip(" \t/*!#->") for _, line in lines]
    joined = "\n".join(prose)
    starts = list(accumulate((len(line) + 1 for line in prose), initial=0))
    found = [Finding(name, lines[bisect_right(starts, match.start()) - 1][0], match.group().strip(), instead)
             for pattern, instead in HABITS for match in pattern.finditer(joined)]
    return sorted(found, key=lambda one: one.line)


def allowed():
    """The exceptions: tables of file, text and why."""
    return tomllib.loads(ALLOWED.read_text())["allowed"]


def is_allowed(finding, exceptions):
    return any(finding.path == one["file"] and finding.text == one["text"] for one in exceptions)


def read_tree(places=(), root=ROOT):
    """Path → text of each file that git knows in these places, or would add."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *places]
    listing = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    return {name: (root / name).read_text(errors="replace") for name in listing.splitlines()
            if not SKIP.search(name) and (root / name).is_file()}


def find(places=(), root=ROOT):
    """The findings of the tree, the allowed ones among them."""
    return [one for name, text in read_tree(places, root).items() for one in findings_in(name, text)]


def without_allowed(found):
    exceptions = allowed()
    return [one for one in found if not is_allowed(one, exceptions)]


def component_of(path):
    return "/".join(path.split("/")[:2])


def place_of(path):
    """The folder at the root, or `.` for the files of the root itself."""
    return path.split("/")[0] if "/" in path else "."


def over_limit(found, limits):
    """One line for each clean place with a finding and each other place with more than its number."""
    clean = tuple(limits["clean"])
    dirty = [one for one in found if in_place(one.path, clean)]
    lines = [f"{one} (this place is clean)" for one in dirty]
    counts = Counter(place_of(one.path) for one in found if one not in dirty)
    lines += [f"{place}: {count} findings, {limits['left'].get(place, 0)} are left from earlier "
              f"(see them with tests/architecture/words.py {place})"
              for place, count in sorted(counts.items()) if count > limits["left"].get(place, 0)]
    return lines


def in_place(path, places):
    return any(path == place or path.startswith(f"{place}/") for place in places)


def limits():
    return tomllib.loads(LEFT.read_text())


def lower(found):
    """Writes lower numbers where places have fewer findings than allowed."""
    counts = Counter(place_of(one.path) for one in found)
    text = LEFT.read_text()
    for place, number in limits()["left"].items():
        if counts[place] < number:
            text = re.sub(rf'^("?{re.escape(place)}"?) = \d+$', rf"\1 = {counts[place]}", text, flags=re.M)
    LEFT.write_text(re.sub(r"^.* = 0\n", "", text, flags=re.M))


def added_since(base):
    """Path → line numbers added since a commit."""
    out = subprocess.run(["git", "diff", "-U0", base, "--", "."], cwd=ROOT, capture_output=True, text=True,
                         check=True).stdout
    lines, path = {}, None
    for line in out.splitlines():
        if line.startswith("+++ "):
            path = line.removeprefix("+++ b/")
        elif line.startswith("@@"):
            start, _, count = re.search(r"\+(\d+)(,(\d+))?", line).groups()
            lines.setdefault(path, set()).update(range(int(start), int(start) + int(count or 1)))
    return lines


def summary(found, components_max=None):
    components = Counter(component_of(one.path) for one in found).most_common(components_max)
    most = ", ".join(f"{component} {count}" for component, count in components)
    return f"words: {len(found)} findings" + (f": {most}" if most else "")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--count", action="store_true")
    parser.add_argument("--added", metavar="BASE")
    parser.add_argument("--lower", action="store_true")
    parser.add_argument("places", nargs="*", metavar="PATH")
    asked = parser.parse_args()
    found = without_allowed(find(asked.places))
    if asked.added:
        added = added_since(asked.added)
        found = [one for one in found if one.line in added.get(one.path, ())]
    if not asked.count:
        print("".join(f"{one}\n" for one in found), end="")
    print(summary(found))
    if asked.lower:
        lower(without_allowed(find()))
    wrong = found if asked.added else over_limit(found, limits())
    print("".join(f"{one}\n" for one in wrong) if not asked.added else "", end="")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
