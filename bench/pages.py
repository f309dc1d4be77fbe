#!/usr/bin/env python3
"""Makes docs/performance/*.md from the recorded results and from bench/pages.toml.

    bench/pages.py [--check]

bench/pages.toml has the pages, their sections and the result that each section shows: the newest file of
that name below bench/results, shown whole, so that unfavourable rows are included. A section whose result was
never recorded is left out, and named.
With --check nothing is written: exits with status 1 when a page differs. Standard library only.
"""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results"
PAGES = ROOT / "docs" / "performance"
MADE = "<!-- Made by bench/pages.py from bench/pages.toml and bench/results: change those. -->"


def main(arguments):
    pages = {PAGES / f"{page['file']}.md": text_of(page) for page in described()}
    stale = [path for path, text in pages.items() if not path.exists() or path.read_text() != text]
    if arguments == ["--check"]:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is stale (run bench/pages.py)", file=sys.stderr)
        return 1 if stale else 0
    for path in stale:
        path.write_text(pages[path])
        print(f"wrote {path.relative_to(ROOT)}")
    return 0


def described():
    return tomllib.loads((ROOT / "bench" / "pages.toml").read_text())["page"]


def text_of(page):
    parts = [MADE, f"# {page['title']}", page["intro"].strip()]
    for section in page.get("section", []):
        if recorded(section["result"]):
            parts += [f"## {section['heading']}", section["text"].strip(), *shown(section["result"])]
        else:
            print(f"pages: {section['result']} is not recorded yet (bench/record.py {section['result']})",
                  file=sys.stderr)
    if "history" in page:
        parts.append(f"[Results of earlier builds]({page['history']}).")
    return "\n\n".join(part for part in parts if part) + "\n"


def shown(name):
    """One result as Markdown: where it comes from, and what the benchmark printed."""
    facts, output = read(newest(name))
    source = (f"`{facts['command']}`, {facts['seconds']} s; {facts['machine']}; "
              f"{facts['date']}, commit `{facts['commit']}`")
    # A benchmark that prints a table in Markdown is shown as a table.
    is_table = any(re.fullmatch(r"\|[ :|-]+\|", line) for line in output.splitlines())
    if not is_table:
        return [source, f"```text\n{output.rstrip()}\n```"]
    # A line that a shell script prints as a comment would be a heading, and a table begins after an empty line.
    text = re.sub(r"^# (.*)\n", r"\1\n\n", output.strip(), flags=re.M)
    return [source, re.sub(r"^([^|\n].*)\n(?=\|)", r"\1\n\n", text, flags=re.M)]


def recorded(name):
    """The files of a result, the newest last."""
    return sorted(RESULTS.glob(f"*/{name}.txt"))


def newest(name):
    return recorded(name)[-1]


def read(path):
    """The facts of a result file's head, and the output below the first empty line."""
    head, _, output = path.read_text().partition("\n\n")
    return dict(line.split(": ", 1) for line in head.splitlines()), output


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
