"""The commands and links that the documents show work when they are pasted."""

import functools
import os
import re
import shlex
import subprocess
import sys
import types

import pytest
from components import ROOT
from test_shape import relative, tracked
from typer.main import get_command
from typer.testing import CliRunner
from wirespeed.cli.app import app

# What a reader replaces by a thing of his own.
STANDS_FOR = ("RECIPE", "RUN", "NAME", "URL", "COMMAND", "…", "./my.toml", "./my-server.toml")
GENERATOR_OPTIONS = (ROOT / "docs" / "load-options.md").read_text()
LAB = get_command(app).commands
COMMANDS_LEAST = 30  # a change of habit in the documents must not empty this test


def blocks_of_commands(text):
    """The fenced blocks with commands. The closing fence of a block in another language was taken for an
    opening one, and the commands below it were not looked at."""
    fenced = re.findall(r"^ *```(\w*)\n(.*?)^ *```", text, re.M | re.S)
    return [block for language, block in fenced if language in ("", "console", "sh")]


def shown_commands():
    """(page, words) of every command of ours, in a console block or between backquotes."""
    for page in tracked(".md"):
        if relative(page).startswith("docs/mistakes/"):
            continue  # tests/system/test_mistakes.py runs these
        text = page.read_text()
        lines = [line for block in blocks_of_commands(text) for line in block.replace("\\\n", " ").splitlines()]
        lines += re.findall(r"`([^`\n]+)`", text)
        for line in lines:
            found = re.match(r"(?:\$ )?(?:\./)?wirespeed (\S.*)", line.strip())
            if found:
                yield relative(page), shlex.split(found[1], comments=True)


SHOWN = sorted({(page, tuple(words)) for page, words in shown_commands()})


def test_shown_commands_name_the_front_door():
    """A checkout puts no command on the PATH; only an installed package does."""
    bare = []
    for page in tracked(".md"):
        if relative(page) in ("docs/install.md", "CHANGELOG.md"):
            continue
        text = page.read_text()
        lines = [line.removeprefix("$ ") for block in blocks_of_commands(text) for line in block.splitlines()]
        lines += [words for words in re.findall(r"`([^`\n]+)`", text) if words.startswith("wirespeed ")]
        bare += [f"{relative(page)}: {line}" for line in lines
                 if re.match(r"(wirespeed|wirespeed-load|bypass) ", line)]
    assert not bare


def front_door():
    """The front door as a module: it is a script without a suffix."""
    door = types.ModuleType("front_door")
    door.__file__ = str(ROOT / "wirespeed")
    exec(compile((ROOT / "wirespeed").read_text(), door.__file__, "exec"), door.__dict__)
    return door


def known_commands():
    return {name for group in front_door().COMMANDS.values() for name in group}


def test_generator_and_bypass_are_built_without_a_jdk_as_the_pages_say():
    parts = front_door().PARTS
    assert {parts[name].command[0] for name in ("load", "bypass")} == {"cargo"}
    pages = [(ROOT / "docs" / name).read_text() for name in ("install.md", "from-wrk2.md")]
    assert ("`./wirespeed build load` and `./wirespeed build bypass` need Rust, a C compiler, `make` and Python only"
            in pages[0])
    assert "but neither a JDK nor root" in pages[1]


def options_of(words):
    return [word.split("=")[0] for word in words if word.startswith("-")]


def test_the_documents_show_commands():
    assert len(SHOWN) >= COMMANDS_LEAST
    assert {words[0] for _, words in SHOWN} >= {"run", "plan", "report", "load", "bypass"}


@functools.cache
def planned(*words):
    """Many pages show the same command."""
    return CliRunner().invoke(app, ["plan", *words])


@pytest.mark.parametrize(("page", "words"), SHOWN, ids=lambda part: " ".join(part[-9:])
                         if isinstance(part, tuple) else part)
def test_a_shown_command_can_be_pasted(page, words):
    command, *rest = words
    assert command in known_commands() | set(STANDS_FOR) | {"--help", "--version", "help"}
    if command in LAB:
        page_of = LAB[command]
        if hasattr(page_of, "commands") and rest:
            page_of = page_of.commands.get(rest[0], page_of)
        known = {name for parameter in page_of.params for name in parameter.opts}
        assert set(options_of(rest)) <= known | {"--help", "--version"}
    if command in ("run", "plan") and rest and not set(STANDS_FOR) & set(rest):
        if rest[0] in ("--help", "--resume") or page.startswith("docs/guides/"):
            return  # guides are run as they stand by tests/system/test_guides.py
        if "--site" in rest and f"[site.{rest[rest.index('--site') + 1]}]" in (ROOT / page).read_text():
            return  # a site of the page's own, whose hosts a plan would look for
        only_of_run = {"--accept-noise", "--force", "--profile"}
        done = planned(*(word for word in rest if word not in only_of_run))
        assert done.exit_code == 0, f"{page}: {done.output} {done.exception}"
    if command == "load":
        for option in options_of(rest):
            assert f"`{re.sub('[0-9].*', '', option)}" in GENERATOR_OPTIONS, option


def test_profiles_that_commands_name_are_shipped():
    """A page started two programs with a profile `balanced`, which does not exist."""
    shipped = {path.stem for path in (ROOT / "profiles").glob("*.opf")} | {"NAME", "no-such-profile"}
    named = {(relative(page), name) for page in tracked(".md") if not relative(page).startswith("docs/history/")
             for name in re.findall(r"\bbypass (?:run|unit) [^`\n]*?-p ([\w-]+)(?=[\s`])", page.read_text())}
    assert len(named) > 10
    assert not {(page, name) for page, name in named if name not in shipped}


