"""Claims of README, changelog and pages that were false or stale once agree with what they speak of."""

import re
import subprocess
import sys
from pathlib import Path

from components import ROOT

sys.path.insert(0, str(ROOT / "bench"))
sys.path.insert(0, str(ROOT / "bypass/bench"))
import packetdrill
import pages

LEAST_WORDS_OF_GUIDES = 8_000
#: Pages of use and internals; what is generated, measured, run by a test as data, or a record is not counted.
MOST_WORDS_BY_HAND = 45_000
GENERATED = ("published.md", "programs.md", "performance.md", "options.md", "load-options.md", "load-results.md",
             "gateway-options.md", "commands.md")
RECORDS = ("history", "decisions", "mistakes", "performance")
GUIDES = ("is-nginx-faster-with-bypass", "which-is-faster", "your-server", "make-it-faster", "ci", "two-hosts",
          "from-wrk2", "bypass-in-production", "containers", "gateway-production", "gateway-filters",
          "troubleshooting", "after-a-run", "honest-latency")


def read(page):
    return (ROOT / page).read_text()


def words_of(pages):
    return sum(len(re.findall(r"\S*\w\S*", page.read_text())) for page in pages)


def test_pages_written_by_hand_stay_short():
    """Of 112,000 words below docs/ a reader found no way to a first result."""
    docs = ROOT / "docs"
    pages = [page for page in docs.rglob("*.md") if page.relative_to(docs).parts[0] not in (*RECORDS, *GENERATED)]
    assert words_of(pages) <= MOST_WORDS_BY_HAND
    guides = [*(docs / "guides").glob("*.md"), *(docs / f"{name}.md" for name in GUIDES)]
    assert words_of(guides) >= LEAST_WORDS_OF_GUIDES


def test_the_changelog_has_dated_releases_of_user_visible_changes():
    """The first one had 351 bullets, 271 of them Fixed, for a release that did not exist yet."""
    heads = re.findall(r"^## (.+)$", read("CHANGELOG.md"), re.M)
    assert heads and all(re.fullmatch(r"Unreleased|\d+\.\d+\.\d+ \(\d{4}-\d\d-\d\d\)", head) for head in heads)
    first = read("CHANGELOG.md").partition("## 0.1.0 ")[2]
    assert "### Fixed" not in first and len(re.findall(r"^- ", first, re.M)) <= 40
    unreleased = read("CHANGELOG.md").partition("## 0.1.0 ")[0]
    assert set(re.findall(r"^### (.+)$", unreleased, re.M)) <= {"Added", "Changed", "Fixed", "Security"}


def test_every_manifest_has_the_version_of_the_newest_release():
    newest = re.search(r"^## (\d+\.\d+\.\d+) ", read("CHANGELOG.md"), re.M)[1]
    found = {"Cargo.toml": re.search(r'^version = "(.+)"', read("Cargo.toml"), re.M)[1],
             "lab/pyproject.toml": re.search(r'^version = "(.+)"', read("lab/pyproject.toml"), re.M)[1],
             "lab": re.search(r'^__version__ = "(.+)"', read("lab/src/wirespeed/__init__.py"), re.M)[1],
             "servers": re.search(r"<version>(.+)</version>", read("servers/pom.xml"))[1]}
    assert set(found.values()) == {newest}, found


def test_the_text_of_a_tag_is_the_newest_release_of_the_changelog():
    done = subprocess.run([sys.executable, ROOT / "packaging" / "notes.py"], capture_output=True, text=True, check=True)
    version, date = re.search(r"^## (\d+\.\d+\.\d+) \((.+)\)$", read("CHANGELOG.md"), re.M).groups()
    assert done.stdout.startswith(f"Wirespeed {version}\n\nReleased {date}.\n\n")
    assert "\nKnown issues\n- " in done.stdout and not re.search(r"^#|\]\(", done.stdout, re.M)


def test_the_number_of_programs_is_that_of_their_table():
    table = read("docs/programs.md").partition("| program | version |")[2].partition("\n\n")[0]
    count = len([row for row in table.splitlines()[2:] if row.startswith("| ")])
    assert f"{count} set-ups of real programs tried" in read("README.md")
    pages = [page for page in (ROOT / "docs").rglob("*.md") if "history" not in page.parts]
    named = [(page.name, int(number)) for page in pages
             for number in re.findall(r"\b(\d+) set-ups\b", page.read_text())]
    assert len(named) >= 2 and {number for _, number in named} == {count}, named
    assert any(row.startswith("| memcached ") for row in table.splitlines())


def test_each_reason_of_bypass_is_given_somewhere_and_explained_on_a_page():
    """Two were explained and never counted, and four were on no page."""
    listed = read("bypass/stats/src/lib.rs").partition("Reason, REASONS:")[2].partition("\n}")[0]
    reasons = dict(re.findall(r'^    (\w+) = "([\w-]+)",$', listed, re.M))
    assert len(reasons) >= 15
    users = [path for room in ("stack", "preload") for path in (ROOT / "bypass" / room / "src").rglob("*.rs")]
    code = "\n".join(path.read_text() for path in users)
    assert not [name for name in reasons if not re.search(rf"\bReason::{name}\b", code)]
    pages = [page for page in (ROOT / "docs").rglob("*.md") if page.relative_to(ROOT / "docs").parts[0] not in RECORDS]
    text = "\n".join(page.read_text() for page in pages)
    assert not [reason for reason in reasons.values() if f"`{reason}`" not in text]


