"""The pages of docs/performance are what bench/pages.py makes of the recorded results."""

import re
import subprocess
import sys

from components import ROOT

sys.path.insert(0, str(ROOT / "bench"))
import pages


def test_the_pages_are_made_from_the_results():
    done = subprocess.run([sys.executable, ROOT / "bench" / "pages.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_each_kept_result_is_shown_and_names_its_source():
    shown = {section["result"] for page in pages.described() for section in page["section"]}
    for path in pages.RESULTS.glob("*/*.txt"):
        assert path.stem in shown, f"{path.relative_to(ROOT)} is in no page of bench/pages.toml"
        facts, output = pages.read(path)
        assert set(facts) == {"command", "machine", "date", "commit", "seconds"} and output.strip()


def test_each_row_of_the_overview_names_command_machine_date_and_commit():
    """Of 23 rows three had a command, and one table was broken."""
    pages_of_rows = [ROOT / "docs" / name for name in ("performance.md", "history/performance.md")]
    rows = [row.strip("|").split(" | ") for page in pages_of_rows for row in page.read_text().splitlines()
            if row.startswith("| ") and not row.startswith("| what ")]
    assert len(rows) > 20
    for row in rows:
        assert len(row) == 4, row
        for command in re.findall(r"`([^`]+)`", row[2]):
            assert (ROOT / command.removeprefix("python3 ").split()[0]).exists(), command
        source = r"(Xeon|EPYC|2-core guest), \d{4}-\d\d-\d\d, `[0-9a-f]{7,}`"
        assert re.search(r"`\S+", row[2]) and re.search(source, row[3]), row


def test_a_current_row_of_the_overview_has_the_figures_of_the_page_that_it_links():
    """The overview had 1.22 × wrk where the page had 1.11, and left out a loss against HAProxy."""
    current = (ROOT / "docs" / "performance.md").read_text()
    rows = [row for row in current.splitlines() if row.startswith("| [")]
    assert len(rows) > 10
    assert all(row in rows for row in current.splitlines() if re.match(r"\| (?!what )", row)), "a row without a link"
    for row in rows:
        what, result, command, source = row.strip("|").split(" | ")
        section = section_of(*re.search(r"\]\(([\w/-]+\.md)#([\w-]+)\)", what).groups())
        figures = re.findall(r"\d+\.\d\d", result)
        assert figures and all(re.search(rf"(?<![\d.]){figure}(?!\d)", section) for figure in figures), row
        date, commit = re.search(r"(\d{4}-\d\d-\d\d), `(\w+)`", source).groups()
        assert f"`{command.strip(' `')}`" in section and f"{date}, commit `{commit}`" in section, row


def section_of(page, anchor):
    """The part of a page of docs/performance below the heading that a link names."""
    parts = re.split(r"^## (.+)$", (ROOT / "docs" / page).read_text(), flags=re.M)
    named = {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-"): text
             for head, text in zip(parts[1::2], parts[2::2], strict=True)}
    return named[anchor]