def anchors_of(text):
    """What a heading is called in a link."""
    heads = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", text, flags=re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}


def test_links_to_a_heading_lead_to_one():
    dead = []
    for page in tracked(".md"):
        for link in re.findall(r"\]\(((?!https?:)[^)\s]*#[^)\s]+)\)", page.read_text()):
            path, _, anchor = link.partition("#")
            target = page.parent / path if path else page
            if target.suffix == ".md" and anchor not in anchors_of(target.read_text()):
                dead.append(f"{relative(page)} → {link}")
    assert not dead


def test_scripts_that_documents_name_exist():
    gone = []
    for page in tracked(".md"):
        for name in re.findall(r"(?<![\w/.-])((?:lab|load|bypass|servers|tests)/[\w./-]+\.(?:py|sh))\b",
                               page.read_text()):
            if not (ROOT / name).exists():
                gone.append(f"{relative(page)} → {name}")
    assert not gone


def test_scripts_that_documents_start_without_an_interpreter_are_executable():
    """Three were not: "Permission denied"."""
    scripts = []
    for page in tracked(".md"):
        if relative(page).startswith("docs/history/"):
            continue
        text = page.read_text()
        lines = [line.removeprefix("$ ") for block in blocks_of_commands(text) for line in block.splitlines()]
        # A path between backquotes is a command if words follow it.
        for line in [*lines, *re.findall(r"`([\w./-]+ [^`\n]+)`", text)]:
            name = line.split()[0] if line.split() else ""
            if re.fullmatch(r"[\w-]+(/[\w.-]+)+", name) and (ROOT / name).is_file():
                scripts.append((relative(page), name))
    assert len(scripts) > 10
    assert not [(page, name) for page, name in scripts if not os.access(ROOT / name, os.X_OK)]


def test_the_index_of_decisions_has_each_with_its_status():
    folder = ROOT / "docs" / "decisions"
    index = (folder / "README.md").read_text()
    for page in sorted(folder.glob("[0-9]*.md")):
        title, _, status = page.read_text().splitlines()[:3]
        number, _, name = title.removeprefix("# ").partition(". ")
        status = status.removeprefix("Status: ")
        assert re.fullmatch(r"(accepted|superseded by \d+), \d{4}-\d\d-\d\d", status), page.name
        assert f"| {number} | [{name}]({page.name}) | {status} |" in index, page.name


#: Remarks behind "works" that would make it "partly".
MISSING = re.compile(r"\b(needs?|not tried|scaled|where they|the others|do(es)? not|only|as N\d)\b")


def test_a_piece_of_the_documents_that_works_has_nothing_missing():
    rows = [line for line in (ROOT / "docs" / "internals" / "seeds.md").read_text().splitlines()
            if re.match(r"\| [A-Z]\d+ ", line)]
    states = [row.rstrip(" |").rpartition(" | ")[2] for row in rows]
    assert len(states) > 100
    wrong = [state for state in states if not re.match(r"works$|works: |partly: |partly, as|not yet|–|none", state)
             or (state.startswith("works") and MISSING.search(state))]
    assert not wrong


def test_the_page_of_commands_is_that_of_their_parser():
    command = [sys.executable, ROOT / "packaging" / "manual.py"]
    page = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    remedy = "run: build/venv/bin/python packaging/manual.py > docs/commands.md"
    assert (ROOT / "docs" / "commands.md").read_text() == page, remedy


def test_each_option_of_the_lab_has_a_meaning_and_what_is_on_can_be_switched_off():
    """Four options had none, others `With --run.`; no default was shown, nor --no-bypass."""
    page = (ROOT / "docs" / "commands.md").read_text()
    assert not re.findall(r"^\| `.+` \| *\|$", page, re.M)
    assert not re.findall(r"^\| `.+` \| (?:With|Of|Over) --?\w+\. *\|$", page, re.M), "no word about what it does"
    assert "| `--port N` | Port of the server. Default: 8000. |" in page
    assert "`--bypass, --no-bypass`" in page and "`--try, --no-try`" in page


def test_the_readme_shows_both_commands():
    text = (ROOT / "README.md").read_text()
    assert "$ ./wirespeed run quickstart\n" in text
    assert "$ ./test\n" in text


def test_the_front_door_knows_every_command_of_the_lab():
    known = front_door().COMMANDS
    programs = {*known["Programs"], *known["This kit"]}
    assert set(LAB) == known_commands() - programs
    assert {"run", "plan", "report", "list", "runs"} <= set(LAB)


#: Claims that were false or out of date once, each with what is true.
WITHDRAWN = {
    "exact interval": "Student's t interval (decision 6)",
    "medians of five": "geometric means of ratios within rounds (decision 6)",
    "present build": "a commit",
    "build of that night": "a commit",
    "no packets arrive": "bypass between hosts",
    "no interface is involved": "bypass between hosts",
    "bypass is not sent": "it is sent to the hosts of a site",
    "no faster than the kernel": "slower than the kernel, with the factor",
    "at most 0.2 %": "the rates of docs/method.md",
    "eleven floors": "a bound on the difference",
    "one process per interface": "queues and clusters",
    "one process an interface": "queues and clusters",
    "three carriers": "Netty and Tomcat",
}


def test_withdrawn_claims_do_not_come_back():
    found = [f"{relative(page)}: {claim!r} (now: {now})" for page in tracked(".md") for claim, now in WITHDRAWN.items()
             if not relative(page).startswith("docs/history/") and claim in page.read_text().lower()]
    assert not found