def test_the_counts_of_packetdrill_add_up():
    """The page had 82 scripts where the benchmark ran 80."""
    page = read("docs/internals/limits/bypass-tcp.md")
    rows = re.findall(r"^\| .+ \| \d+ \| (\d+) \| (\d+) \| (\d+) \| \d+ % \|$", page, re.M)
    assert len(rows) == 3
    assert all(int(run) == int(passed) + int(failed) for run, passed, failed in rows)


def test_each_reason_why_a_script_of_packetdrill_fails_can_be_read():
    """Which scripts apply was said in words only."""
    reasons = packetdrill.reasons()
    assert {reason.suite for reason in reasons} == set(packetdrill.EXCLUDED)
    one = packetdrill.reason_of("freebsd", "rcv-data-segments/reordering-12345.pkt", reasons)
    assert one is not None and not one.applies
    assert packetdrill.reason_of("freebsd", "rcv-data-segments/reordering-54321.pkt", reasons) is None


def test_packetdrill_takes_a_kernel_that_plays_no_script_for_no_proof(tmp_path: Path):
    """Without root each script failed, which confirmed that Linux fails them."""
    command = [sys.executable, packetdrill.__file__, "/bin/false", f"freebsd={tmp_path}", "--kernel"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "--kernel" in done.stderr


def test_the_readme_names_each_protocol_of_the_generator():
    """It left out WebSocket and gRPC."""
    assert all(name in read("README.md") for name in ("HTTP/1.1", "HTTP/2", "gRPC", "WebSocket", "TCP and UDP echo"))


def test_requirements_are_those_of_the_build():
    """No page said which Rust, C library, processor or Python is needed."""
    page = read("docs/install.md")
    rust = re.search(r'^rust-version = "([\d.]+)"', read("Cargo.toml"), re.M)[1]
    python = re.search(r'^requires-python = ">=([\d.]+)"', read("lab/pyproject.toml"), re.M)[1]
    java = re.search(r"<maven.compiler.release>(\d+)<", read("servers/pom.xml"))[1]
    assert f"Rust {rust} or newer" in page and f"Python {python} or newer" in page and f"JDK {java} or newer" in page
    assert all(word in page for word in ("x86-64", "glibc", "Debian 12"))


def test_the_readme_says_that_root_installs_packages_and_how_to_forbid_it():
    text = read("README.md")
    assert re.search(r"As root, .+ install", text) and "WIRESPEED_NO_INSTALL=1" in text
    assert 'environ.get("WIRESPEED_NO_INSTALL")' in read("wirespeed")


def test_the_gateway_has_the_two_carriers_that_the_readme_names():
    """A page spoke of three."""
    modules = {path.name for path in (ROOT / "servers").glob("gateway-*") if (path / "pom.xml").exists()}
    assert {"gateway-netty", "gateway-tomcat"} <= modules
    assert "on Netty or Tomcat" in read("README.md")


def test_table_and_picture_of_the_readme_are_of_one_recorded_run():
    """The quickstart stood three times with three answers, and the picture was of another run than the table."""
    facts, output = pages.read(pages.newest("quickstart"))
    text = read("README.md")
    shown = text.partition("$ ./wirespeed run quickstart\n")[2].partition("```")[0].splitlines()
    lines = [line.rstrip() for line in output.splitlines()]
    assert len(shown) > 10 and all(line == "…" or line.rstrip() in lines for line in shown)
    run = re.search(r"^Report: runs/(.+)/derived/report.html$", "\n".join(shown), re.M)[1]
    assert f"<desc>run {run}</desc>" in read("docs/images/quickstart.svg")
    assert f"a quickstart of {facts['date']}, commit `{facts['commit']}`" in text.replace("\n", " ")


def test_each_folder_that_an_installation_leaves_is_named_with_what_starts():
    """Logs of installations stayed, and nothing said that Debian starts the NGINX which the package recommends."""
    page = read("docs/install.md").partition("## Packages")[2]
    kept = {"wirespeed": (".cache", ".local"), "lab/src/wirespeed/runner/known.py": (".local", "state")}
    for file, parts in kept.items():
        assert all(f'"{part}"' in read(file) for part in parts), file
    assert all(f"`~/{folder}/wirespeed`" in page for folder in (".local/share", ".local/state", ".cache"))
    assert "nginx" in re.search("^Recommends: .+$", read("packaging/debian.py"), re.M)[0] and "port 80" in page


def test_a_filter_must_allow_each_call_that_bypass_unit_adds():
    """membarrier was missing: a filter that kills ended the service at its first connection."""
    added = re.search(r'^const CALLS: &str = "(.+)";$', read("bypass/cli/src/unit.rs"), re.M)[1].split()
    row = re.search(r"^\| `SystemCallFilter=` .+$", read("docs/bypass-in-production.md"), re.M)[0]
    assert all(f"`{name}`" in row for name in added if not name.startswith("@"))


def test_the_command_of_the_latency_page_is_that_of_its_figures():
    """The figures were measured with real-time priority, which the command did not ask for."""
    page = read("docs/honest-latency.md")
    assert "real-time priority for server and generators" in page
    assert re.search(r"^load/bench/stall.py .+ --realtime$", page, re.M)
