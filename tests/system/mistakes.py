"""Pages of mistakes: what is typed or written wrongly, and the exact message that answers it.

A page in docs/mistakes is documentation and test at once. Its fenced blocks, from top to bottom:

    ```LANG NAME        the file NAME in the folder of the command
    ```console          `$ COMMAND` lines, each with its output below it; a single command without
                        output is the command of the blocks that follow
    ```diff             a change to the last file, for the next `text` block only
    ```text             the output of the command of the page

A command exits with status 2; another status stands in brackets below its output. `…` in an expected
line stands for facts of a machine. Commands are run by forks of one process that has read the front
door and the lab, so a page of eighty mistakes takes a second.
"""

import json
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs" / "mistakes"
BLOCK = re.compile(r"^```(\S*) ?([^\n]*)\n(.*?)^```$", re.M | re.S)
STATUS = 2  # bad input


@dataclass
class Entry:
    """One mistake: files, command, and the place of the expected output in the page."""

    command: str
    files: dict[str, str]
    expected: str
    start: int
    end: int


@dataclass
class Page:
    text: str
    entries: list[Entry] = field(default_factory=list)


def parse(text):
    page, files, command, last, diff = Page(text), {}, "", "", ""
    for block in BLOCK.finditer(text):
        kind, name, body = block.groups()
        if name:
            files, last = {**files, name: body}, name
        elif kind == "diff":
            diff = body
        elif kind == "text":
            changed = {**files, last: applied(diff, files[last])} if diff else files
            page.entries.append(Entry(command, changed, body, block.start(3), block.end(3)))
            diff = ""
        elif kind == "console":
            shown = list(commands_in(body, block.start(3)))
            if len(shown) == 1 and shown[0][1] == shown[0][2]:
                command = shown[0][0]
            else:
                page.entries += [Entry(one, files, text[start:end], start, end)
                                 for one, start, end in shown]
    return page


def commands_in(body, offset):
    """(command, start and end of its output) of each `$` line."""
    prompts = list(re.finditer(r"^\$ (.*)\n", body, re.M))
    ends = [prompt.start() for prompt in prompts[1:]] + [len(body)]
    for prompt, end in zip(prompts, ends, strict=True):
        yield prompt[1], offset + prompt.end(), offset + end


def applied(diff, text):
    """The file with the change; the lines that it replaces must be in it once at least."""
    lines = [(line[:1] or " ", line[1:]) for line in diff.splitlines()]
    old = "".join(f"{line}\n" for sign, line in lines if sign in " -")
    new = "".join(f"{line}\n" for sign, line in lines if sign in " +")
    at = f"\n{text}".find(f"\n{old}")
    assert at >= 0, f"the file does not have the lines of this change:\n{diff}"
    return text[:at] + new + text[at + len(old):]


def fits(expected, actual):
    """Whether the output is the expected one, where `…` stands for any part of a line."""
    pattern = "[^\n]*".join(re.escape(part) for part in expected.split("…"))
    return re.fullmatch(pattern, actual) is not None


def rewritten(page, outputs):
    """The page with these outputs in place of the expected ones that do not fit."""
    text = page.text
    for entry, output in reversed(list(zip(page.entries, outputs, strict=True))):
        if not fits(entry.expected, output):
            text = text[:entry.start] + output + text[entry.end:]
    return text


def outputs_of(entries, folder):
    """The output of each command, with its exit status where that is not 2."""
    asked = [json.dumps({"command": shlex.split(entry.command), "files": entry.files}) for entry in entries]
    runner = [sys.executable, str(Path(__file__).with_name("run_mistakes.py")), str(folder)]
    done = subprocess.run(runner, input="\n".join(asked), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    return [without_places(answer["output"], folder)
            + ("" if answer["status"] == STATUS else f"(exit status {answer['status']})\n") for answer in answers]


def without_places(output, folder):
    """The output with `…` for the folders of this checkout and of the test."""
    for place in (folder, ROOT):
        output = re.sub(rf"{re.escape(str(place))}(/\d+)?", "…", output)
    return output


def misfits(page, outputs):
    """What a page shows and what is printed, where they differ."""
    return [f"{entry.command}\n  the page shows: {entry.expected}  it prints:      {output}"
            for entry, output in zip(page.entries, outputs, strict=True) if not fits(entry.expected, output)]
